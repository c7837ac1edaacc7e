package agent

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
)

// On kernels without next hop objects, routes have the next hops themselves. Pods of clusters with
// one and with two active gateways reach each other, a gateway that does not answer is left out,
// and connections to Services return through the gateway that translated them.
func TestWithoutNextHopObjects(t *testing.T) {
	fabric := newFabric(t)
	east := twoGateways(t, fabric, 1, "east")
	west := newSide(t, fabric, 2, "west")
	east.noNexthops = true
	west.noNexthops = true
	sync := func() int { return east.sync(t, west) + west.sync(t, east) }
	sync()
	require.Zero(t, sync(), "the second sync must find nothing to do")
	all := func() {
		t.Helper()
		for _, from := range east.names {
			for _, to := range west.names {
				reach(t, east, from, west, to)
				reach(t, west, to, east, from)
			}
		}
	}
	all()
	require.Empty(t, west.nodes["gw"].Run("ip nexthop"))
	toWorker := func() int {
		return strings.Count(east.nodes["worker"].Run("ip route show table 170171150"), "nexthop via")
	}
	require.NotZero(t, strings.Count(west.nodes["gw"].Run("ip route show table 170171100"), "nexthop via"),
		"several next hops")
	both := toWorker()
	require.NotZero(t, both)

	east.health["worker"] = map[string]role.Health{"gateway/gw2": {Status: submarinerv1.ConnectionError}}
	west.health["gw"] = map[string]role.Health{
		east.cableOf(1) + " over vxlan-tunnel": {Status: submarinerv1.ConnectionError},
	}
	sync()
	require.Zero(t, sync())
	require.Zero(t, strings.Count(west.nodes["gw"].Run("ip route show table 170171100"), "nexthop via"))
	require.Less(t, toWorker(), both)
	all()

	t.Log("routes that somebody has changed")
	west.nodes["gw"].Run("ip route show table 170171100 | grep -v blackhole | while read dst rest; do ip route del " +
		"table 170171100 $dst; done")
	require.NotZero(t, sync())
	require.Zero(t, sync())
	reach(t, west, "worker", east, "worker")

	t.Log("as if the kernel had changed, without a reboot")
	for _, older := range []bool{false, true} {
		east.noNexthops = older
		west.noNexthops = older
		sync()
		require.Zero(t, sync())
		reach(t, west, "worker", east, "worker")
		reach(t, east, "worker", west, "gw")
	}
	east.leave(t)
	west.leave(t)
}
