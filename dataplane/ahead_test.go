package dataplane_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/dataplane"
)

// Before the kernel is read, a group loses the gateway that does not answer, or gets it back. Nothing else is changed then.
func TestAhead(t *testing.T) {
	first := dataplane.Nexthop{ID: 1, Via: netip.MustParseAddr("241.18.0.3"), Dev: device.Name}
	second := dataplane.Nexthop{ID: 2, Via: netip.MustParseAddr("241.18.0.4"), Dev: device.Name}
	moved := second
	moved.Via = netip.MustParseAddr("241.18.0.5")
	of := func(id uint32, hops ...dataplane.Nexthop) (g dataplane.Group) {
		g.ID = id
		for _, h := range hops {
			g.Members = append(g.Members, dataplane.Member{ID: h.ID, Weight: 1})
		}
		return g
	}
	resilient := of(9, first)
	resilient.Buckets = 1024
	to := func(dst string, group uint32) dataplane.Route {
		return dataplane.Route{Table: 100, Dst: netip.MustParsePrefix(dst), Group: group}
	}
	west, north := to("10.1.0.0/16", 9), to("10.2.0.0/16", 9)
	both, one := of(9, first, second), of(9, first)
	for name, test := range map[string]struct {
		held, want []dataplane.Object
		turns      bool
	}{
		"a gateway goes":                    {[]dataplane.Object{first, second, both, west}, []dataplane.Object{first, second, one, west}, true},
		"with its next hop":                 {[]dataplane.Object{first, second, both, west}, []dataplane.Object{first, one, west}, true},
		"and another route comes":           {[]dataplane.Object{first, second, both, west}, []dataplane.Object{first, second, one, west, north}, true},
		"a gateway returns":                 {[]dataplane.Object{first, second, one, west}, []dataplane.Object{first, second, both, west}, true},
		"a gateway is new":                  {[]dataplane.Object{first, one, west}, []dataplane.Object{first, second, both, west}, false},
		"a gateway has another address":     {[]dataplane.Object{first, second, one, west}, []dataplane.Object{first, moved, both, west}, false},
		"the group is new":                  {[]dataplane.Object{first}, []dataplane.Object{first, one, west}, false},
		"the group gets another type":       {[]dataplane.Object{first, second, both, west}, []dataplane.Object{first, second, resilient, west}, false},
		"a route that uses it goes":         {[]dataplane.Object{first, second, both, west, north}, []dataplane.Object{first, second, one, west}, false},
		"a route that uses it is to change": {[]dataplane.Object{first, second, both, west}, []dataplane.Object{first, second, one, of(10, second), to("10.1.0.0/16", 10)}, false},
		"nothing changes":                   {[]dataplane.Object{first, second, both, west}, []dataplane.Object{first, second, both, west}, false},
	} {
		t.Run(name, func(t *testing.T) {
			held, want := state(t, append(test.held, device, vtep, rule)...), state(t, append(test.want, device, vtep, rule)...)
			got := dataplane.Ahead(held.Grouped(), want)
			if !test.turns {
				require.Empty(t, got)
				return
			}
			g := one.Key()
			require.Equal(t, []dataplane.Op{{Old: held[g], New: want[g]}}, got)
		})
	}
}
