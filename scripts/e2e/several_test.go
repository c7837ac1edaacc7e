//go:build e2e

package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"subctl/internal/measure"
)

// several changes the number of active gateways of a cluster: all nodes, or one of them.
func several(t *testing.T, cluster string, all bool) {
	t.Helper()
	want := 1
	if all {
		want = len(nodes(cluster))
	}
	must(t, "subctl", "join", brokerFile, "--context", cluster, "--image", image,
		fmt.Sprintf("--multi-active-gateway=%v", all), "--gateways", fmt.Sprint(want))
	eventually(t, time.Minute, func() error {
		if gws := gateways(t, cluster); len(gws) != want {
			return fmt.Errorf("%s has the gateways %v, not %d", cluster, gws, want)
		}
		return nil
	})
}

// allConnected waits until every gateway is connected to every gateway of the other clusters.
func allConnected(t *testing.T) {
	t.Helper()
	eventually(t, time.Minute, func() error {
		if cs, code := connections(t); code != 0 {
			return fmt.Errorf("exit code %d: %+v", code, cs)
		}
		return nil
	})
}

// Two clusters get a second active gateway while packets flow. Clients keep their own addresses,
// also behind a Service that either gateway translates. A gateway is killed, and returns. Then the
// clusters get back to one gateway.
func TestSeveralGateways(t *testing.T) {
	takesLong(t)
	const pair = "cluster1 cluster2"
	clusters := []string{"cluster1", "cluster2"}
	gateways := map[string]string{}
	for _, c := range clusters {
		gateways[c] = gateway(t, c)
	}
	from, to := workersOf(t, pair)
	s := startStream(t, from, to)
	open := startFlows(t, containerOf(t, from), 0, to.ip+":7", serviceIP(t, to.cluster, "web")+":7")
	for _, c := range clusters {
		several(t, c, true)
	}
	allConnected(t)
	l := s.stop(t)
	require.LessOrEqual(t, l.MostLostInARow, 5, "a second gateway in both clusters: %+v", l) // usually none
	for _, c := range open.stop(t).TCP {
		require.Empty(t, c.Err, "connection from port %d to %s, idle %v: a second gateway in both clusters", c.Port,
			c.Target, c.Idle)
	}

	for range 3 {
		flows(t, "cluster1", "cluster2")
		flows(t, "cluster2", "cluster1")
	}

	busiest, _ := idle(t, clusters...)
	measure.Record(
		t,
		measure.AtMost("idle agent with two gateways, which probe each other, the busiest: CPU, of a core", busiest, 1,
			"%"),
	)

	t.Log("the gateway of cluster2 without the pod is killed")
	s = startStream(t, from, to)
	victim := gateways["cluster2"]
	t.Cleanup(func() { // if a step fails before it is back: the next test needs all nodes
		for _, verb := range []string{"heal", "start"} {
			out, err := sh("lab", verb, victim)
			assert.NoError(t, err, "lab %s %s: %s", verb, victim, out)
		}
	})
	must(t, "lab", "kill", victim)
	must(t, "lab", "cut", victim)
	time.Sleep(3 * time.Second)
	answers(t, from, to)
	l = s.stop(t)
	measure.Record(
		t,
		measure.AtMost("one of two active gateways killed: traffic again after", measure.Values{l.LongestGapMs / 1000},
			1, "s"),
	)
	must(t, "lab", "heal", victim)
	must(t, "lab", "start", victim)
	kubectl(t, "cluster2", "wait", "--for=condition=Ready", "node/"+victim, "--timeout=300s")
	kubectl(t, "cluster2", "rollout", "status", "daemonset/web", "--timeout=300s")
	allConnected(t)
	flows(t, "cluster1", "cluster2")

	s = startStream(t, from, to)
	for _, c := range clusters {
		several(t, c, false)
		for _, n := range nodes(c) {
			if n != gateway(t, c) {
				standby(t, c, n) // all clusters use the other one
				kubectl(t, c, "label", "node", n, "submariner.io/gateway-")
			}
		}
	}
	connected(t)
	l = s.stop(t)
	// Usually none; up to 13 where a standby that is a client's node loses its label
	// (docs/failover.md).
	require.LessOrEqual(t, l.MostLostInARow, 30, "back to one gateway: %+v", l)
	flows(t, "cluster1", "cluster2")
}
