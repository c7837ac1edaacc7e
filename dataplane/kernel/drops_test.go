//go:build linux

package kernel

import (
	"net/netip"
	"testing"

	"subctl/cable"
	"subctl/dataplane"
	"subctl/internal/nstest"

	"github.com/stretchr/testify/require"
)

// drops returns what h has counted.
func drops(t *testing.T, ns *nstest.NS, h *Host) (out map[string]uint64) {
	t.Helper()
	ns.Do(func() {
		var err error
		out, err = h.Drops()
		require.NoError(t, err)
	})
	return out
}

// Dropped packets count for the cluster of their source or, when they leave, of their destination,
// or for the cluster to which a route leads them. The counters go on when the rules and other
// clusters change.
func TestDrops(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	require.Empty(t, drops(t, ns, h), "there is no table")
	west := nstest.New(t, "west")
	other := nstest.New(t, "other")
	nstest.Join(nstest.End{NS: ns, Dev: "west0", Addr: "241.0.0.1/8"},
		nstest.End{NS: west, Dev: "eth0", Addr: "241.0.0.2/8"})
	nstest.Join(nstest.End{NS: ns, Dev: "north-1", Addr: "192.0.2.1/24"},
		nstest.End{NS: other, Dev: "eth0", Addr: "192.0.2.2/24"})
	for _, n := range []*nstest.NS{ns, west, other} {
		n.Run("sysctl -qw net.ipv4.ip_forward=1; for d in /proc/sys/net/ipv4/conf/*; do echo 0 >$d/rp_filter; done")
	}
	ns.Run(
		"ip addr add 10.0.0.1/32 dev lo; ip addr add 198.51.100.1/32 dev lo; ip route add 10.1.0.0/16 via 241.0.0.2; ip route add 10.2.0.0/16 dev north-1 via 192.0.2.2; ip route add 203.0.113.0/24 via 241.0.0.2")
	west.Run("ip addr add 10.1.0.1/32 dev lo; ip route add default via 241.0.0.1")
	other.Run("ip addr add 10.2.0.1/32 dev lo; ip route add default via 192.0.2.1")
	a := cable.Antispoof{
		Table: "submariner-gateway-antispoof", Layer3Devices: []string{"west0", "north-*"}, IsolatedDevices: []string{"west0", "north-*"},
		OwnNetworks: []netip.Prefix{cidr("10.0.0.0/16"), cidr("241.0.0.1/32")},
		ClusterNetworks: []dataplane.ClusterNet{
			{Net: cidr("10.1.0.0/16"), Cluster: "west"},
			{Net: cidr("10.2.0.0/16"), Cluster: "north"},
			{Net: cidr("241.0.0.2/32"), Cluster: "west"},
		},
	}
	settle(t, ns, h, state(t, tables(a)...))
	want := map[string]uint64{"west": 0, "north": 0}
	require.Equal(t, want, drops(t, ns, h))
	west.Run("ping -c1 -W2 -I 10.1.0.1 10.0.0.1") // what is allowed does not count
	require.Equal(t, want, drops(t, ns, h))

	dropped := func(cluster string, from *nstest.NS, options string) {
		t.Helper()
		_, err := from.Try("ping -c1 -W0.1 " + options)
		require.Error(t, err)
		want[cluster]++
		require.Equal(t, want, drops(t, ns, h), options)
	}
	dropped("west", west, "-I 10.1.0.1 10.2.0.1")      // another cluster
	dropped("north", other, "-I 10.2.0.1 10.1.0.1")    // the other way
	dropped("west", west, "-I 10.1.0.1 198.51.100.1")  // another address of the node
	dropped("west", west, "-I 10.1.0.1 203.0.113.7")   // the world, back through the same cable
	dropped("west", west, "-I 241.0.0.2 224.0.0.1")    // multicast
	dropped("west", west, "-I 241.0.0.2 198.51.100.1") // from the gateway itself
	dropped("north", ns, "-I 198.51.100.1 10.2.0.1")   // leaves with a source of nobody
	dropped("west", ns, "-I 198.51.100.1 203.0.113.7") // on a route by hand
	ns.Run(
		"iptables -t nat -A PREROUTING -d 10.0.0.9 -j DNAT --to-destination 10.2.0.1; iptables -t nat -A POSTROUTING -j MASQUERADE")
	dropped("west", west, "-I 10.1.0.1 10.0.0.9") // kube-proxy chooses a pod of another cluster

	// A host outside sends packets to another cluster's pod through the node, or uses a node port
	// for which kube-proxy chooses such a pod: only the port is one that this cluster offers. Pods
	// of this cluster reach the pod.
	lan := nstest.New(t, "lan")
	pods := nstest.New(t, "pods")
	nstest.Join(nstest.End{NS: ns, Dev: "lan0", Addr: "192.168.0.1/24"},
		nstest.End{NS: lan, Dev: "eth0", Addr: "192.168.0.2/24"})
	nstest.Join(nstest.End{NS: ns, Dev: "pods0", Addr: "10.0.5.1/24"},
		nstest.End{NS: pods, Dev: "eth0", Addr: "10.0.5.2/24"})
	lan.Run("ip route add default via 192.168.0.1")
	pods.Run("ip route add default via 10.0.5.1")
	ns.Run("iptables -t nat -A PREROUTING -d 198.51.100.9 -j DNAT --to-destination 10.1.0.1")
	lan.Run("ping -c1 -W2 198.51.100.9")
	a.LocalNetworks = []netip.Prefix{cidr("10.0.0.0/16")}
	settle(t, ns, h, state(t, tables(a)...))
	dropped("west", lan, "10.1.0.1")
	lan.Run("ping -c1 -W2 198.51.100.9")
	dropped("west", west, "-I 10.1.0.1 10.0.0.9")
	dropped("north", other, "-I 10.2.0.1 10.1.0.1")
	pods.Run("ping -c1 -W2 10.1.0.1")
	require.Equal(t, want, drops(t, ns, h))

	a.InnerSources = []cable.InnerSource{{Outer: ip("172.18.0.3"), Net: cidr("10.1.0.0/16")}}
	a.VXLANPorts = []int{4502}
	a.ClusterNetworks = append(a.ClusterNetworks, dataplane.ClusterNet{Net: cidr("241.0.0.3/32"), Cluster: "south"})
	settle(t, ns, h, state(t, tables(a)...))
	want["south"] = 0
	require.Equal(t, want, drops(t, ns, h))
}

// Where rp_filter is 1, the kernel drops what pods of another cluster send to the node beside the
// cables, once a cable leads to them. That is counted, until the setting that the message names is
// made.
func TestReversePathDrops(t *testing.T) {
	ns, h := node(t, dataplane.RouteOwner)
	read := func() (n uint64) {
		ns.Do(func() {
			reasons, err := h.DropReasons()
			require.NoError(t, err)
			n = reasons[dataplane.DropReversePath]
		})
		return n
	}
	other := nstest.New(t, "other")
	nstest.Join(nstest.End{NS: ns, Dev: "wan0", Addr: "192.0.2.1/24"},
		nstest.End{NS: other, Dev: "eth0", Addr: "192.0.2.2/24"})
	other.Run("ip addr add 10.1.0.1/32 dev lo")
	ns.Run(
		"ip route add 10.1.0.0/16 via 192.0.2.2; sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.wan0.rp_filter=1")
	other.Run("ping -c1 -W2 -I 10.1.0.1 192.0.2.1")
	require.Zero(t, read())

	ns.Run(
		"ip link add vx-test type veth peer name vx-peer; ip link set vx-test up; ip link set vx-peer up; ip route replace 10.1.0.0/16 dev vx-test")
	_, err := other.Try("ping -c1 -W0.1 -I 10.1.0.1 192.0.2.1")
	require.Error(t, err)
	require.EqualValues(t, 1, read())
	require.Contains(t, dataplane.DropReasons[dataplane.DropReversePath], "sysctl -w net.ipv4.conf.all.rp_filter=2")
	ns.Run("sysctl -qw net.ipv4.conf.all.rp_filter=2; ip route add 10.1.0.0/16 via 192.0.2.2 metric 2000")
	_, _ = other.Try("ping -c1 -W0.1 -I 10.1.0.1 192.0.2.1") // the answer takes the other device
	require.EqualValues(t, 1, read(), "nothing more is dropped")
}
