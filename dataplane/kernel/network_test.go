//go:build linux

package kernel

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/dataplane"
	"subctl/dataplane/kernel/conntrack"
	"subctl/internal/nstest"
)

// A pod forwards nothing before it has its table, which a container that starts again finds.
func TestStopForwarding(t *testing.T) {
	ns := nstest.New(t, "pod")
	ns.Run("ip link add net0 type veth peer name net1")
	forwarding := func() string {
		return ns.Run("cat /proc/sys/net/ipv4/conf/net0/forwarding /proc/sys/net/ipv4/conf/net1/forwarding")
	}
	on := func() {
		ns.Run(
			"sysctl -qw net.ipv4.conf.net0.forwarding=1 net.ipv4.conf.net1.forwarding=1 net.ipv4.conf.net1.rp_filter=2")
	}
	stop := func() {
		ns.Do(func() { require.NoError(t, StopForwarding("ours")) })
	}
	on()
	stop()
	require.Equal(t, "0\n0\n", forwarding())
	require.Equal(t, "2\n", ns.Run("cat /proc/sys/net/ipv4/conf/net1/rp_filter"), "nothing else is changed")
	on()
	ns.Run("nft add table ip other")
	stop()
	require.Equal(t, "0\n0\n", forwarding())
	on()
	ns.Run("nft add table ip ours")
	stop()
	require.Equal(t, "1\n1\n", forwarding())
}

// Neighbours are read with their devices and states, and no more than asked for; what needs no
// resolution is left out.
func TestNeighbours(t *testing.T) {
	ns := nstest.New(t, "pod")
	ns.Run(
		"ip link add net0 type veth peer name net1 && ip link set net0 up && ip link set net1 up && ip addr add 192.0.2.1/24 dev net0")
	ns.Run(
		"ip neigh add 192.0.2.9 lladdr 02:00:00:00:00:09 dev net0 nud permanent && ip neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev net0 nud stale")
	ns.Run(
		"ip -6 neigh add fd00::2 lladdr 02:00:00:00:00:06 dev net1 nud permanent && ip neigh add 224.0.0.9 dev net0 nud noarp")
	want := []dataplane.NetNeighbour{
		{Dev: "net0", IP: netip.MustParseAddr("192.0.2.2"), MAC: "02:00:00:00:00:02", State: "stale"},
		{Dev: "net0", IP: netip.MustParseAddr("192.0.2.9"), MAC: "02:00:00:00:00:09", State: "permanent"},
		{Dev: "net1", IP: netip.MustParseAddr("fd00::2"), MAC: "02:00:00:00:00:06", State: "permanent"},
	}
	ns.Do(func() {
		got, err := Neighbours(100)
		require.NoError(t, err)
		require.Equal(t, want, got)
		got, err = Neighbours(2)
		require.NoError(t, err)
		require.Equal(t, want[:2], got)
	})
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

// Connections have the state of TCP, and counters once the pod forwards packets.
func TestConnectionsCount(t *testing.T) {
	ns := nstest.New(t, "pod")
	ns.Run("iptables -A OUTPUT -m conntrack --ctstate NEW") // tracks connections
	ns.Do(func() {
		require.NoError(t, Forward(nil))
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		c, err := net.Dial("tcp4", l.Addr().String())
		require.NoError(t, err)
		defer c.Close()
		all, err := conntrack.Connections(10)
		require.NoError(t, err)
		require.Len(t, all, 1)
		require.Equal(t, "tcp", all[0].Protocol)
		require.Equal(t, "ESTABLISHED", all[0].State)
		require.Equal(t, l.Addr().String(), all[0].Request.Dst.String())
		require.EqualValues(t, 2, all[0].Request.Packets, "SYN and ACK")
		require.EqualValues(t, 1, all[0].Response.Packets)
		require.NotZero(t, all[0].Request.Bytes)
		require.NotZero(t, all[0].Response.Bytes)
	})
}
