//go:build linux

package kernel

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"subctl/dataplane"
	"subctl/internal/nstest"

	"github.com/stretchr/testify/require"
	vnl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
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

// Dropped packets count for the cluster of their source or, when they leave, of their destination, or for the
// cluster to which a route leads them. The counters go on when the rules and other clusters change.
func TestDrops(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	require.Empty(t, drops(t, ns, h), "there is no table")
	west, other := nstest.New(t, "west"), nstest.New(t, "other")
	nstest.Join(nstest.End{NS: ns, Dev: "west0", Addr: "241.0.0.1/8"}, nstest.End{NS: west, Dev: "eth0", Addr: "241.0.0.2/8"})
	nstest.Join(nstest.End{NS: ns, Dev: "north-1", Addr: "192.0.2.1/24"}, nstest.End{NS: other, Dev: "eth0", Addr: "192.0.2.2/24"})
	for _, n := range []*nstest.NS{ns, west, other} {
		n.Run("sysctl -qw net.ipv4.ip_forward=1; for d in /proc/sys/net/ipv4/conf/*; do echo 0 >$d/rp_filter; done")
	}
	ns.Run("ip addr add 10.0.0.1/32 dev lo; ip addr add 198.51.100.1/32 dev lo; ip route add 10.1.0.0/16 via 241.0.0.2; ip route add 10.2.0.0/16 dev north-1 via 192.0.2.2; ip route add 203.0.113.0/24 via 241.0.0.2")
	west.Run("ip addr add 10.1.0.1/32 dev lo; ip route add default via 241.0.0.1")
	other.Run("ip addr add 10.2.0.1/32 dev lo; ip route add default via 192.0.2.1")
	a := dataplane.Antispoof{
		Table: "submariner-gateway-antispoof", Out: []string{"west0", "north-*"}, Apart: []string{"west0", "north-*"},
		Own:      []netip.Prefix{cidr("10.0.0.0/16"), cidr("241.0.0.1/32")},
		Clusters: []dataplane.ClusterNet{{Net: cidr("10.1.0.0/16"), Cluster: "west"}, {Net: cidr("10.2.0.0/16"), Cluster: "north"}, {Net: cidr("241.0.0.2/32"), Cluster: "west"}},
	}
	settle(t, ns, h, state(t, a))
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
	ns.Run("iptables -t nat -A PREROUTING -d 10.0.0.9 -j DNAT --to-destination 10.2.0.1; iptables -t nat -A POSTROUTING -j MASQUERADE")
	dropped("west", west, "-I 10.1.0.1 10.0.0.9") // kube-proxy chooses a pod of another cluster

	// Somebody outside, such as a pod of another cluster through a node port, for which kube-proxy chooses a pod of another cluster, with the
	// address of the cable's device as source. Pods of this cluster reach it.
	lan, pods := nstest.New(t, "lan"), nstest.New(t, "pods")
	nstest.Join(nstest.End{NS: ns, Dev: "lan0", Addr: "192.168.0.1/24"}, nstest.End{NS: lan, Dev: "eth0", Addr: "192.168.0.2/24"})
	nstest.Join(nstest.End{NS: ns, Dev: "pods0", Addr: "10.0.5.1/24"}, nstest.End{NS: pods, Dev: "eth0", Addr: "10.0.5.2/24"})
	lan.Run("ip route add default via 192.168.0.1")
	pods.Run("ip route add default via 10.0.5.1")
	ns.Run("iptables -t nat -A PREROUTING -d 198.51.100.9 -j DNAT --to-destination 10.1.0.1")
	lan.Run("ping -c1 -W2 198.51.100.9")
	a.Local = []netip.Prefix{cidr("10.0.0.0/16")}
	settle(t, ns, h, state(t, a))
	dropped("west", lan, "198.51.100.9")
	dropped("west", west, "-I 10.1.0.1 10.0.0.9")
	dropped("north", other, "-I 10.2.0.1 10.1.0.1")
	pods.Run("ping -c1 -W2 10.1.0.1")
	require.Equal(t, want, drops(t, ns, h))

	a.Inner, a.Ports = []dataplane.InnerSource{{Outer: ip("172.18.0.3"), Net: cidr("10.1.0.0/16")}}, []int{4502}
	a.Clusters = append(a.Clusters, dataplane.ClusterNet{Net: cidr("241.0.0.3/32"), Cluster: "south"})
	settle(t, ns, h, state(t, a))
	want["south"] = 0
	require.Equal(t, want, drops(t, ns, h))
}

// The conntrack entries of a cluster that leaves, and of one that comes, are deleted on every change of the
// table, and no others.
func TestFlowsEnd(t *testing.T) {
	ns, h := node(t, dataplane.RouteOwner)
	ns.Run("ip addr add 192.0.2.1/24 dev lo; iptables -A OUTPUT -m conntrack --ctstate NEW") // tracks connections
	for _, n := range []string{"10.1.0.5", "10.2.0.5", "10.3.0.5"} {
		ns.Run("ip addr add " + n + "/32 dev lo")
	}
	flows := func() (out []string) {
		ns.Do(func() {
			all, err := vnl.ConntrackTableList(vnl.ConntrackTable, unix.AF_INET)
			require.NoError(t, err)
			for _, f := range all {
				out = append(out, strings.TrimSuffix(f.Forward.DstIP.String(), ".0.5"))
			}
		})
		return out
	}
	open := func() {
		ns.Do(func() {
			for i := 1; i <= 3; i++ {
				c, err := net.DialTimeout("udp4", fmt.Sprintf("10.%d.0.5:9", i), time.Second)
				require.NoError(t, err)
				_, err = c.Write([]byte("x"))
				require.NoError(t, err)
				require.NoError(t, c.Close())
			}
		})
		require.Subset(t, flows(), []string{"10.1", "10.2", "10.3"})
	}
	table := func(nets ...dataplane.ClusterNet) dataplane.State {
		return state(t, dataplane.Antispoof{Table: "submariner-route-antispoof", Apart: []string{dataplane.IntraDevice}, Clusters: nets})
	}
	west, north, south := dataplane.ClusterNet{Net: cidr("10.1.0.0/16"), Cluster: "west"}, dataplane.ClusterNet{Net: cidr("10.2.0.0/16"), Cluster: "north"}, dataplane.ClusterNet{Net: cidr("10.2.0.0/16"), Cluster: "south"}
	for _, c := range []struct {
		name       string
		have, want []dataplane.ClusterNet
		ends       []string
	}{
		{"nothing changes", []dataplane.ClusterNet{west}, []dataplane.ClusterNet{west}, nil},
		{"one leaves", []dataplane.ClusterNet{west, north}, []dataplane.ClusterNet{west}, []string{"10.2"}},
		{"the last leaves", []dataplane.ClusterNet{west}, nil, []string{"10.1"}},
		{"one comes", []dataplane.ClusterNet{west}, []dataplane.ClusterNet{west, south}, []string{"10.2"}},
		{"one takes the network of another", []dataplane.ClusterNet{west, north}, []dataplane.ClusterNet{west, south}, []string{"10.2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			settle(t, ns, h, table(c.have...))
			open()
			settle(t, ns, h, table(c.want...))
			for _, n := range []string{"10.1", "10.2", "10.3"} {
				ends := strings.Contains(strings.Join(c.ends, " "), n)
				require.Equal(t, !ends, strings.Contains(strings.Join(flows(), " "), n), "%s ends: %v", n, ends)
			}
		})
	}
	t.Run("the table was deleted by hand", func(t *testing.T) {
		settle(t, ns, h, table(west))
		open()
		ns.Run("nft delete table ip submariner-route-antispoof")
		settle(t, ns, h, table(west))
		require.Subset(t, flows(), []string{"10.1", "10.2", "10.3"})
	})
}
