//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/internal/measure"
)

// workers are pods on the workers of cluster1 and cluster2.
func workers(t *testing.T) (from, to pod) {
	t.Helper()
	return podOn(t, "cluster1", "web", worker(t, "cluster1")), podOn(t, "cluster2", "web", worker(t, "cluster2"))
}

// Killing every agent of a cluster loses no packet, and the next agents change
// nothing.
func TestAgentsKilled(t *testing.T) {
	lossless(t, 1, func() map[string]lost {
		all := startStreams(t, "cluster1 cluster2")
		for _, n := range nodes("cluster1") {
			on(t, n, "pkill -9 -x subctl")
		}
		connected(t)
		time.Sleep(5 * time.Second) // the next agents are at work
		connected(t)
		return all.stop(t)
	})
}

// Objects of ours that somebody deletes are back within seconds.
func TestDeletedByHand(t *testing.T) {
	from, to := workers(t)
	gw := gateway(t, "cluster1")
	for _, damage := range []struct{ node, script string }{
		{gw, "ip link del vxlan-tunnel"},
		{gw, "ip rule del pref 100"},
		{from.node, "ip link del vx-submariner"},
		{from.node, "for r in $(ip route show table 170171150 | grep nhid | cut -d' ' -f1); do ip route del $r table " +
			"170171150; done"},
		{from.node, "iptables -F SUBMARINER-FORWARD"},
		{from.node, "nft delete table ip submariner-route"},
		{from.node, "ip rule del pref 150; ip nexthop flush"},
	} {
		on(t, damage.node, damage.script)
		took := eventually(t, 20*time.Second, func() error {
			out, err := from.try("get", "http://"+to.ip+":8080/", "--timeout", "1s")
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
		t.Logf("%s: traffic again after %.1f s", damage.script, took.Seconds())
	}
}

// The broker cannot be reached for longer than any request waits: traffic is not
// interrupted, and the clusters catch up afterward.
func TestBrokerUnreachable(t *testing.T) {
	for _, c := range []string{"cluster2", "cluster3"} {
		must(t, "lab", "cut", c, "cluster1-api")
	}
	lossless(t, 1, func() map[string]lost {
		all := startStreams(t, "cluster3 cluster2")
		// cluster2 gets a label while the broker cannot be told
		kubectl(t, "cluster2", "-n", "submariner-operator", "label", "clusters.submariner.io", "cluster2",
			"while=unreachable", "--overwrite")
		time.Sleep(30 * time.Second)
		return all.stop(t)
	})
	for _, c := range []string{"cluster2", "cluster3"} {
		must(t, "lab", "heal", c, "cluster1-api")
	}
	took := eventually(t, 90*time.Second, func() error {
		out, err := sh("kubectl", "--context", "cluster3", "-n", "submariner-operator", "get", "clusters.submariner.io",
			"cluster2", "-o", "jsonpath={.metadata.labels.while}")
		if err != nil || out != "unreachable" {
			return fmt.Errorf("label %q, %v", out, err)
		}
		return nil
	})
	t.Logf("cluster3 knows the label after %.1f s", took.Seconds())
	connected(t)
}

// The second node becomes a standby. The active gateway is killed; later the
// other one is stopped cleanly.
func TestTakeover(t *testing.T) {
	first := gateway(t, "cluster2")
	second := worker(t, "cluster2")
	kubectl(t, "cluster2", "label", "node", second, "submariner.io/gateway=true", "--overwrite")
	kubectl(t, "cluster2", "-n", "submariner-operator", "rollout", "status", "daemonset/submariner-gateway",
		"--timeout=300s")
	standby(t, "cluster2", second)
	cs, _ := connections(t)
	for _, c := range cs {
		if c.Cluster == "cluster1" && c.RemoteCluster == "cluster2" {
			require.NotNil(t, c.Member)
			require.Equal(t, c.RemoteGateway == first, *c.Member, "only the active gateway is used: %+v", c)
		}
	}
	from := podOn(t, "cluster1", "web", worker(t, "cluster1"))

	// A node that is killed takes its pods along, so the target is on the other.
	to := podOn(t, "cluster2", "web", second)
	s := startStream(t, from, to)
	must(t, "lab", "kill", first)
	must(t, "lab", "cut", first)
	time.Sleep(time.Second) // lost, if anything still was on its way
	answers(t, from, to)
	l := s.stop(t)
	measure.Record(t,
		measure.AtMost("active gateway killed: traffic again after", measure.Values{l.LongestGapMs / 1000}, 2, "s"))
	require.Less(t, l.LongestGapMs, 2000.0*slack, "killed: the standby takes over")
	elected := func(node string) {
		t.Helper()
		eventually(t, 30*time.Second, func() error {
			if g := gateways(t, "cluster2"); !slices.Equal(g, []string{node}) {
				return fmt.Errorf("the active gateways are %v", g)
			}
			return nil
		})
	}
	elected(second)
	must(t, "lab", "heal", first)
	must(t, "lab", "start", first)
	kubectl(t, "cluster2", "wait", "--for=condition=Ready", "node/"+first, "--timeout=300s")
	standby(t, "cluster2", first)

	// The node is no gateway node any more, and its agent is stopped.
	kubectl(t, "cluster2", "rollout", "status", "daemonset/web", "--timeout=300s")
	eventually(t, time.Minute, func() error {
		if !strings.Contains(
			kubectl(t, "cluster2", "-n", "submariner-operator", "get", "pods", "-l", "app=submariner-gateway",
				"--field-selector", "spec.nodeName="+first),
			"1/1",
		) {
			return fmt.Errorf("no gateway agent on %s yet", first)
		}
		return nil
	})
	s = startStream(t, from, to)
	kubectl(t, "cluster2", "label", "node", second, "submariner.io/gateway-")
	eventually(t, 30*time.Second, func() error {
		if h := holdings(t, second); strings.Contains("\n"+h, "\nvxlan-tunnel\n") ||
			strings.Contains(h, "SUBMARINER-GW-") {
			return fmt.Errorf("the former gateway is not swept: %s", h)
		}
		return nil
	})
	answers(t, from, to)
	l = s.stop(t)
	measure.Record(
		t,
		measure.AtMost("active gateway loses its label: traffic again after", measure.Values{l.LongestGapMs / 1000}, 2,
			"s"),
	)
	require.Less(t, l.LongestGapMs, 30000.0, "the other gateway takes over")
	elected(first)
	connected(t)
}

// Endpoints that nobody who may has signed, put on the broker by its administrator, are refused
// and reported, and do no harm.
func TestForgedEndpoint(t *testing.T) {
	hostile := func(name, subnet string) string {
		return fmt.Sprintf(`
apiVersion: submariner.io/v1
kind: Endpoint
metadata: {name: evil-submariner-cable-evil-%[1]s, namespace: submariner-k8s-broker, labels: {submariner-io/clusterID: evil}}
spec: {cluster_id: evil, cable_name: submariner-cable-evil-%[1]s, hostname: h, subnets: [%[2]q], private_ip: 10.100.9.9, public_ip: "", nat_enabled: false, backend: vxlan}
`, name, subnet)
	}
	apply(t, "cluster1", hostile("e0", "0.0.0.0/0")+"---"+hostile("e1", "10.112.0.0/16"))
	eventually(t, 20*time.Second, func() error {
		out, _ := sh("subctl", "show", "connections", "--contexts", strings.Join(clusters, ","))
		_, code := connections(t)
		refused := strings.Count(out, "Endpoint submariner-k8s-broker/evil-submariner-cable-evil-")
		if refused != 2*len(clusters) || code != 3 {
			return fmt.Errorf("want %d refusals and exit code 3, got %d and %d: %s", 2*len(clusters), refused, code,
				out)
		}
		return nil
	})
	flows(t, "cluster1", "cluster2")
	for _, n := range nodes("cluster1") {
		require.NotContains(t, holdings(t, n), "10.100.9.9")
	}
	kubectl(t, "cluster1", "-n", "submariner-k8s-broker", "delete", "endpoints.submariner.io",
		"evil-submariner-cable-evil-e0", "evil-submariner-cable-evil-e1")
	connected(t)
}
