//go:build linux

package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/dataplane"
)

// When the device of a cable is removed, the kernel removes its routes, too: packets must not
// leave by the default route, in clear.
func TestNothingLeavesByAnotherWay(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	settle(t, ns, h, state(t, one()...))
	require.Contains(t, ns.Run("ip route get 10.1.0.1"), dataplane.VXLANDevice)
	ns.Run("ip link del " + dataplane.VXLANDevice)
	out, err := ns.Try("ip route get 10.1.0.1")
	require.Error(t, err, "it would leave by %s", out)
	settle(t, ns, h, dataplane.State{})
	require.Contains(t, ns.Run("ip route get 10.1.0.1"), "eth0", "uninstalled")
}

// Metric 0 stands for any metric in a message that removes a route. So the removal of a Route that
// is gone must not remove the Detour.
func TestRemovingARouteLeavesItsDetour(t *testing.T) {
	for name, goes := range map[string]string{
		"the route is gone":      "ip route del 10.1.0.0/16 table 170171100 metric 0",
		"its group is gone, too": "ip nexthop del id 520093697", // 0x1f000001
		"the route is there":     "true",
	} {
		t.Run(name, func(t *testing.T) {
			ns, h := node(t, dataplane.GatewayOwner)
			settle(t, ns, h, state(t, one()...))
			route := dataplane.Route{Table: dataplane.CableTable, Dst: cidr("10.1.0.0/16")}
			detour := dataplane.Detour{Table: dataplane.CableTable, Dst: route.Dst}
			held := look(t, ns, h)[route.Key()]
			require.NotNil(t, held)
			ns.Run(goes)
			ns.Do(func() { require.NoError(t, h.Apply(t.Context(), dataplane.Op{Old: held})) })
			now := look(t, ns, h)
			require.NotContains(t, now, route.Key())
			require.Contains(t, now, detour.Key())
			ns.Do(func() {
				require.NoError(t, h.Apply(t.Context(), dataplane.Op{Old: now[detour.Key()]}))
				require.NoError(t, h.Apply(t.Context(), dataplane.Op{Old: now[detour.Key()]}), "again")
			})
			require.NotContains(t, look(t, ns, h), detour.Key())
		})
	}
}
