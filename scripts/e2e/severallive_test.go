//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	submarinerv1 "subctl/api/submariner/v1"
)

// A cluster with two gateways and a worker has several active gateways, or one, and packets flow
// from and to each of its nodes. None is lost when that changes in either direction, when a node
// loses the label of gateway nodes and gets it back, and when it is drained of its pods.
func TestChangesWhilePacketsFlow(t *testing.T) {
	takesLong(t)
	s := newScene(t, 2)
	node := s.gateways[1]
	without := func(node string, pause time.Duration) func() {
		return func() {
			kubectl(t, "cluster1", "label", "node", node, "submariner.io/gateway-")
			connectedThrough(t, 1)
			time.Sleep(pause)
			kubectl(t, "cluster1", "label", "node", node, "submariner.io/gateway=true")
			connectedThrough(t, 2)
		}
	}
	for _, change := range []struct {
		what string
		make func()
	}{
		{"one active gateway, and two again", func() {
			setSeveral(t, false)
			setSeveral(t, true)
		}},
		{"a node loses its label, and gets it back at once", without(node, 0)},
		{
			"a node loses its label, and gets it back when it has no cables, and others may still know its Endpoint",
			without(node, 5*time.Second),
		},
		{"a node loses its label, and gets it back when it has forgotten its cables", without(node, 12*time.Second)},
		{"the speaker loses its label", func() { without(speaker(t, "cluster1"), 0)() }},
		{"kubectl drain, and uncordon", func() {
			kubectl(t, "cluster1", "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force",
				"--timeout", "60s")
			connectedThrough(t, 2)
			kubectl(t, "cluster1", "uncordon", node)
		}},
	} {
		t.Run(change.what, func(t *testing.T) {
			lossless(t, 3, func() map[string]lost {
				return s.everywhere(t, change.make)
			})
		})
	}
}

// speaker returns the node whose gateway exchanges objects with the broker for a cluster.
func speaker(t *testing.T, cluster string) string {
	t.Helper()
	holder := kubectl(t, cluster, "-n", "submariner-operator", "get", "lease", submarinerv1.GatewayLease, "-o",
		"jsonpath={.spec.holderIdentity}")
	i := slices.IndexFunc(gateways(t, cluster),
		func(node string) bool { return submarinerv1.LeaseHolder(node) == holder })
	require.GreaterOrEqual(t, i, 0, "the lease of %s is held by %q", cluster, holder)
	return gateways(t, cluster)[i]
}

// setSeveral changes whether all gateways of cluster1 are active, and waits until all clusters have
// followed.
func setSeveral(t *testing.T, all bool) {
	t.Helper()
	must(t, "subctl", "join", brokerFile, "--context", "cluster1", "--image", image,
		fmt.Sprintf("--multi-active-gateway=%v", all))
	connectedThrough(t, map[bool]int{true: 2, false: 1}[all])
}

// connectedThrough waits until cluster1 has so many active gateways, and all gateways are
// connected.
func connectedThrough(t *testing.T, active int) {
	t.Helper()
	eventually(t, time.Minute, func() error {
		if gws := gateways(t, "cluster1"); len(gws) != active {
			return fmt.Errorf("cluster1 has the gateways %v, not %d", gws, active)
		}
		return nil
	})
	allConnected(t)
}

// everywhere returns what a change costs packets from and to each node of cluster1, by the
// direction and the node.
func (s *scene) everywhere(t *testing.T, change func()) map[string]lost {
	t.Helper()
	all := streams{}
	for _, p := range pods(t, "cluster1", "web") {
		all["from "+p.node] = begin(t, p, s.to)
		all["to "+p.node] = begin(t, s.to, p)
	}
	for _, stream := range all {
		stream.comesBack(t)
	}
	change()
	out := all.stop(t)
	for _, name := range slices.Sorted(maps.Keys(out)) {
		if out[name].Lost > 0 {
			t.Logf("%s: %+v", name, out[name])
		}
	}
	require.Len(t, out, 6, "each node, in both directions")
	return out
}

// Connections to a Service with several pods are translated by the gateways of its cluster. If one
// of these is killed, each connection goes on or gets an error when its client sends something;
// none is left without either. Connections from pod to pod go on.
func TestTranslatingGatewayFails(t *testing.T) {
	takesLong(t)
	s := newScene(t, 2)
	s.connect(t, "vxlan")
	ended := 0
	for _, victim := range gateways(t, "cluster2") {
		ended += s.translatorFails(t, victim)
	}
	require.Positive(t, ended, "the gateways have translated something")
}

// translatorFails kills a gateway of cluster2, and returns how many connections to a Service have
// ended with an error.
func (s *scene) translatorFails(t *testing.T, victim string) (ended int) {
	t.Helper()
	for _, p := range pods(t, "cluster2", "web") { // the pod on the killed node dies with it
		kubectl(t, "cluster2", "label", "pod", p.name, fmt.Sprintf("lives=%v", p.node != victim), "--overwrite")
	}
	apply(
		t,
		"cluster2",
		`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "lives", "namespace": "default"}, "spec": {"selector": {"lives": "true"}, "ports": [
		{"name": "udp", "port": 7, "protocol": "UDP"}, {"name": "tcp", "port": 7, "protocol": "TCP"}]}}`,
	)
	all := startFlows(t, s.inside, 0, s.to.ip+":7", serviceIP(t, "cluster2", "lives")+":7")
	time.Sleep(time.Second)
	killNode(t, s, victim)
	defer reviveNode(t, s, victim)
	time.Sleep(3 * time.Second)
	for _, c := range all.stop(t).TCP {
		switch toPod := strings.HasPrefix(c.Target, s.to.ip); {
		case toPod:
			require.Empty(t, c.Err, "from pod to pod, idle: %v", c.Idle)
		case c.Err != "":
			require.NotContains(t, c.Err, os.ErrDeadlineExceeded.Error(), "idle: %v", c.Idle)
			ended++
		}
	}
	t.Logf("%s: %d connections to the Service ended with an error", victim, ended)
	return ended
}
