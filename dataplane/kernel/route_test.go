//go:build linux

package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/dataplane"
)

// Routes with the same next hops and different MTUs, at the same time and one after the other, have
// their own each.
func TestRouteMTU(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	for _, mtus := range [][]int{{0, 0}, {1390, 0}, {0, 1390}, {1390, 1300}, {0, 0}} {
		objects := []dataplane.Object{
			dataplane.Nexthop{ID: 0x10000001, Via: ip("172.18.0.3"), Dev: "eth0"},
			dataplane.Group{ID: 0x1f000001, Members: []dataplane.Member{{ID: 0x10000001, Weight: 1}}},
		}
		for i, dst := range []string{"10.1.0.0/16", "10.2.0.0/16"} {
			objects = append(
				objects,
				dataplane.Route{
					Table: dataplane.CableTable,
					Dst:   cidr(dst),
					Group: 0x1f000001,
					Src:   ip("172.18.0.2"),
					MTU:   mtus[i],
				},
				dataplane.Detour{
					Table: dataplane.CableTable,
					Dst:   cidr(dst),
					Hop:   0x10000001,
					Src:   ip("172.18.0.2"),
					MTU:   mtus[1-i],
				},
			)
		}
		want := state(t, objects...)
		settle(t, ns, h, want)
		require.Equal(t, fingerprints(want), fingerprints(look(t, ns, h)), "MTUs %v", mtus)
	}
}
