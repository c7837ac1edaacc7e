package agent

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
)

// Clusters with two gateways and with four reach each other from all nodes, through all gateways;
// also when one of the four does not answer any more.
func TestTwoAndFourGateways(t *testing.T) {
	fabric := newFabric(t)
	few := newSideOf(t, fabric, 1, "east", 2, "gw", "gw2", "worker")
	many := newSideOf(t, fabric, 2, "west", 4, "gw", "gw2", "gw3", "gw4", "worker")
	sync := func() int { return few.sync(t, many) + many.sync(t, few) }
	everywhere := func(others []string) {
		t.Helper()
		for i, other := range others {
			reach(t, few, few.names[i%3], many, other)
			reach(t, many, other, few, few.names[(i+1)%3])
			reach(t, few, "worker", many, other)
		}
	}
	sync()
	require.Zero(t, sync(), "the second sync must find nothing to do")
	everywhere(many.names)
	for _, gw := range few.names[:2] {
		require.Equal(t, 4, membersOf(few, gw), "gateway %s sends to all gateways of the other cluster", gw)
	}
	for _, gw := range many.names[:4] {
		require.Equal(t, 2, membersOf(many, gw), "gateway %s sends to all gateways of the other cluster", gw)
		require.NotEqual(t, "0", sent(many.nodes[gw]), "gateway %s carries something", gw)
	}
	down := role.Health{Status: submarinerv1.ConnectionError}
	for _, gw := range few.names[:2] {
		few.health[gw] = map[string]role.Health{many.cableOf(3) + " over vxlan-tunnel": down}
	}
	for _, node := range many.names {
		many.health[node] = map[string]role.Health{"gateway/gw4": down}
	}
	sync()
	before := sent(many.nodes["gw4"])
	everywhere([]string{"gw", "gw2", "gw3", "worker"})
	for _, gw := range few.names[:2] {
		require.Equal(t, 3, membersOf(few, gw), "gateway %s", gw)
	}
	require.Equal(t, before, sent(many.nodes["gw4"]), "nobody uses the gateway that does not answer")
}

// membersOf returns the number of gateways of the other cluster to which a gateway sends.
func membersOf(s *side, gw string) int {
	vias := map[string]bool{}
	for line := range strings.Lines(s.nodes[gw].Run("ip route show table 170171100 | grep 'dev vxlan-tunnel'")) {
		_, rest, _ := strings.Cut(line, " via ")
		vias[strings.Fields(rest)[0]] = true
	}
	return len(vias)
}
