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
