package agent

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/dataplane"
)

// Two gateways have lost all cables to another cluster, and each believes that the cables of the
// other one work. So each sends the packets for that cluster to the other one, which drops them.
func TestDetoursMakeNoLoop(t *testing.T) {
	const between = 3 // packets of a ping
	for name, lose := range map[string]func(t *testing.T, east, west *side, i int){
		"the cables do not answer": func(t *testing.T, east, west *side, i int) {
			gw := east.names[i]
			down := role.Health{Status: submarinerv1.ConnectionError}
			east.nodes[gw].Run(fmt.Sprintf(`nft -f - <<X
table ip cut {
	chain in { type filter hook prerouting priority -400; udp dport %[1]d drop; }
	chain out { type filter hook output priority -400; udp dport %[1]d drop; }
}
X`, dataplane.VXLANPort))
			east.health[gw] = map[string]role.Health{west.cableOf(0) + " over vxlan-tunnel": down}
			if i == 0 {
				west.health["gw"] = map[string]role.Health{east.cableOf(0) + " over vxlan-tunnel": down}
			}
			east.sync(t, west)
			west.sync(t, east)
		},
		"their devices are gone, without an agent": func(t *testing.T, east, west *side, i int) {
			east.nodes[east.names[i]].Run("ip link del vxlan-tunnel")
			if i == 0 {
				west.health["gw"] = map[string]role.Health{
					east.cableOf(0) + " over vxlan-tunnel": {Status: submarinerv1.ConnectionError},
				}
			}
			west.sync(t, east)
		},
	} {
		t.Run(name, func(t *testing.T) {
			fabric := newFabric(t)
			east := twoGateways(t, fabric, 1, "east")
			west := newSide(t, fabric, 2, "west")
			east.sync(t, west)
			west.sync(t, east)
			for _, gw := range east.names[:2] {
				east.reports = append(east.reports, east.working(gw, west))
			}
			east.sync(t, west) // the detours need the devices between the nodes
			for i, gw := range east.names[:2] {
				_, sibling := cable.VTEP(dataplane.IntraVTEPNet,
					netip.MustParseAddr(east.endpointOf(1-i).Spec.PrivateIP))
				east.nodes[gw].Run(
					fmt.Sprintf(
						"nft 'table ip seen { counter hops { }; chain in { type filter hook prerouting priority -400; iifname %s ether saddr %s ip daddr 10.112.0.0/16 counter name hops; }; }'",
						dataplane.IntraDevice, sibling),
				)
			}
			hops := func() (n int) { // packets for the other cluster that the gateways have got from each other
				for _, gw := range east.names[:2] {
					packets, err := strconv.Atoi(
						regexp.MustCompile(
							`packets (\d+)`).FindStringSubmatch(east.nodes[gw].Run("nft list counter ip seen hops"))[1],
					)
					require.NoError(t, err)
					n += packets
				}
				return n
			}
			ping := func(from string) (hopped int, err error) {
				before := hops()
				_, err = east.pods[from].Try(fmt.Sprintf("ping -c%d -i0.01 -W1 %s", between, west.podIP("worker")))
				return hops() - before, err
			}
			lose(t, east, west, 0)
			n, err := ping("gw")
			require.NoError(t, err, "the other gateway still has a cable")
			require.Equal(t, between, n, "each packet takes the detour")
			n, err = ping("gw2")
			require.NoError(t, err)
			require.Zero(t, n)
			lose(t, east, west, 1)
			for _, from := range east.names {
				n, err := ping(from)
				require.Error(t, err)
				require.Equal(t, between, n, "from %s: each packet once", from)
			}
		})
	}
}
