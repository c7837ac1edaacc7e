package wireguard

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/cable"
	"subctl/dataplane"
)

// The device of wireguard-go ends with it, and the kernel removes the device of VXLAN inside it,
// and all routes through that. Packets then take another gateway of the cluster at once, without an
// agent; where there is none, they are dropped.
func TestDetourWithoutAnAgent(t *testing.T) {
	for name, siblings := range map[string][]cable.Node{
		"another gateway": {
			{Name: "standby", IP: netip.MustParseAddr("192.168.7.9"), Drain: cable.Standby},
			{Name: "active", IP: netip.MustParseAddr("192.168.7.8")},
		},
		"no other one": nil,
	} {
		t.Run(name, func(t *testing.T) {
			east, _, _ := newSides(t)
			east.gw.Run(
				"ip link add " + dataplane.IntraDevice +
					" type vxlan id 7 dstport 4800 && ip addr add 240.168.7.1/8 dev " + dataplane.IntraDevice +
					" && ip link set " + dataplane.IntraDevice + " up",
			)
			l := local(t, east.n)
			l.Pods = l.Subnets
			l.PodIP = netip.Addr{}
			l.PodIPMissing = true
			p := peer(t, 2)
			want, _, err := cable.Plan(cable.Cabling{
				Local:    l,
				Peers:    []cable.Cable{{Peer: p, Driver: Combined{}}},
				Siblings: map[string][]cable.Node{p.Cluster: siblings},
			})
			require.NoError(t, err)
			east.sync(t, want)
			way := func() string {
				out, _ := east.gw.Try("ip route get " + p.Subnets[0].Addr().Next().String())
				return out
			}
			require.Contains(t, way(), " dev "+dataplane.VXLANWireGuardDevice)
			east.gw.Run("ip link del " + dataplane.WireGuardDevice)
			if len(siblings) == 0 {
				require.NotContains(t, way(), " dev ", "never in clear text")
				return
			}
			require.Contains(t, way(), "via 240.168.7.8 dev "+dataplane.IntraDevice, "a gateway in service comes first")
		})
	}
}
