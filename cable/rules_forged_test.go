package cable

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/dataplane"
)

// Few networks are compared one by one, many are looked up in a set. There is a lookup for each
// mask inside VXLAN packets, and one comparison for packets that the node forwards elsewhere.
func TestAntispoofRules(t *testing.T) {
	nets := func(n int) (out []netip.Prefix) {
		for i := range n {
			out = append(out, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i)}), 16))
		}
		return out
	}
	outer := netip.MustParseAddr("192.0.2.1")
	p := netip.MustParsePrefix
	inner := func(nets ...string) (out []InnerSource) {
		for _, n := range nets {
			out = append(out, InnerSource{Outer: outer, Net: p(n)})
		}
		return out
	}
	way := []string{
		"reverse-path ip saddr . iif @known-paths accept", "reverse-path fib saddr . iif oif missing counter drop",
		"reverse-path add @known-paths { ip saddr . iif }", "reverse-path accept",
	}
	for _, test := range []struct {
		name  string
		table Antispoof
		rules []string
	}{
		{
			"few remote networks",
			Antispoof{RemoteNetworks: nets(2), RemoteDevices: []string{"a", "b"}, CommonDevices: []string{"b"}},
			[]string{
				"prerouting ip saddr 10.0.0.0/16 jump from-remote", "prerouting ip saddr 10.1.0.0/16 jump from-remote",
				`from-remote iifname "b" accept`, `from-remote iifname != "a" iifname != "b" jump drop-wrong-device`,
				"drop-wrong-device counter drop",
			},
		},
		{
			"few remote networks, to protected ones",
			Antispoof{
				RemoteNetworks: nets(1), RemoteDevices: []string{"a", "b"}, ProtectedNetworks: []netip.Prefix{p("10.96.0.0/12"), p("11.0.0.0/16")},
			},
			[]string{
				"prerouting ip saddr 10.0.0.0/16 jump from-remote", `from-remote iifname != "a" iifname != "b" jump wrong-device`,
				"wrong-device ip daddr 10.96.0.0/12 jump drop-wrong-device", "wrong-device ip daddr 11.0.0.0/16 jump drop-wrong-device",
				"drop-wrong-device counter drop",
			},
		},
		{
			"many remote networks",
			Antispoof{RemoteNetworks: nets(5), RemoteDevices: []string{"a", "b"}, CommonDevices: []string{"b"}},
			[]string{
				"prerouting ip saddr != 10.0.0.0/13 accept", `prerouting iifname "b" accept`,
				"prerouting ip saddr & 255.255.0.0 @remote16 jump from-remote",
				`from-remote iifname != "a" iifname != "b" jump drop-wrong-device`, "drop-wrong-device counter drop",
			},
		},
		{"many remote networks, and pods next to them", Antispoof{
			RemoteNetworks: nets(5),
			RemoteDevices:  []string{"a"},
			PodNetworks:    []netip.Prefix{p("10.5.0.0/16"), p("10.4.128.0/17")},
			IntraDevices:   []string{"a"},
			CableDevices:   []string{"b"},
		}, []string{
			`forward iifname "a" jump from-siblings`,
			"from-siblings ip saddr 10.5.0.0/16 return",
			"from-siblings ip saddr != 10.0.0.0/13 return",
			"from-siblings ip saddr & 255.255.0.0 @remote16 jump no-transit",
			`no-transit oifname "b" jump drop-source`,
			"prerouting ip saddr 10.5.0.0/16 accept",
			"prerouting ip saddr != 10.0.0.0/13 accept",
			"prerouting ip saddr & 255.255.0.0 @remote16 jump from-remote",
			`from-remote iifname != "a" jump drop-wrong-device`,
			"drop-source counter drop",
			"drop-wrong-device counter drop",
		}},
		{
			"remote networks with nothing in common",
			Antispoof{
				RemoteNetworks: append(nets(5), p("192.168.0.0/16")),
				RemoteDevices:  []string{"a", "b"},
				CommonDevices:  []string{"b"},
			},
			[]string{
				"prerouting ip saddr & 255.255.0.0 @remote16 jump from-remote", `from-remote iifname "b" accept`,
				`from-remote iifname != "a" iifname != "b" jump drop-wrong-device`, "drop-wrong-device counter drop",
			},
		},
		{
			"remote networks with many masks",
			Antispoof{
				RemoteNetworks: append(nets(5), p("11.0.0.0/8"), p("12.0.0.0/9"), p("13.0.0.0/10"), p("14.0.0.0/11")),
				RemoteDevices:  []string{"a", "b"},
				CommonDevices:  []string{"b"},
			},
			[]string{
				"prerouting ip saddr != 8.0.0.0/5 accept", `prerouting iifname "b" accept`,
				"prerouting ip saddr @remote jump from-remote", `from-remote iifname != "a" iifname != "b" jump drop-wrong-device`,
				"drop-wrong-device counter drop",
			},
		},
		{
			"closed ports",
			Antispoof{
				AgentPorts:     dataplane.Range{Min: 1, Max: 2},
				ClosedDevices:  []string{"a", "b*"},
				RemoteNetworks: nets(1),
				DeviceNetworks: []netip.Prefix{p("240.0.0.0/8"), p("241.0.0.0/8")},
			},
			[]string{
				"forward ip daddr 240.0.0.0/7 jump device-networks", "device-networks ip daddr 240.0.0.0/8 counter drop",
				"device-networks ip daddr 241.0.0.0/8 counter drop",
				"input tcp dport 1-2 jump agent-ports", "agent-ports ct direction reply tcp flags & (syn | ack) != syn return",
				"agent-ports ip saddr 240.0.0.0/7 counter drop",
				"agent-ports ip saddr & 255.255.0.0 @remote16 counter drop",
				`agent-ports iifname "a" counter drop`, `agent-ports iifname "b*" counter drop`,
			},
		},
		{"answers to pings", Antispoof{PingDevices: []string{"a", "b*"}, DeviceNetworks: nets(1)}, []string{
			"forward ip daddr 10.0.0.0/16 jump device-networks", "device-networks ip daddr 10.0.0.0/16 counter drop",
			"input icmp type echo-reply jump echo-replies", "echo-replies ct state invalid counter drop",
			`echo-replies ip saddr 10.0.0.0/16 iifname != "lo" iifname != "a" iifname != "b*" counter drop`,
			"echo-replies update @echo-rates { ip saddr limit rate over 500/second burst 500 packets } counter drop",
		}},
		{"many own networks", Antispoof{OwnNetworks: append(nets(5), p("11.0.0.0/8")), Layer3Devices: []string{"a"}}, []string{
			`prerouting iifname "a" ip daddr != 11.0.0.0/8 ip daddr != 10.0.0.0/16 ip daddr != 10.1.0.0/16 ip daddr != 10.2.0.0/16 ip daddr != @own jump drop-source`,
			`postrouting oifname "a" ip saddr != 11.0.0.0/8 ip saddr != 10.0.0.0/16 ip saddr != 10.1.0.0/16 ip saddr != 10.2.0.0/16 ip saddr != @own jump drop-destination`,
			"drop-source counter drop", "drop-destination counter drop",
		}},
		{
			"isolated devices",
			Antispoof{
				IsolatedDevices: []string{"a", "b*"},
				ClusterNetworks: []dataplane.ClusterNet{{Net: p("10.0.0.0/16"), Cluster: "c"}},
			},
			[]string{
				`forward iifname "a" jump from-cables`,
				`forward iifname "b*" jump from-cables`,
				`from-cables oifname "a" jump drop-source`,
				`from-cables oifname "b*" jump drop-source`,
				"drop-source ip saddr @clusters counter drop",
				"drop-source counter drop",
			},
		},
		{"isolated devices, except from local networks", Antispoof{
			IsolatedDevices: []string{"a"}, LocalNetworks: nets(1), IntraDevices: []string{"n"},
			ClusterNetworks: []dataplane.ClusterNet{{Net: p("10.9.0.0/16"), Cluster: "c"}},
		}, []string{
			`forward ip saddr != 10.0.0.0/16 oifname "a" jump to-cables`, `to-cables iifname "a" jump drop-source`,
			"to-cables ct direction reply return",
			"to-cables ip saddr @clusters counter drop", `to-cables ct status dnat iifname != "n" return`,
			"to-cables jump drop-destination",
			"drop-source ip saddr @clusters counter drop", "drop-source counter drop",
			"drop-destination ip daddr @clusters counter drop",
			"drop-destination rt ip nexthop @clusters counter drop", "drop-destination counter drop",
		}},
		{"one isolated device", Antispoof{IsolatedDevices: []string{"a"}}, []string{
			`forward iifname "a" oifname "a" jump drop-source`, "drop-source counter drop",
		}},
		{"one isolated device, with global networks", Antispoof{IsolatedDevices: []string{"a"}, GlobalNetworks: nets(1)}, []string{
			`forward iifname "a" jump from-cables`, `from-cables oifname "a" jump drop-source`,
			"from-cables ip daddr 10.0.0.0/16 jump drop-source", "drop-source counter drop",
		}},
		{
			"isolated devices, with global networks and other gateways",
			Antispoof{IsolatedDevices: []string{"a"}, GlobalNetworks: nets(1), IntraDevices: []string{"b"}},
			[]string{
				`forward iifname "a" jump from-cables`,
				`from-cables oifname "a" jump drop-source`,
				`from-cables ip daddr 10.0.0.0/16 ct direction reply oifname "b" return`,
				`forward ip daddr 10.0.0.0/16 iifname "b" jump drop-source`,
				"from-cables ip daddr 10.0.0.0/16 jump drop-source",
				"drop-source counter drop",
			},
		},
		{
			"masks",
			Antispoof{VXLANPorts: []int{1}, InnerSources: inner("10.0.0.1/32", "10.1.0.0/16", "10.2.0.0/16")},
			append([]string{
				"input udp dport 1 jump vxlan-in",
				"vxlan-in @th,224,16 != 0x0800 jump drop-source",
				"vxlan-in meta priority set 0:0",
				"vxlan-in meta priority set ip saddr map @senders",
				"vxlan-in ip saddr . iif . @th,336,32 & 0xffff0000 @known16 accept",
				"vxlan-in meta priority . @th,336,32 & 0xffff0000 @sources16 fib saddr . iif oif missing counter drop",
				"vxlan-in meta priority . @th,336,32 & 0xffff0000 @sources16 add @known16 { ip saddr . iif . @th,336,32 & 0xffff0000 }",
				"vxlan-in meta priority . @th,336,32 & 0xffff0000 @sources16 accept",
				"vxlan-in meta priority . @th,336,32 @sources32 jump reverse-path",
				"vxlan-in jump drop-source",
			}, append(way, "drop-source counter drop")...),
		},
		{"destinations inside", Antispoof{
			VXLANPorts:      []int{1},
			InnerSources:    inner("10.0.0.1/32"),
			OwnNetworks:     append(nets(1), p("11.0.0.0/12"), p("241.0.0.2/32")),
			PodNetworks:     nets(1),
			EchoPeers:       []netip.Addr{netip.MustParseAddr("241.0.0.3")},
			Echoes:          []Echo{{Dev: "a", Port: 2, Own: netip.MustParseAddr("241.0.0.2")}},
			ClusterNetworks: []dataplane.ClusterNet{{Net: p("10.9.0.0/16"), Cluster: "c"}},
		}, append([]string{
			"output udp dport 1 @th,336,16 != 0x0a00 @th,336,32 & 0xfff00000 != 0x0b000000 @th,336,32 != 0xf1000002 jump vxlan-out",
			"input udp dport 1 jump vxlan-in", "vxlan-in @th,224,16 != 0x0800 jump drop-source",
			"vxlan-in meta priority set 0:0",
			"vxlan-in meta priority set ip saddr map @senders",
			"vxlan-in meta priority . @th,336,32 @sources32 jump reverse-path", "vxlan-in jump drop-source",
		}, append(way, `drop-source iifname "a" udp dport 2 ip daddr 241.0.0.0/8 @nh,96,32 . @nh,128,32 @echo-peers accept`,
			"drop-source ip saddr @clusters counter drop", "drop-source counter drop",
			"vxlan-out @th,336,32 . @th,368,32 @echo-peers @th,240,8 0x45 @th,288,16 & 0x3fff == 0 @th,312,8 17 @th,416,16 2 accept",
			"vxlan-out ip saddr set ip daddr ip daddr set @th,368,32",
			"vxlan-out ip daddr @clusters counter drop", "vxlan-out ip saddr @clusters counter drop",
			"vxlan-out counter drop")...)},
		{
			"ICMP errors",
			Antispoof{
				Layer3Devices: []string{"a", "b"},
				PeerNetworks: []PeerNet{
					{Net: p("10.1.0.0/16"), Peer: outer},
					{Net: p("11.0.0.0/8"), Peer: outer},
					{Net: p("12.0.0.0/16"), Peer: outer.Next()},
				},
			},
			[]string{
				"prerouting ip protocol icmp jump any-icmp",
				"any-icmp icmp type 3-5 jump icmp-errors",
				"any-icmp icmp type 11-12 jump icmp-errors",
				`icmp-errors iifname != "a" iifname != "b" return`,
				"icmp-errors meta priority set 0:0",
				"icmp-errors meta priority set ip saddr map @peers",
				"icmp-errors meta priority . @th,192,32 & 0xff000000 @peer-networks8 return",
				"icmp-errors meta priority . @th,192,32 & 0xffff0000 @peer-networks16 return",
				"icmp-errors jump drop-source",
				"drop-source counter drop",
			},
		},
		{
			"any source inside",
			Antispoof{VXLANPorts: []int{1}},
			append([]string{"input udp dport 1 jump reverse-path"}, way...),
		},
		{"any source inside, of known senders", Antispoof{VXLANPorts: []int{1}, TunnelEndpoints: nets(1)}, []string{
			"input udp dport 1 jump reverse-path", way[0], way[1], "reverse-path ip saddr @tunnel-endpoints add @known-paths { ip saddr . iif }", way[3],
		}},
		{
			"networks next to each other",
			Antispoof{DeviceNetworks: []netip.Prefix{p("241.0.0.0/8"), p("244.0.0.0/6")}},
			[]string{
				"forward ip daddr 240.0.0.0/5 jump device-networks", "device-networks ip daddr 241.0.0.0/8 counter drop",
				"device-networks ip daddr 244.0.0.0/6 counter drop",
			},
		},
		{
			"networks with nothing in common",
			Antispoof{DeviceNetworks: []netip.Prefix{p("10.0.0.0/8"), p("244.0.0.0/6")}},
			[]string{
				"forward jump device-networks", "device-networks ip daddr 10.0.0.0/8 counter drop",
				"device-networks ip daddr 244.0.0.0/6 counter drop",
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var rules []string
			for _, c := range test.table.Tables()[0].Chains {
				if checksDecapsulated(c.Name) { // see TestAntispoofDecapsulated
					continue
				}
				for _, r := range c.Rules {
					rules = append(rules, c.Name+" "+r.Text)
				}
			}
			slices.SortStableFunc(test.rules, func(a, b string) int { // by chain, as a table has them
				x, _, _ := strings.Cut(a, " ")
				y, _, _ := strings.Cut(b, " ")
				return strings.Compare(x, y)
			})
			require.Equal(t, test.rules, rules)
		})
	}
}

// checksDecapsulated reports whether a chain has rules for packets that were inside VXLAN packets.
func checksDecapsulated(chain string) bool {
	return strings.HasPrefix(chain, "decapsulated") || strings.HasPrefix(chain, "only-") || chain == "drop-forged"
}

// Packets that VXLAN packets have contained are checked once more, with the sender as their
// priority. The node's own echoes are limited there only.
func TestAntispoofDecapsulated(t *testing.T) {
	p := netip.MustParsePrefix
	ip := netip.MustParseAddr
	table := Antispoof{
		VXLANPorts: []int{
			1,
		},
		InnerSources: []InnerSource{
			{Outer: ip("192.0.2.1"), Net: p("10.1.0.0/16")},
			{Outer: ip("192.0.2.1"), Net: p("241.0.0.3/32")},
		},
		DecapDevices: []string{
			"a",
			"b*",
		},
		OwnNetworks: []netip.Prefix{p("10.0.0.0/16"), p("241.0.0.2/32")},
		EchoPeers:   []netip.Addr{ip("241.0.0.3")},
		Echoes: []Echo{
			{Dev: "a", Port: 2, Own: ip("241.0.0.2")},
		},
		ClusterNetworks: []dataplane.ClusterNet{{Net: p("10.9.0.0/16"), Cluster: "c"}},
	}
	var rules []string
	tables := table.Tables()
	for _, c := range slices.Concat(tables[1].Chains, tables[0].Chains) {
		for _, r := range c.Rules {
			if checksDecapsulated(c.Name) {
				rules = append(rules, c.Name+" "+r.Text)
			}
			require.False(t, strings.Contains(r.Text, "limit") && c.Name == "vxlan-in")
		}
	}
	require.Equal(t, []string{
		`decapsulated-ipv6 iifname "a" counter drop`,
		`decapsulated-ipv6 iifname "b*" counter drop`,
		`decapsulated iifname != "a" iifname != "b*" accept`,
		"decapsulated ip protocol icmp jump decapsulated-icmp",
		"decapsulated ip saddr 241.0.0.2 jump only-own-echoes",
		"decapsulated ip daddr != 10.0.0.0/16 ip daddr != 241.0.0.2/32 ip daddr != @own jump only-peer-echoes",
		"decapsulated meta priority . @nh,96,32 & 0xffff0000 @sources16 accept",
		"decapsulated meta priority . @nh,96,32 @sources32 accept",
		"decapsulated jump drop-forged",
		"decapsulated-errors icmp type redirect @th,192,32 0xf1000002 counter drop",
		"decapsulated-errors @th,192,32 0xf1000002 jump drop-forged",
		"decapsulated-errors meta priority . @th,192,32 & 0xffff0000 @sources16 return",
		"decapsulated-errors meta priority . @th,192,32 @sources32 return",
		"decapsulated-errors jump drop-forged",
		"decapsulated-icmp ip frag-off & 0x1fff != 0 return",
		"decapsulated-icmp icmp type 3-5 jump decapsulated-errors",
		"decapsulated-icmp icmp type 11-12 jump decapsulated-errors",
		"drop-forged add @forged { meta priority counter }",
		"drop-forged counter drop",
		"only-own-echoes ip saddr 241.0.0.2 update @echo-rates-inside { meta priority limit rate over 500/second burst 500 packets } jump drop-forged",
		"only-own-echoes ip saddr 241.0.0.2 ip daddr 241.0.0.2 udp dport 2 return",
		"only-own-echoes jump drop-forged",
		"only-peer-echoes @nh,96,32 . @nh,128,32 @echo-peers udp dport 2 return",
		"only-peer-echoes jump drop-forged",
	}, rules)
}

// Every rule that drops packets has a reason, except for the redirects about a node's own echoes.
func TestAntispoofDropReasons(t *testing.T) {
	ip := netip.MustParseAddr("192.0.2.1")
	p := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
	on := []string{"a"}
	table := Antispoof{
		VXLANPorts: []int{1}, InnerSources: []InnerSource{{Outer: ip, Net: p[0]}}, DecapDevices: on,
		TransitPorts: []int{2}, TunnelEndpoints: p, DeviceNetworks: p, RemoteNetworks: p, RemoteDevices: on,
		AgentPorts: dataplane.Range{Min: 3, Max: 4}, ClosedDevices: on, Layer3Devices: on, OwnNetworks: p,
		IsolatedDevices: on, LocalNetworks: p, GlobalNetworks: p, IntraDevices: on, CableDevices: on, PingDevices: on,
		PeerNetworks:    []PeerNet{{Net: p[0], Peer: ip}},
		ClusterNetworks: []dataplane.ClusterNet{{Net: p[0], Cluster: "c"}},
		Echoes:          []Echo{{Dev: "a", Port: 5, Own: ip}},
	}
	silent := 0
	for _, table := range table.Tables() {
		for _, c := range table.Chains {
			for _, r := range c.Rules {
				switch drops := strings.HasSuffix(r.Text, "drop"); {
				case drops && r.Note == "":
					silent++
				case drops:
					require.NotEmpty(t, dataplane.DropReasons[r.Note], r.Text)
				default:
					require.Empty(t, r.Note)
				}
			}
		}
	}
	require.Equal(t, 1, silent)
}
