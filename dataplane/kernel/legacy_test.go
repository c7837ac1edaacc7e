//go:build linux

package kernel

import (
	"testing"

	"subctl/dataplane"

	"github.com/stretchr/testify/require"
)

// The legacy iptables, which does not use nftables, works as well.
func TestLegacyIPTables(t *testing.T) {
	oldIPTables(t)
	ns, h := node(t, dataplane.GatewayOwner)
	want := state(t, one()...)
	settle(t, ns, h, want)
	require.Equal(t, fingerprints(want), fingerprints(look(t, ns, h)))
	require.Empty(t, settle(t, ns, h, want))
	require.Contains(t, ns.Run("iptables-legacy-save"), "SUBMARINER-GW-FORWARD")
	require.NotContains(t, ns.Run("iptables-nft-save"), "SUBMARINER-GW-FORWARD")
	for _, damage := range []string{
		"iptables -t mangle -F SUBMARINER-GW-FORWARD",
		"iptables -t mangle -I FORWARD 1 -s 192.0.2.1 -j ACCEPT",
		"iptables -t mangle -D FORWARD -j SUBMARINER-GW-FORWARD",
		"iptables -t mangle -A INPUT -j SUBMARINER-GW-FORWARD",
	} {
		ns.Run(damage)
		require.Len(t, settle(t, ns, h, want), 1, damage)
		require.Empty(t, settle(t, ns, h, want))
	}
	settle(t, ns, h, nil)
	require.NotContains(t, ns.Run("iptables-legacy-save"), "SUBMARINER")
}
