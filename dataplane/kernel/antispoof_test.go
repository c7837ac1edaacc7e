//go:build linux

package kernel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"subctl/cable"
	"subctl/dataplane"
	"subctl/internal/nstest"

	"github.com/stretchr/testify/require"
	vnl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// antispoof returns a table with every kind of rule.
func antispoof() cable.Antispoof {
	return cable.Antispoof{
		Table:      "submariner-gateway-antispoof",
		VXLANPorts: []int{4502, 4503},
		InnerSources: []cable.InnerSource{
			{Outer: ip("172.18.0.3"), Net: cidr("10.1.0.0/16")},
			{Outer: ip("172.18.0.4"), Net: cidr("10.2.0.0/16")},
		},
		DecapDevices:    []string{"vxlan-tunnel", "subvx-*"},
		TransitPorts:    []int{4502, 4800},
		TunnelEndpoints: []netip.Prefix{cidr("172.18.0.2/32"), cidr("172.18.0.3/32")},
		DeviceNetworks:  []netip.Prefix{cidr("240.0.0.0/8"), cidr("244.0.0.0/6")},
		RemoteNetworks: []netip.Prefix{
			cidr("10.1.0.0/16"),
			cidr("10.2.0.0/16"),
		},
		RemoteDevices: []string{"vxlan-tunnel", "subvx-*"},
		CommonDevices: []string{"vxlan-tunnel"},
		AgentPorts:    dataplane.Range{Min: 32780, Max: 32783},
		ClosedDevices: []string{"vxlan-tunnel", "subvx-*"},
		Layer3Devices: []string{
			"vxlan-tunnel",
			"subvx-*",
		},
		OwnNetworks: []netip.Prefix{cidr("10.0.0.0/16"), cidr("10.8.0.0/14"), cidr("241.0.0.1/32")},
		PeerNetworks: []cable.PeerNet{
			{Net: cidr("10.1.0.0/16"), Peer: ip("242.0.0.3")},
			{Net: cidr("10.2.0.0/16"), Peer: ip("242.0.0.4")},
			{Net: cidr("242.0.0.3/32"), Peer: ip("242.0.0.3")},
		},
		IsolatedDevices: []string{"vxlan-tunnel", "subvx-*"},
		IntraDevices:    []string{"vx-submariner"},
		CableDevices:    []string{"vxlan-tunnel", "subvx-*"},
		Echoes: []cable.Echo{
			{Dev: "vxlan-tunnel", Port: 4505, Own: ip("241.0.0.1")},
			{Dev: "subvx-*", Port: 4505},
		},
		EchoPeers:   []netip.Addr{ip("241.0.0.3"), ip("241.0.0.4")},
		PingDevices: []string{"vxlan-tunnel", "subvx-*"},
		ClusterNetworks: []dataplane.ClusterNet{
			{Net: cidr("10.1.0.0/16"), Cluster: "west"},
			{Net: cidr("10.2.0.0/16"), Cluster: "north"},
			{Net: cidr("10.3.0.0/16")},
			{Net: cidr("172.18.0.3/32"), Cluster: "west"},
		},
	}
}

// tables returns the tables as objects.
func tables(a cable.Antispoof) (out []dataplane.Object) {
	for _, t := range a.Tables() {
		out = append(out, t)
	}
	return out
}

// nft lists the table as planned. Whatever another program does to it, Watch notices and one
// Sync repairs. In the end there is no table.
func TestAntispoof(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	want := state(t, tables(antispoof())...)
	require.Len(t, settle(t, ns, h, want), 2)
	require.Empty(t, dataplane.Diff(look(t, ns, h), want))
	rules := ns.Run("nft list table ip submariner-gateway-antispoof")
	require.Regexp(t,
		`(?s)hook prerouting priority -450; policy accept;.*iifname "vxlan-tunnel" counter .*iifname "subvx-\*" counter `,
		ns.Run("nft list table ip6 submariner-gateway-antispoof"))
	for _, line := range []string{ // what nft lists in another form than the plan, or hardly knows
		"type filter hook input priority filter - 10; policy accept;",
		"type filter hook prerouting priority -450; policy accept;",
		"type filter hook postrouting priority 300; policy accept;",
		"fib saddr . iif oif missing counter packets 0 bytes 0 drop comment \"forged-sender #",
		"@th,224,16 != 0x800 jump drop-source comment",
		"meta priority set ip saddr map @senders comment",
		"ip saddr . iif . @th,336,32 & 0xffff0000 @known16 accept comment",
		"meta priority . @th,336,32 & 0xffff0000 @sources16 add @known16 { ip saddr . iif . @th,336,32 & 0xffff0000 } comment",
		"meta priority . @th,192,32 & 0xffff0000 @sources16 return comment",
		"meta priority . ip saddr & 255.255.0.0 @sources16 accept comment",
		"meta priority . @th,192,32 & 0xffff0000 @peer-networks16 return comment",
		"add @forged { meta priority counter } comment",
		"update @echo-rates { ip saddr limit rate over 500/second burst 500 packets } counter packets 0 bytes 0 drop comment",
		"update @echo-rates-inside { meta priority limit rate over 500/second burst 500 packets } jump drop-forged comment",
		"@th,336,32 . @th,368,32 @echo-peers @th,240,8 0x45 @th,288,16 & 0x3fff == 0x0 @th,312,8 0x11 @th,416,16 0x1199 accept comment",
		`10.1.0.0/16 counter packets 0 bytes 0 comment "west"`,
		"10.1.0.0/16 : f200:3",
		"172.18.0.3 : ac12:3",
		"size 65535\n\t\tflags dynamic,timeout\n\t\ttimeout 1m",
	} {
		require.Contains(t, rules, line)
	}
	const table = "submariner-gateway-antispoof"
	signals := watch(t, ns, 10*time.Millisecond)
	for name, damage := range map[string]string{
		"table deleted": "nft delete table ip " + table,
		"table dormant": "nft 'add table ip " + table + " { flags dormant; }'",
		"rule deleted": "nft delete rule ip " + table + " vxlan-in handle $(nft -a list chain ip " + table +
			" vxlan-in | grep -o 'handle [0-9]*$' | tail -1 | cut -d' ' -f2)",
		"rule added":      "nft insert rule ip " + table + " input accept",
		"chain flushed":   "nft flush chain ip " + table + " vxlan-in",
		"all flushed":     "nft flush table ip " + table,
		"chain added":     "nft add chain ip " + table + " x",
		"policy drop":     "nft 'chain ip " + table + " input { policy drop; }'",
		"set flushed":     "nft flush set ip " + table + " tunnel-endpoints",
		"remote flushed":  "nft flush set ip " + table + " remote16",
		"remote added":    "nft 'add element ip " + table + " remote16 { 10.1.0.1 }'",
		"element added":   "nft 'add element ip " + table + " own { 10.3.0.0/16 }'",
		"odd element":     "nft 'add element ip " + table + " tunnel-endpoints { 10.3.0.0-10.4.0.7 }'",
		"source flushed":  "nft flush set ip " + table + " sources16",
		"source added":    "nft 'add element ip " + table + " sources16 { ac12:9 . 0x0a010000 }'",
		"senders flushed": "nft flush map ip " + table + " senders",
		"sender added":    "nft 'add element ip " + table + " senders { 172.18.0.9 : ac12:3 }'",
		"a sender's class": "nft 'delete element ip " + table + " senders { 172.18.0.4 }; add element ip " + table +
			" senders { 172.18.0.4 : ac12:3 }'",
		"echo flushed":  "nft flush set ip " + table + " echo-peers",
		"echo added":    "nft 'add element ip " + table + " echo-peers { 0xf1000009 . 0xf1000009 }'",
		"echo odd":      "nft 'add element ip " + table + " echo-peers { 0xf1000009 . 0xf1000008 }'",
		"peers flushed": "nft flush map ip " + table + " peers",
		"peer added":    "nft 'add element ip " + table + " peers { 10.9.0.0/16 : f200:3 }'",
		"peer odd":      "nft 'add element ip " + table + " peers { 10.9.0.1-10.9.1.7 : f200:3 }'",
		"network of a peer": "nft 'delete element ip " + table + " peers { 10.2.0.0/16 }; add element ip " + table +
			" peers { 10.2.0.0/16 : f200:3 }'",
		"network of a peer flushed": "nft flush set ip " + table + " peer-networks16",
		"network of a peer added":   "nft 'add element ip " + table + " peer-networks16 { f200:3 . 0x0a020000 }'",
		"clusters flushed":          "nft flush set ip " + table + " clusters",
		"cluster added":             "nft 'add element ip " + table + " clusters { 10.9.0.0/16 }'",
		"cluster odd":               "nft 'add element ip " + table + " clusters { 10.9.0.1-10.9.1.7 }'",
		"network of another": "nft 'delete element ip " + table + " clusters { 10.2.0.0/16 }; add element ip " +
			table + " clusters { 10.2.0.0/16 comment \"south\" }'",
		"IPv6 deleted":    "nft delete table ip6 " + table,
		"IPv6 dormant":    "nft 'add table ip6 " + table + " { flags dormant; }'",
		"IPv6 flushed":    "nft flush table ip6 " + table,
		"IPv6 rule added": "nft insert rule ip6 " + table + " decapsulated-ipv6 accept",
		"IPv6 only":       "nft delete table ip " + table,
		"set of a guest":  "nft 'add set ip " + table + " x { type ipv4_addr; }'",
	} {
		t.Run(name, func(t *testing.T) {
			calm(signals, 50*time.Millisecond)
			ns.Run(damage)
			require.NotEmpty(t, dataplane.Diff(look(t, ns, h), want), "Observe must see it")
			select {
			case <-signals:
			case <-time.After(10 * time.Second):
				require.Fail(t, "Watch did not notice")
			}
			require.NotEmpty(t, settle(t, ns, h, want))
			require.Empty(t, dataplane.Diff(look(t, ns, h), want))
		})
	}
	none := antispoof()
	none.DecapDevices = nil
	settle(t, ns, h, state(t, tables(none)...))
	require.NotContains(t, ns.Run("nft list tables"), "ip6")
	settle(t, ns, h, want)
	ns.Run("nft delete table ip " + table)
	settle(t, ns, h, nil)
	require.NotContains(t, ns.Run("nft list tables"), "submariner")
}

// On a node without IPv6 there is no table for it, and nothing to do.
func TestAntispoofWithoutIPv6(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	ns.Private("/proc/sys/net/ipv6") // which hides what is there
	want := state(t, tables(antispoof())...)
	settle(t, ns, h, want)
	require.Empty(t, settle(t, ns, h, want))
	require.NotContains(t, ns.Run("nft list tables"), "ip6")
	ns.Run("umount /proc/sys/net/ipv6")
	require.Len(t, settle(t, ns, h, want), 1, "it has come")
	require.Contains(t, ns.Run("nft list tables"), "ip6")
	settle(t, ns, h, nil)
	require.NotContains(t, ns.Run("nft list tables"), "submariner")
}

// Where nftables has no tables for IPv6, the node goes on without.
func TestAntispoofWithoutTablesOfIPv6(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	require.True(t, h.nft.TablesOfIPv6(), "this kernel has them")
	h.nft.TablesOfIPv6 = func() bool { return false }
	want := state(t, tables(antispoof())...)
	settle(t, ns, h, want)
	require.Empty(t, settle(t, ns, h, want))
	require.NotContains(t, ns.Run("nft list tables"), "ip6")
	settle(t, ns, h, nil)
	require.NotContains(t, ns.Run("nft list tables"), "submariner")
}

// Whatever happens to the table for IPv6, the other one stays: what the kernel has counted and
// remembers there, and what tells that a cluster has left.
func TestAntispoofKeepsItsTableWithoutIPv6(t *testing.T) {
	for name, damage := range map[string]string{
		"deleted": "nft delete table ip6 submariner-gateway-antispoof",
		"damaged": "nft insert rule ip6 submariner-gateway-antispoof decapsulated-ipv6 accept",
	} {
		t.Run(name, func(t *testing.T) {
			ns, h := node(t, dataplane.GatewayOwner)
			settle(t, ns, h, state(t, tables(antispoof())...))
			const table = "nft -a list table ip submariner-gateway-antispoof"
			before := ns.Run(table)
			ns.Run(damage)
			require.Len(t, settle(t, ns, h, state(t, tables(antispoof())...)), 1)
			require.Equal(t, before, ns.Run(table), "same handles")

			ns.Run(damage)
			left := antispoof()
			left.ClusterNetworks = left.ClusterNetworks[:1]
			left.Layer3Devices = left.Layer3Devices[:1]
			calls := 0
			h.flows.EndMatching = func(match func(original, reply dataplane.Flow) bool) error {
				calls++
				require.True(t, match(dataplane.Flow{Dst: netip.MustParseAddrPort("10.2.0.9:53")}, dataplane.Flow{}))
				return nil
			}
			require.Len(t, settle(t, ns, h, state(t, tables(left)...)), 2)
			require.Equal(t, 1, calls)
			require.Empty(t, settle(t, ns, h, state(t, tables(left)...)))
		})
	}
}

// Elements are added and removed singly: the rules and the other elements are there all the time.
func TestAntispoofChangesInPlace(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	a := antispoof()
	for i := range 3000 { // more than one message
		net := netip.PrefixFrom(netip.AddrFrom4([4]byte{20, byte(i >> 8), byte(i), 0}), 24)
		a.RemoteNetworks = append(a.RemoteNetworks, net)
		a.InnerSources = append(a.InnerSources,
			cable.InnerSource{Outer: netip.AddrFrom4([4]byte{192, 168, byte(i >> 8), byte(i)}), Net: net})
	}
	settle(t, ns, h, state(t, tables(a)...))
	chain := "nft -a list chain ip submariner-gateway-antispoof vxlan-in"
	before := ns.Run(chain)
	a.RemoteNetworks = a.RemoteNetworks[:len(a.RemoteNetworks)-1]
	a.InnerSources = a.InnerSources[:len(a.InnerSources)-1]
	require.Len(t, settle(t, ns, h, state(t, tables(a)...)), 1)
	require.Equal(t, before, ns.Run(chain), "same handles")
	t.Run("what is not read again is there", func(t *testing.T) {
		other := host(t, ns, dataplane.GatewayOwner) // has read nothing yet
		require.Empty(t, dataplane.Diff(look(t, ns, other), look(t, ns, h)))
		ns.Run("nft delete element ip submariner-gateway-antispoof remote24 '{ 20.0.7.0 }'")
		require.NotEmpty(t, dataplane.Diff(look(t, ns, h), state(t, tables(a)...)), "somebody else's change is seen")
		require.NotEmpty(t, settle(t, ns, h, state(t, tables(a)...)))
	})
	a.VXLANPorts = a.VXLANPorts[:1]
	require.Len(t, settle(t, ns, h, state(t, tables(a)...)), 1)
	require.Equal(t, before, ns.Run(chain), "rules that stay have the same handles")
}

// A table whose chains were created in another order than that of the rules is whole: it is changed
// in place, and not created anew, which would let forged packets that are under way pass.
func TestAntispoofChainsInAnyOrder(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	all := antispoof()
	few := all
	few.VXLANPorts = nil
	few.TransitPorts = nil
	few.RemoteNetworks = nil
	settle(t, ns, h, state(t, tables(few)...))
	require.Len(t, settle(t, ns, h, state(t, tables(all)...)), 2, "with a table for IPv6")
	require.Empty(t, settle(t, ns, h, state(t, tables(all)...)))
	const set = "nft -a list set ip submariner-gateway-antispoof own | grep -o 'set own.*handle.*'"
	before := ns.Run(set)
	require.Len(t, settle(t, ns, h, state(t, tables(few)...)), 2)
	require.Equal(t, before, ns.Run(set))
}

// The kernel remembers on which device the packets of a sender arrive, if it is the one that leads
// to the sender. Packets with the same source on other devices are dropped nevertheless, and if the
// route changes, packets on the new device are accepted at once. Addresses that send no cable's
// packets are not remembered.
func TestHostilePaths(t *testing.T) {
	const table = "submariner-gateway-antispoof"
	for name, a := range map[string]cable.Antispoof{
		"gateway": {
			Table:        table,
			VXLANPorts:   []int{4502},
			InnerSources: []cable.InnerSource{{Outer: ip("172.31.0.9"), Net: cidr("10.1.0.0/16")}},
		},
		"node": {
			Table:           table,
			VXLANPorts:      []int{4502},
			TransitPorts:    []int{4502},
			TunnelEndpoints: []netip.Prefix{cidr("172.31.0.9/32")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ways := "nft list set ip submariner-gateway-antispoof " +
				map[string]string{"gateway": "known16", "node": "known-paths"}[name]
			ns, h := node(t, dataplane.GatewayOwner)
			senders := map[string]*nstest.NS{}
			for i, dev := range []string{"up0", "up1"} {
				senders[dev] = nstest.New(t, dev)
				nstest.Join(nstest.End{NS: ns, Dev: dev, Addr: fmt.Sprintf("172.30.%d.1/24", i)},
					nstest.End{NS: senders[dev], Dev: "eth0", Addr: fmt.Sprintf("172.30.%d.2/24", i)})
				senders[dev].Run(fmt.Sprintf("ip route add 172.30.9.9 via 172.30.%d.1", i))
			}
			ns.Run(
				"ip addr add 172.30.9.9/32 dev lo; ip route add 172.31.0.0/24 dev up0; ip route add 172.32.0.0/24 dev up0")
			ns.Run(
				"nft 'table ip probe { chain in { type filter hook input priority 10; udp dport 4502 iifname up0 counter; udp dport 4502 iifname up1 counter; }; }'")
			settle(t, ns, h, state(t, tables(a)...))
			arrived := func(dev, src string) (packets string) {
				before := ns.Run("nft list chain ip probe in")
				inner := nstest.IPv4("10.1.0.9", "10.2.0.9", unix.IPPROTO_UDP, nstest.UDP(9, 9, nil))
				require.NoError(
					t,
					sendRaw(
						senders[dev],
						[][]byte{
							nstest.IPv4(src, "172.30.9.9", unix.IPPROTO_UDP,
								nstest.UDP(9, 4502, nstest.VXLAN(7, "02:00:00:00:00:01", inner))),
						},
					),
				)
				for range 15 { // on an idle machine, 20 ms are enough
					time.Sleep(20 * time.Millisecond)
					if ns.Run("nft list chain ip probe in") != before {
						return "one"
					}
				}
				return "none"
			}
			require.Equal(t, "none", arrived("up1", "172.31.0.9"))
			require.NotContains(t, ns.Run(ways), "elements")
			require.Equal(t, "one", arrived("up0", "172.31.0.9"))
			require.Contains(t, ns.Run(ways), `172.31.0.9 . "up0"`)
			require.Equal(t, "one", arrived("up0", "172.31.0.9"), "remembered")
			require.Equal(t, "none", arrived("up1", "172.31.0.9"), "from elsewhere")
			ns.Run("ip route replace 172.31.0.0/24 dev up1")
			require.Equal(t, "one", arrived("up1", "172.31.0.9"), "the route has changed")
			arrived("up0", "172.32.0.9")
			require.NotContains(t, ns.Run(ways), "172.32.0.9")
			require.Empty(t, settle(t, ns, h, state(t, tables(a)...)), "what the kernel remembers is no change")
			if name != "gateway" {
				return
			}
			require.Equal(t, "one", arrived("up1", "172.31.0.9"), "remembered")
			left := a
			left.InnerSources = []cable.InnerSource{{Outer: ip("172.31.0.9"), Net: cidr("10.7.0.0/16")}}
			require.Len(t, settle(t, ns, h, state(t, tables(left)...)), 1)
			require.Equal(t, "none", arrived("up1", "172.31.0.9"), "the network has left, and is not remembered")
			require.NotContains(t, ns.Run(ways), "elements")
		})
	}
}

// olderTable replaces the table by one of an older agent, whose set "inner" has intervals.
const olderTable = `nft -f - <<X
delete table ip submariner-gateway-antispoof
table ip submariner-gateway-antispoof {
	set inner { type ipv4_addr . ipv4_addr; flags interval; elements = { 172.30.0.2 . 10.9.0.2 }; }
	chain vxlan { fib saddr . iif oif missing drop comment "1/2 3 0123456789abcdef"; }
	chain input { type filter hook input priority -10; udp dport 4502 jump vxlan comment "1/2 3 0123456789abcdef"; }
}
X`

// The table of an older agent is replaced or removed, also if its set, of another type, has no
// elements, and the steps can be printed, as the agent prints them, although no plan has such
// elements.
func TestAntispoofOfOlderAgent(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	for _, change := range []string{"", "nft flush set ip submariner-gateway-antispoof inner"} {
		for _, want := range []dataplane.State{state(t, tables(antispoof())...), nil} {
			ns.Run("nft add table ip submariner-gateway-antispoof") // olderTable removes one
			ns.Run(olderTable)
			ns.Run(change)
			require.NotEmpty(t, look(t, ns, h).Sorted()[0].String())
			for _, op := range settle(t, ns, h, want) {
				require.NotEmpty(t, op.String())
			}
			require.Empty(t, settle(t, ns, h, want))
		}
	}
}

// Rules change under traffic, and no packet is dropped: until Linux 6.17 one transaction could drop
// some. With -short, as in the emulated machine, they change less often.
func TestAntispoofChangeUnderTraffic(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	other := nstest.New(t, "other")
	nstest.Join(nstest.End{NS: ns, Dev: "up0", Addr: "172.30.0.1/24"},
		nstest.End{NS: other, Dev: "up0", Addr: "172.30.0.2/24"})
	for i, n := range []*nstest.NS{ns, other} {
		n.Run(
			fmt.Sprintf(
				"ip link add vx address 02:00:00:00:00:0%[1]d type vxlan id 7 dstport 4502 remote 172.30.0.%[2]d dev up0; ip addr add 10.9.0.%[1]d/24 dev vx; "+
					// ARP is not IPv4, and so dropped
					"ip link set vx up; ip neigh replace 10.9.0.%[2]d lladdr 02:00:00:00:00:0%[2]d dev vx",
				1+i,
				2-i,
			),
		)
	}
	rounds := []cable.Antispoof{antispoof(), antispoof(), antispoof()}
	for i := range rounds {
		rounds[i].InnerSources = append(
			[]cable.InnerSource{{Outer: ip("172.30.0.2"), Net: cidr("10.9.0.2/32")}},
			rounds[i].InnerSources[i%2:]...)
		slices.SortFunc(rounds[i].InnerSources, cable.InnerSource.Compare)
	}
	rounds[1].VXLANPorts = []int{4502}
	rounds[1].OwnNetworks = nil
	rounds[1].Layer3Devices = nil                                                       // fewer chains, sets and rules
	rounds[2].RemoteNetworks = []netip.Prefix{cidr("10.1.0.0/17"), cidr("10.2.0.0/16")} // overlaps another
	rounds[2].RemoteDevices = []string{"vxlan-tunnel"}
	settle(t, ns, h, state(t, tables(rounds[2])...))
	ended := ns.Ping(200, "-I 10.9.0.1 10.9.0.2")
	turns := 150
	if testing.Short() {
		turns = 60
	}
	for i := range turns {
		if i%30 == 0 {
			ns.Run(olderTable)
		}
		require.NotEmpty(t, settle(t, ns, h, state(t, tables(rounds[i%3])...)))
	}
	sent, lost := ended()
	require.Greater(t, sent, 100)
	require.Zero(t, lost)
	other.Run("ip addr add 10.9.0.3/24 dev vx")
	_, err := other.Try("ping -c1 -W1 -I 10.9.0.3 10.9.0.1")
	require.Error(t, err, "the source inside is not one of the sender's")
}

// A table of another program with a similar name is neither seen nor removed.
func TestAntispoofOfOthers(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	ns.Run(
		"nft add table inet submariner-gateway-antispoof && nft add table ip submariner-gateway-antispoof2 && nft add table ip submariner-route-antispoof")
	before := ns.Run("nft list tables")
	require.Empty(t, look(t, ns, h))
	settle(t, ns, h, state(t, tables(antispoof())...))
	settle(t, ns, h, nil)
	require.Equal(t, before, ns.Run("nft list tables"))
}

// What cannot be done after the table has changed is tried again by the next Sync, and once only:
// connections of a network that has left are forgotten, also if the table is created anew
// meanwhile.
func TestAntispoofEndsFlowsLater(t *testing.T) {
	for name, meanwhile := range map[string]string{
		"":                     "true",
		"the table is deleted": "nft delete table ip submariner-gateway-antispoof",
	} {
		t.Run(name, func(t *testing.T) {
			ns, h := node(t, dataplane.GatewayOwner)
			settle(t, ns, h, state(t, tables(antispoof())...))
			for _, to := range []string{"10.1.0.5", "10.2.0.5"} {
				flow := &vnl.ConntrackFlow{
					FamilyType: unix.AF_INET, TimeOut: 600,
					Forward: vnl.IPTuple{
						Protocol: unix.IPPROTO_UDP,
						SrcIP:    net.ParseIP("10.0.0.5").To4(),
						DstIP:    net.ParseIP(to).To4(),
						SrcPort:  1000,
						DstPort:  53,
					},
					Reverse: vnl.IPTuple{
						Protocol: unix.IPPROTO_UDP,
						SrcIP:    net.ParseIP(to).To4(),
						DstIP:    net.ParseIP("10.0.0.5").To4(),
						SrcPort:  53,
						DstPort:  1000,
					},
				}
				ns.Do(func() { require.NoError(t, vnl.ConntrackCreate(vnl.ConntrackTable, unix.AF_INET, flow)) })
			}
			tracked := func() (to []string) {
				ns.Do(func() {
					all, err := vnl.ConntrackTableList(vnl.ConntrackTable, unix.AF_INET)
					require.NoError(t, err)
					for _, f := range all {
						if f.Forward.SrcIP.String() == "10.0.0.5" {
							to = append(to, f.Forward.DstIP.String())
						}
					}
				})
				slices.Sort(to)
				return to
			}
			left := antispoof()
			left.ClusterNetworks = left.ClusterNetworks[:1]
			end := h.flows.EndMatching
			calls := 0
			h.flows.EndMatching = func(func(original, reply dataplane.Flow) bool) error {
				return errors.New("the kernel has no memory")
			}
			ns.Do(func() {
				_, err := dataplane.Sync(t.Context(), h, state(t, tables(left)...))
				require.ErrorContains(t, err, "no memory")
			})
			require.Equal(t, []string{"10.1.0.5", "10.2.0.5"}, tracked())
			h.flows.EndMatching = func(match func(original, reply dataplane.Flow) bool) error {
				calls++
				return end(match)
			}
			ns.Run(meanwhile)
			settle(t, ns, h, state(t, tables(left)...))
			require.Equal(t, []string{"10.1.0.5"}, tracked())
			require.Empty(t, settle(t, ns, h, state(t, tables(left)...)))
			require.Equal(t, 1, calls)
		})
	}
}
