//go:build linux

package probe

import (
	"net/netip"
	"testing"

	"subctl/internal/nstest"

	"github.com/stretchr/testify/require"
)

// A neighbour that knows another MAC address uses the announced one at once, and one that knows
// none does not note it.
func TestAnnounce(t *testing.T) {
	pod := nstest.New(t, "pod")
	lan := nstest.New(t, "lan")
	nstest.Join(nstest.End{NS: pod, Dev: "net0", Addr: "192.0.2.1/24"},
		nstest.End{NS: lan, Dev: "eth0", Addr: "192.0.2.2/24"})
	pod.Run("ip addr add 192.0.2.3/24 dev net0")
	const ping = "ping -c1 -W1 192.0.2.1"
	// Neighbours ignore ARP for so long after the last change of an entry: by default 1 s, which
	// the failing ping below also takes.
	lan.Run("sysctl -qw net.ipv4.neigh.eth0.locktime=0")
	lan.Run("ip neigh replace 192.0.2.1 lladdr 02:00:00:00:00:09 dev eth0 nud reachable")
	_, err := lan.Try(ping)
	require.Error(t, err)
	pod.Do(func() {
		require.NoError(t, Announce("net0", netip.MustParseAddr("192.0.2.1")))
		require.NoError(t, Announce("net0", netip.MustParseAddr("192.0.2.3")))
		require.Error(t, Announce("net7", netip.MustParseAddr("192.0.2.1")))
		require.Error(t, Announce("lo", netip.MustParseAddr("192.0.2.1")))
		require.Error(t, Announce("net0", netip.MustParseAddr("fd00::1")))
	})
	lan.Run(ping)
	require.Empty(t, lan.Run("ip neigh show 192.0.2.3"))
}
