//go:build linux

package kernel

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"subctl/dataplane"
	"subctl/internal/nstest"

	"github.com/stretchr/testify/require"
)

func readFacts(t *testing.T, ns *nstest.NS) (f dataplane.Facts) {
	t.Helper()
	ns.Do(func() {
		var err error
		f, err = ReadFacts()
		require.NoError(t, err)
	})
	f.WireGuard = dataplane.Engine{}
	f.IPsec = dataplane.Engine{} // tested where they are used
	f.Resolvers = nil
	f.Resilient = false // of the machine
	f.HashPolicy = nil  // see TestHashPolicy
	require.Regexp(t, `^[0-9a-f-]{36}$`, f.BootID)
	f.BootID = ""
	return f
}

func TestFacts(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	settle(t, ns, h, state(t, one()...)) // our own devices are no facts
	ns.Run("ip link set eth0 mtu 1400")
	want := dataplane.Facts{
		Device: "eth0", MTU: 1400, PrivateIP: ip("172.18.0.2"),
		Addrs:    []dataplane.HostAddr{{Dev: "eth0", MTU: 1400, Prefix: cidr("172.18.0.2/24")}},
		OwnAddrs: []netip.Addr{ip("241.18.0.2"), ip("244.18.0.2")},
		Networks: []dataplane.HostNetwork{{Dev: "eth0", Prefix: cidr("172.18.0.0/24")}},
		Routers:  []netip.Addr{ip("172.18.0.1")},
	}
	require.Equal(t, want, readFacts(t, ns))

	ns.Run("ip addr add 192.0.2.9/24 dev eth1 && ip addr add 10.99.0.1/32 dev lo")
	ns.Run("ip route add default via 192.0.2.1 dev eth1 metric 50") // the other one has metric 0
	want.Addrs = append(want.Addrs, dataplane.HostAddr{Dev: "eth1", MTU: 1500, Prefix: cidr("192.0.2.9/24")})
	want.Networks = append(want.Networks, dataplane.HostNetwork{Dev: "eth1", Prefix: cidr("192.0.2.0/24")})
	want.Routers = append(want.Routers, ip("192.0.2.1"))
	require.Equal(t, want, readFacts(t, ns))

	ns.Run("ip route del default via 172.18.0.1")
	want.Routers = want.Routers[1:]
	want.Device = "eth1"
	want.MTU = 1500
	want.PrivateIP = ip("192.0.2.9")
	require.Equal(t, want, readFacts(t, ns))

	ns.Run(
		"ip link add subvx-3000 type vxlan id 3000 dstport 4502 && ip link add subvx-2000 type vxlan id 2000 dstport 4502")
	require.Equal(t, want, readFacts(t, ns))

	ns.Run("ip route flush default")
	require.Equal(t, dataplane.Facts{Addrs: want.Addrs, OwnAddrs: want.OwnAddrs, Networks: want.Networks},
		readFacts(t, ns), "no default route")
}

// A node has cables if it has the rule that leads to them, whether or not there are any now.
func TestFactsCables(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	require.True(t, readFacts(t, ns).NoCableRule)
	ns.Run("ip rule add pref 100 lookup 200 && ip rule add pref 99 lookup 100")
	require.True(t, readFacts(t, ns).NoCableRule, "rules of another program")
	settle(t, ns, h, state(t, dataplane.Rule{Priority: dataplane.CablePriority, Table: dataplane.CableTable}))
	require.False(t, readFacts(t, ns).NoCableRule)
	settle(t, ns, h, dataplane.State{})
	require.True(t, readFacts(t, ns).NoCableRule)
}

// A network need not be that of an address, and default routes may have several routers.
func TestFactsNetworks(t *testing.T) {
	ns := nstest.New(t, "node")
	ns.Run(
		"ip link set lo up && ip link add eth0 type veth peer name eth1 && ip link set eth1 up && ip link set eth0 up")
	ns.Run(
		"ip addr add 172.18.0.2/24 dev eth0 noprefixroute && ip addr add 10.0.0.7/32 dev eth1 && ip addr add 10.99.0.1/32 dev lo")
	ns.Run(
		"ip route add 192.0.2.0/28 dev eth1 && ip route add 172.18.0.1 dev eth0 && ip route add 203.0.113.0/24 via 172.18.0.1 && ip route add blackhole 198.51.100.0/24")
	ns.Run(
		"ip route add default nexthop via 172.18.0.1 dev eth0 nexthop via 192.0.2.1 dev eth1 && ip route add default via 192.0.2.2 metric 9")
	f := readFacts(t, ns)
	require.Equal(t, []dataplane.HostNetwork{
		{
			Dev:    "eth0",
			Prefix: cidr("172.18.0.0/24"),
		},
		{Dev: "eth0", Prefix: cidr("172.18.0.1/32")},
		{Dev: "eth1", Prefix: cidr("10.0.0.7/32")},
		{Dev: "eth1", Prefix: cidr("192.0.2.0/28")},
	}, f.Networks)
	require.Equal(t, []netip.Addr{ip("172.18.0.1"), ip("192.0.2.1"), ip("192.0.2.2")}, f.Routers)
}

func TestReadResolvers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	got, err := readResolvers(path)
	require.NoError(t, err)
	require.Empty(t, got)
	text := "# nameserver 192.0.2.1\nsearch example\nnameserver 203.0.113.53\n nameserver 192.0.2.53 # second\nnameserver 127.0.0.53\nnameserver ::1\nnameserver x\nnameserver\n"
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	got, err = readResolvers(path)
	require.NoError(t, err)
	require.Equal(t, []netip.Addr{ip("192.0.2.53"), ip("203.0.113.53")}, got)
}

// If the device has several addresses, PrivateIP is the source address of packets.
func TestFactsPrivateIP(t *testing.T) {
	for name, c := range map[string]struct{ setup, want string }{
		"the gateway's network": {
			"ip addr add 10.5.0.1/24 dev eth0 && ip addr add 172.18.0.2/24 dev eth0 && ip route add default via 172.18.0.1",
			"172.18.0.2",
		},
		"the route's source": {
			"ip addr add 172.18.0.2/24 dev eth0 && ip addr add 172.18.0.7/24 dev eth0 && ip route add default via 172.18.0.1 src 172.18.0.7",
			"172.18.0.7",
		},
		"the first": {
			"ip addr add 172.18.0.7/24 dev eth0 && ip addr add 172.18.0.2/24 dev eth0 && ip route add default dev eth0",
			"172.18.0.7",
		},
		"multipath": {"ip addr add 172.18.0.2/24 dev eth0 && ip addr add 192.0.2.1/24 dev eth1 && " +
			"ip route add default nexthop via 172.18.0.1 dev eth0 nexthop via 192.0.2.9 dev eth1", "172.18.0.2"},
	} {
		t.Run(name, func(t *testing.T) {
			ns := nstest.New(t, "node")
			ns.Run(
				"ip link add eth0 type veth peer name eth1 && ip link set eth1 up && ip link set eth0 up && " + c.setup)
			f := readFacts(t, ns)
			require.Equal(t, ip(c.want), f.PrivateIP)
			require.Equal(t, "eth0", f.Device)
			if name != "multipath" { // there the kernel chooses at random
				require.Contains(t, ns.Run("ip route get 203.0.113.1"), " src "+c.want+" ", "the kernel must agree")
			}
		})
	}
}

// Check agrees with ip.
func TestCheck(t *testing.T) {
	ns := nstest.New(t, "node")
	_, err := ns.Try("ip nexthop list")
	ns.Do(func() { require.Equal(t, err == nil, Check() == nil) })
}

// The policy is that of the network namespace.
func TestHashPolicy(t *testing.T) {
	ns := nstest.New(t, "node")
	for _, want := range []int{0, 1} {
		ns.Run(fmt.Sprintf("sysctl -qw net.ipv4.fib_multipath_hash_policy=%d", want))
		ns.Do(func() {
			f, err := ReadFacts()
			require.NoError(t, err)
			require.Equal(t, &want, f.HashPolicy)
		})
	}
}
