package agent

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/agent/mesh"
	"subctl/agent/roles"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/dataplane"
	"subctl/internal/nstest"
)

// One of two active gateways has no WireGuard, which the cables need; then it is the other one. All
// nodes reach the other cluster nevertheless, and are reached: what they send to that gateway goes
// through the other one.
func TestGatewaysWithDifferentEngines(t *testing.T) {
	fabric := newFabric(t)
	east := newCrew(t, fabric, 1, "east", cable.VXLANWireGuard)
	west := newCrew(t, fabric, 2, "west", cable.VXLANWireGuard)
	east.both()
	has := map[string]dataplane.Engine{}
	for _, gw := range east.names[:east.gateways] {
		has[gw] = east.facts[gw].WireGuard
	}
	for lacks, other := range map[string]string{"gw": "gw2", "gw2": "gw"} {
		t.Run(lacks+" has no WireGuard", func(t *testing.T) {
			for gw, engine := range has {
				f := east.facts[gw]
				if f.WireGuard = engine; gw == lacks {
					f.WireGuard = dataplane.Engine{Missing: "the wireguard kernel module"}
				}
				east.facts[gw] = f
			}
			for start := time.Now(); !works(east, other, west.gateways) || !works(west, "gw", 1); {
				require.Less(t, time.Since(start), time.Minute, "east %q, west %q", east.cables(), west.cables())
				east.pass(t, west)
				west.pass(t, east)
			}
			east.pass(t, west) // the gateways know what the others have reported
			require.Empty(t, mesh.PlanOf(east.plans[[2]string{lacks, roles.Gateway().Name}]).Installed)
			known := mesh.PlanOf(east.plans[[2]string{other, roles.Gateway().Name}]).Mesh
			mtu := known.Cables.Wanted[0].MTU(known.Offer.Local)
			before := handed(t, east, lacks)
			for i, node := range east.names {
				a := nstest.Host{NS: east.pods[node], IP: east.podIP(node)}
				b := nstest.Host{NS: west.pods[west.names[i]], IP: west.podIP(west.names[i])}
				nstest.Reach(t, a, b, mtu)
				nstest.Reach(t, b, a, mtu)
			}
			require.Greater(t, handed(t, east, lacks), before, "workers use both gateways")
		})
	}
}

// works reports whether a gateway has as many cables that work, to gateways that can have one.
func works(c *crew, gw string, want int) bool {
	n := 0
	if g := c.reported[gw]; g != nil {
		for _, conn := range g.Status.Connections {
			if conn.Status == submarinerv1.Connected && conn.Driver == c.driver {
				n++
			}
		}
	}
	return n == want
}

// handed returns the number of packets of workers that a gateway has handed to another one since
// the first call.
func handed(t *testing.T, c *crew, gw string) int {
	t.Helper()
	return detoured(t, c.nodes[gw], "! -d 240.0.0.0/8")
}

// detoured returns the number of packets that match which a gateway has got over the VXLAN between
// nodes and sent back over it, since the first call.
func detoured(t *testing.T, node *nstest.NS, match string) int {
	t.Helper()
	rule := "FORWARD -i vx-submariner -o vx-submariner " + match + " -m comment --comment detoured"
	n, err := strconv.Atoi(strings.TrimSpace(node.Run("iptables -t mangle -C " + rule + " 2>/dev/null || " +
		"iptables -t mangle -A " + rule + "; iptables -t mangle -nvxL FORWARD | awk '/detoured/ {print $1}'")))
	require.NoError(t, err)
	return n
}
