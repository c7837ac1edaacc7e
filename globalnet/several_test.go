package globalnet

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// With at least as many addresses as gateways, each gateway uses one; the shares differ by one at
// most.
func TestEachGatewayUsesAnAddress(t *testing.T) {
	for gateways := 1; gateways <= 8; gateways++ {
		for n := 0; n <= 20; n++ {
			var names []string
			for g := range gateways {
				names = append(names, fmt.Sprint("gw-", g))
			}
			var ips []netip.Addr
			for i := range n {
				ips = append(ips, netip.AddrFrom4([4]byte{242, 0, 0, byte(i + 1)}))
			}
			has := map[string]int{}
			for _, g := range assigned(names, ips) {
				has[g]++
			}
			for _, g := range names {
				require.GreaterOrEqual(t, has[g], n/gateways, "%d addresses, %d gateways", n, gateways)
				require.LessOrEqual(t, has[g], (n+gateways-1)/gateways)
			}
		}
	}
}
