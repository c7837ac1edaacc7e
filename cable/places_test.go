package cable

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A driver connects to as many gateways of a cluster as it declares, the first ones, however
// often these ask.
func TestPlaces(t *testing.T) {
	few := claimant{optioned: optioned{name: WireGuard}, max: 2}
	p := NewPlaces([]Driver{few, testCombined})
	to := func(cluster string, n int, d Driver) Cable {
		return Cable{Peer: Peer{Gateway: Gateway{Cluster: cluster, Name: fmt.Sprintf("gw-%d", n)}}, Driver: d}
	}
	for range 2 {
		require.NoError(t, p.Take(to("west", 1, few)))
		require.NoError(t, p.Take(to("west", 2, few)))
		require.EqualError(t, p.Take(to("west", 3, few)),
			"wireguard connects to 2 gateways of cluster west (gw-1, gw-2): use vxlan+wireguard, which connects to all of them")
	}
	require.NoError(t, p.Take(to("east", 3, few)), "of another cluster")
	require.NoError(t, p.Take(to("west", 3, testCombined)), "a driver without a limit")
}
