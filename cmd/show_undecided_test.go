package cmd

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/internal/cli"
)

// TestWaitAfterChange waits for connections directly after a cable policy was created in cluster
// east: first the policy has not reached cluster west; then its gateway still uses the cable of
// before, which is connected and not encrypted; then it uses the new one.
func TestWaitAfterChange(t *testing.T) {
	g, stdout, stderr := testGlobals(t, decidedWorld(), "west", "east")
	synctest.Test(t, func(t *testing.T) {
		clients := map[string]client.Client{}
		for _, name := range []string{"west", "east"} {
			cfg, err := g.RestConfigFor(name)
			require.NoError(t, err)
			clients[name], err = g.Connect(t.Context(), cfg)
			require.NoError(t, err)
		}
		start := time.Now()
		g.Now = func() time.Time { return now.Add(time.Since(start)) }
		report := func(in, node, remote, driver, policy string) {
			c := connection(submarinerv1.Connected, endpoint(remote, "gw-"+remote, "172.18.0.9"))
			c.Driver = driver
			c.Policy = policy
			gw := gateway(in, node, -time.Since(start), c)
			var was submarinerv1.Gateway
			require.NoError(t, clients[in].Get(t.Context(), client.ObjectKeyFromObject(gw), &was))
			gw.ResourceVersion = was.ResourceVersion
			require.NoError(t, clients[in].Update(t.Context(), gw))
		}
		policy := &v1alpha1.CablePolicies{
			ObjectMeta: named("secret"), ConnectionPolicies: []v1alpha1.CablePolicySpec{{CableDriver: "wireguard"}},
		}
		require.NoError(t, clients["east"].Create(t.Context(), policy.DeepCopy()))
		report("west", "gw-west", "east", "vxlan", "")
		report("east", "gw-east", "west", "wireguard", "secret")

		ended := make(chan time.Duration)
		var code int
		go func() {
			code = run(context.WithoutCancel(t.Context()), g, []string{
				"show", "connections", "--wait", "--timeout", "30s",
			})
			ended <- time.Since(start)
		}()
		time.Sleep(5 * time.Second)
		copied := policy.DeepCopy()
		copied.Labels = map[string]string{submarinerv1.ClusterIDLabel: "east", submarinerv1.ClusterSetLabel: "default"}
		require.NoError(t, clients["west"].Create(t.Context(), copied))
		time.Sleep(5 * time.Second)
		report("west", "gw-west", "east", "wireguard", "secret")
		report("east", "gw-east", "west", "wireguard", "secret")
		require.GreaterOrEqual(t, <-ended, 10*time.Second)
		require.Equal(t, cli.ExitDone, code, stderr)
	})
	require.Contains(t, stderr.String(),
		"east - west: cluster west: it has not noticed yet what cluster east decides: wireguard (secret)\n")
	require.Contains(t, stderr.String(),
		"east - west: cluster west: gateway gw-west: uses vxlan (the clusters' own default)\n")
	require.Contains(t, stdout.String(), "wireguard")
	require.NotContains(t, stdout.String(), "vxlan")
}

// decidedWorld returns two clusters that know each other, each with a gateway that has just
// started.
func decidedWorld() world {
	w := world{}
	for id, other := range map[string]string{"west": "east", "east": "west"} {
		w[id] = []client.Object{submariner(id), gateway(id, "gw-"+id, time.Second)}
		w[id] = append(w[id],
			clusterObjects(submarinerv1.OperatorNamespace, "", id, "site=x", "vxlan,wireguard", "default")...)
		w[id] = append(w[id],
			clusterObjects(submarinerv1.OperatorNamespace, other, other, "site=x", "vxlan,wireguard", "default")...)
	}
	return w
}

// With only some of the clusters in the kubeconfig, the wait is for what these show, and says so.
func TestWaitUnchecked(t *testing.T) {
	w := world{"west": decidedWorld()["west"]}
	c := connection(submarinerv1.Connected, endpoint("east", "gw-east", "172.18.0.9"))
	c.Driver = "vxlan"
	w["west"][1] = gateway("west", "gw-west", time.Second, c)
	got := runAtOnce(t, w, []string{"west"}, "show", "connections", "--wait")
	require.Equal(t, cli.ExitDone, got.code, got.stderr)
	require.Contains(t, got.stderr, "not checked whether these clusters have noticed the latest changes")
	require.Contains(t, got.stderr, ": east\n")
}
