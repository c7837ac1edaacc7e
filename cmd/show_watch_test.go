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
)

// TestWatch lets a connection fail, the cluster vanish and come back, and
// interrupts in the end.
func TestWatch(t *testing.T) {
	g, stdout, stderr := testGlobals(t, worlds()["well"], "west")
	synctest.Test(t, func(t *testing.T) {
		cfg, err := g.restConfig()
		require.NoError(t, err)
		c, err := g.connect(t.Context(), cfg)
		require.NoError(t, err)
		connect, lost := g.connect, true
		g.connect = func(ctx context.Context, cfg *rest.Config) (client.Client, error) {
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
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: submarinerv1.OperatorNamespace, Name: "gw-1"}, &gw))
		gw.Status.Connections[0].Status = submarinerv1.ConnectionError
		require.NoError(t, c.Update(t.Context(), &gw))
		time.Sleep(3 * watchPeriod)
		interrupt()
		require.Equal(t, exitDone, <-code)
	})
	const head = "GATEWAY   CLUSTER   REMOTE IP    NAT   CABLE DRIVER   POLICY   SUBNETS                                    STATUS      RTT avg.    MESSAGE\n"
	require.Equal(t, head+
		"gw-e      east      172.18.0.9   no    wireguard      secure   100.65.0.0/16, 10.2.0.0/16, 10.3.0.0/16…   connected   404.351µs\n\n"+
		"GATEWAY   CLUSTER   REMOTE IP    NAT   CABLE DRIVER   POLICY   SUBNETS                                    STATUS   RTT avg.    MESSAGE\n"+
		"gw-e      east      172.18.0.9   no    wireguard      secure   100.65.0.0/16, 10.2.0.0/16, 10.3.0.0/16…   error    404.351µs\n", stdout.String())
	require.Equal(t, " ✗ reaching the API server at https://west.test:6443 (context \"west\"): context deadline exceeded: is the cluster up, and the context right?\n"+
		" ⚠ cluster \"west\": gateway gw-1 to gw-e of cluster \"east\": error\n", stderr.String())
}

// Programs read one document per line, or one after each "---".
func TestWatchDocuments(t *testing.T) {
	for format, split := range map[string]string{"json": "\n", "yaml": "---\n"} {
		g, stdout, _ := testGlobals(t, worlds()["well"], "west")
		synctest.Test(t, func(t *testing.T) {
			cfg, err := g.restConfig()
			require.NoError(t, err)
			c, err := g.connect(t.Context(), cfg)
			require.NoError(t, err)
			ctx, interrupt := context.WithCancel(t.Context())
			code := make(chan int)
			go func() { code <- run(ctx, g, []string{"show", "connections", "--watch", "-o", format}) }()
			time.Sleep(3 * watchPeriod)
			var gw submarinerv1.Gateway
			require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: submarinerv1.OperatorNamespace, Name: "gw-1"}, &gw))
			gw.Status.Connections[0].LatencyRTT = nil
			require.NoError(t, c.Update(t.Context(), &gw))
			time.Sleep(3 * watchPeriod)
			interrupt()
			require.Equal(t, exitDone, <-code)
		})
		var rtts []any
		for document := range strings.SplitSeq(strings.TrimPrefix(strings.TrimSuffix(stdout.String(), "\n"), split), split) {
			var rows []map[string]any
			require.NoError(t, yaml.UnmarshalStrict([]byte(document), &rows))
			require.Len(t, rows, 1)
			rtts = append(rtts, rows[0]["rttAverageMilliseconds"])
		}
		require.Equal(t, []any{0.404351, nil}, rtts, format)
	}
}
