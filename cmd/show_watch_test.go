package cmd

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/cli"
)

// TestWatch lets a connection fail, the cluster vanish and come back, and
// interrupts in the end.
func TestWatch(t *testing.T) {
	g, stdout, stderr := testGlobals(t, worlds()["well"], "west")
	synctest.Test(t, func(t *testing.T) {
		cfg, err := g.RestConfig()
		require.NoError(t, err)
		c, err := g.Connect(t.Context(), cfg)
		require.NoError(t, err)
		connect := g.Connect
		lost := true
		g.Connect = func(ctx context.Context, cfg *rest.Config) (client.Client, error) {
			if lost {
				return nil, context.DeadlineExceeded
			}
			return connect(ctx, cfg)
		}

		ctx, interrupt := context.WithCancel(t.Context())
		code := make(chan int)
		go func() { code <- run(ctx, g, []string{"show", "connections", "--watch"}) }()
		time.Sleep(3 * watchPeriod) // it cannot be reached, and that is said once
		lost = false
		time.Sleep(3 * watchPeriod) // seen well, and nothing changes
		var gw submarinerv1.Gateway
		require.NoError(t,
			c.Get(t.Context(), client.ObjectKey{Namespace: submarinerv1.OperatorNamespace, Name: "gw-1"}, &gw))
		gw.Status.Connections[0].Status = submarinerv1.ConnectionError
		require.NoError(t, c.Update(t.Context(), &gw))
		time.Sleep(3 * watchPeriod)
		interrupt()
		require.Equal(t, cli.ExitDone, <-code)
	})
	require.Equal(t, "GATEWAY   CLUSTER   REMOTE IP    CABLE DRIVER   POLICY   STATUS      RTT avg.   MESSAGE\n"+
		"gw-e      east      172.18.0.9   wireguard      secure   connected   404 µs\n\n"+
		"GATEWAY   CLUSTER   REMOTE IP    CABLE DRIVER   POLICY   STATUS   RTT avg.   MESSAGE\n"+
		"gw-e      east      172.18.0.9   wireguard      secure   error    404 µs\n", stdout.String())
	require.Equal(
		t,
		" ✗ reaching the API server at https://west.test:6443 (context \"west\"): context deadline exceeded: is the cluster up, and the context right?\n"+
			" ⚠ cluster \"west\": gateway gw-1 to gw-e of cluster \"east\": error\n",
		stderr.String(),
	)
}

// Programs read one document per line, or one after each "---".
func TestWatchDocuments(t *testing.T) {
	for format, split := range map[string]string{"json": "\n", "yaml": "---\n"} {
		g, stdout, _ := testGlobals(t, worlds()["well"], "west")
		synctest.Test(t, func(t *testing.T) {
			cfg, err := g.RestConfig()
			require.NoError(t, err)
			c, err := g.Connect(t.Context(), cfg)
			require.NoError(t, err)
			ctx, interrupt := context.WithCancel(t.Context())
			code := make(chan int)
			go func() { code <- run(ctx, g, []string{"show", "connections", "--watch", "-o", format}) }()
			time.Sleep(3 * watchPeriod)
			var gw submarinerv1.Gateway
			require.NoError(t,
				c.Get(t.Context(), client.ObjectKey{Namespace: submarinerv1.OperatorNamespace, Name: "gw-1"}, &gw))
			gw.Status.Connections[0].LatencyRTT = nil
			require.NoError(t, c.Update(t.Context(), &gw))
			time.Sleep(3 * watchPeriod)
			interrupt()
			require.Equal(t, cli.ExitDone, <-code)
		})
		var rtts []any
		for document := range strings.SplitSeq(strings.TrimPrefix(strings.TrimSuffix(stdout.String(), "\n"), split),
			split) {
			var rows []map[string]any
			require.NoError(t, yaml.UnmarshalStrict([]byte(document), &rows))
			require.Len(t, rows, 1)
			rtts = append(rtts, rows[0]["rttAverageMilliseconds"])
		}
		require.Equal(t, []any{0.404351, nil}, rtts, format)
	}
}

// TestWaitForConnections waits for a cluster that cannot be reached at first, then for a
// connection, and for the gateway of another cluster that has none.
func TestWaitForConnections(t *testing.T) {
	g, stdout, stderr := testGlobals(t, worlds()["known"], "west")
	key := client.ObjectKey{Namespace: submarinerv1.OperatorNamespace, Name: "gw-1"}
	synctest.Test(t, func(t *testing.T) {
		cfg, err := g.RestConfig()
		require.NoError(t, err)
		c, err := g.Connect(t.Context(), cfg)
		require.NoError(t, err)
		start := time.Now()
		connect := g.Connect
		g.Now = func() time.Time { return now.Add(time.Since(start)) }
		g.Connect = func(ctx context.Context, cfg *rest.Config) (client.Client, error) {
			if time.Since(start) < 3*time.Second {
				return nil, context.DeadlineExceeded
			}
			return connect(ctx, cfg)
		}
		report := func(connections ...submarinerv1.Connection) {
			gw := gateway("west", "gw-1", -time.Since(start), connections...)
			var was submarinerv1.Gateway
			require.NoError(t, c.Get(t.Context(), key, &was))
			gw.ResourceVersion = was.ResourceVersion
			require.NoError(t, c.Update(t.Context(), gw))
		}
		first := endpoint("east", "gw-e", "172.18.0.9")
		second := endpoint("east", "gw-e2", "172.18.0.10")
		code := make(chan int)
		go func() { code <- run(t.Context(), g, []string{"show", "connections", "--wait", "--timeout", "30s"}) }()
		report(connection(submarinerv1.Connecting, first))
		time.Sleep(6 * time.Second)
		report(connection(submarinerv1.Connected, first))
		time.Sleep(3 * time.Second)
		report(connection(submarinerv1.Connected, first), connection(submarinerv1.Connected, second))
		require.Equal(t, cli.ExitDone, <-code)
	})
	require.Equal(t, ` • waiting until all gateways are connected, for at most 30s …
 ⚠ reaching the API server at https://west.test:6443 (context "west"): context deadline exceeded: is the cluster up, and the context right?
 ⚠ cluster "west": gateway gw-1 to gw-e of cluster "east": connecting
 ⚠ cluster "west": gateway gw-1 to gw-e2 of cluster "east": no connection yet
 ⚠ cluster "west": gateway gw-1 to gw-e2 of cluster "east": no connection yet
 ⚠ not checked whether these clusters have noticed the latest changes, as no context was read for them, or you may not read their cable policies: east
 ✓ all gateways are connected
`, stderr.String())
	require.Equal(t, 3, strings.Count(stdout.String(), "\n"), stdout.String())
}

// TestWaitInterrupted interrupts a wait: it prints what is connected and what is not.
func TestWaitInterrupted(t *testing.T) {
	for name, test := range map[string]struct {
		context, stdout, stderr string
	}{
		"not connected": {
			"west",
			"gw-e      east",
			"interrupted: so far, not all gateways are connected:\n ⚠ cluster \"west\": gateway gw-1 to gw-e2 of cluster \"east\": no connection yet\nError: waiting until all gateways are connected: interrupted\n",
		},
		"nothing read": {
			"lost",
			"",
			"interrupted: so far, not all gateways are connected:\n ⚠ reaching the API server at https://lost.test:6443",
		},
		"at once": {
			"slow",
			"",
			"interrupted: no cluster has answered yet\nError: waiting until all gateways are connected: interrupted\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, stdout, stderr := testGlobals(t, world{"west": worlds()["known"]["west"], "slow": nil}, "west", "lost",
				"slow")
			connect := g.Connect
			synctest.Test(t, func(t *testing.T) {
				g.Connect = func(ctx context.Context, cfg *rest.Config) (client.Client, error) {
					if test.context == "slow" {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					return connect(ctx, cfg)
				}
				ctx, interrupt := context.WithCancel(t.Context())
				code := make(chan int)
				go func() {
					code <- run(ctx, g, []string{"show", "connections", "--wait", "--context", test.context})
				}()
				time.Sleep(2500 * time.Millisecond)
				interrupt()
				require.Equal(t, cli.ExitInterrupted, <-code)
			})
			require.Contains(t, stdout.String(), test.stdout)
			require.Contains(t, stderr.String(), test.stderr)
		})
	}
}

// The exit code of a wait that has not succeeded is the same as without it.
func TestWaitInVain(t *testing.T) {
	for name, test := range map[string]struct {
		args    []string
		code    int
		message string
	}{
		"not connected":  {nil, cli.ExitTrouble, "not all gateways are connected after 5s"},
		"cannot be read": {[]string{"--contexts", "lost"}, cli.ExitFailed, "connection refused"},
		"and watching":   {[]string{"--watch"}, cli.ExitUsage, "--wait and --watch both decide"},
		"no time":        {[]string{"--timeout", "0s"}, cli.ExitUsage, "--timeout 0s is not positive"},
	} {
		t.Run(name, func(t *testing.T) {
			g, stdout, stderr := testGlobals(t, worlds()["down"], "west", "lost")
			args := append(
				[]string{"show", "connections", "--contexts", "west", "--wait", "--timeout", "5s"},
				test.args...)
			if name == "cannot be read" {
				args = append([]string{"show", "connections", "--wait", "--timeout", "5s"}, test.args...)
			}
			synctest.Test(t, func(t *testing.T) { require.Equal(t, test.code, run(t.Context(), g, args)) })
			require.Contains(t, stderr.String(), test.message)
			require.Equal(t, test.code == cli.ExitTrouble, strings.Contains(stdout.String(), "gw-n"), stdout.String())
		})
	}
}

// A time limit or requirement that is none is a mistake of the command line, before anything is
// read.
func TestFlagsWithoutEffect(t *testing.T) {
	for _, test := range []struct{ args, message string }{
		{"cable-policy add p --cable-driver ipsec --wait --timeout 0", "--timeout 0s is not positive"},
		{"cable-policy delete p --wait --timeout -1s", "--timeout -1s is not positive"},
		{"label west site=cloud --wait --timeout -1s", "--timeout -1s is not positive"},
		{"rotate-key --timeout -1s", "--timeout -1s is not positive"},
		{"uninstall --timeout -1s --yes", "--timeout -1s is not positive"},
		{"rotate-key -o json", "--output requires --dry-run"},
		{"uninstall -o json", "--output requires --dry-run"},
	} {
		t.Run(test.args, func(t *testing.T) {
			g, _, stderr := testGlobals(t, world{"west": nil}, "west")
			require.Equal(t, cli.ExitUsage, run(t.Context(), g, strings.Fields(test.args)))
			require.Contains(t, stderr.String(), test.message)
		})
	}
}

// TestWatchPlan adds a node while the plan of another is watched.
func TestWatchPlan(t *testing.T) {
	objs, nodes := scenario(t, "two-clusters")
	g, stdout, _ := testGlobals(t, world{"east": append(objs, connectedToWest())}, "east")
	synctest.Test(t, func(t *testing.T) {
		cfg, err := g.RestConfig()
		require.NoError(t, err)
		c, err := g.Connect(t.Context(), cfg)
		require.NoError(t, err)
		ctx, interrupt := context.WithCancel(t.Context())
		code := make(chan int)
		go func() { code <- run(ctx, g, []string{"show", "plan", "gw", "--watch"}) }()
		time.Sleep(3 * watchPeriod)
		var list submarinerv1.EndpointList
		require.NoError(t, c.List(t.Context(), &list))
		for _, e := range list.Items {
			if e.Spec.ClusterID == "west" {
				require.NoError(t, c.Delete(t.Context(), &e))
			}
		}
		time.Sleep(3 * watchPeriod)
		interrupt()
		require.Equal(t, cli.ExitDone, <-code)
	})
	first, second, ok := strings.Cut(stdout.String(), "\n\n")
	require.True(t, ok)
	require.Equal(t, nodes["gw"], first+"\n")
	require.NotContains(t, second, "ip route replace 10.112.0.0/16")
	require.Contains(t, second, "ip route replace blackhole 10.112.0.0/16", "its Cluster is still there")
}
