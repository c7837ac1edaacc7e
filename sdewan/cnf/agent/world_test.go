package agent

import (
	"net/netip"
	"testing"

	"subctl/dataplane"

	"github.com/stretchr/testify/require"
)

// The addresses that userspace ESP needs of networks behind the CNF are not the CNF's.
func TestStandInAddressesAreNotTheCNFs(t *testing.T) {
	a := New(Options{})
	w := a.look(dataplane.Network{Devices: []dataplane.NetDevice{
		{Name: "net0", Addrs: []netip.Prefix{netip.MustParsePrefix("10.30.0.254/24")}},
		{Name: dataplane.CNFStandInDevice, Addrs: []netip.Prefix{netip.MustParsePrefix("10.30.0.0/32")}},
	}})
	require.Len(t, w.Addrs, 1)
	require.Equal(t, "net0", w.Addrs[0].Device)
}
