//go:build linux

package kernel

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
	lan.Run("ip neigh replace 192.0.2.1 lladdr 02:00:00:00:00:09 dev eth0 nud reachable")
	_, err := lan.Try(ping)
	require.Error(t, err)
	pod.Do(func() {
		require.NoError(t, Announce("net0", ip("192.0.2.1")))
		require.NoError(t, Announce("net0", ip("192.0.2.3")))
		require.Error(t, Announce("net7", ip("192.0.2.1")))
		require.Error(t, Announce("lo", ip("192.0.2.1")))
		require.Error(t, Announce("net0", ip("fd00::1")))
	})
	lan.Run(ping)
	require.Empty(t, lan.Run("ip neigh show 192.0.2.3"))
}

// Only what neighbours find by ARP is to be announced: not on lo, on tunnels, or on devices with
// addresses that stand in.
func TestByARP(t *testing.T) {
	pod := nstest.New(t, "pod")
	pod.Run(`ip link add net0 type veth peer name net1 && ip link set net0 up && ip link set net1 up
ip addr add 192.0.2.1/24 dev net0 && ip addr add 192.0.2.2/24 dev net0 && ip addr add 198.51.100.1/32 dev net0 scope host && ip -6 addr add fd00::1/64 dev net0
ip addr add 192.0.2.9/32 dev lo
ip tuntap add tun0 mode tun && ip addr add 192.0.2.10/32 dev tun0
ip link add stand-in type dummy && ip addr add 192.0.2.11/32 dev stand-in
ip link set net1 arp off && ip addr add 192.0.2.12/24 dev net1`)
	pod.Do(func() {
		n, err := ReadNetwork()
		require.NoError(t, err)
		require.NotEmpty(t, n.Devices)
		for _, d := range n.Devices {
			require.Positive(t, d.Index, d.Name)
			want := []netip.Addr(nil)
			if d.Name == "net0" {
				want = []netip.Addr{ip("192.0.2.1"), ip("192.0.2.2")}
			}
			require.Equal(t, want, d.ARP, d.Name)
		}
	})
}
