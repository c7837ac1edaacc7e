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
		"way ip saddr . iif @ways accept", "way fib saddr . iif oif missing counter drop",
		"way add @ways { ip saddr . iif }", "way accept",
	}
	for _, test := range []struct {
		name  string
		table Antispoof
		rules []string
	}{
		{
			"few remote networks",
			Antispoof{Remote: nets(2), In: []string{"a", "b"}, Usual: []string{"b"}},
			[]string{
				"prerouting ip saddr 10.0.0.0/16 jump foreign", "prerouting ip saddr 10.1.0.0/16 jump foreign",
				`foreign iifname "b" accept`, `foreign iifname != "a" iifname != "b" jump drop-beside`,
				"drop-beside counter drop",
			},
		},
		{
			"few remote networks, to protected ones",
			Antispoof{
				Remote: nets(1), In: []string{"a", "b"}, Protected: []netip.Prefix{p("10.96.0.0/12"), p("11.0.0.0/16")},
			},
			[]string{
				"prerouting ip saddr 10.0.0.0/16 jump foreign", `foreign iifname != "a" iifname != "b" jump beside`,
				"beside ip daddr 10.96.0.0/12 jump drop-beside", "beside ip daddr 11.0.0.0/16 jump drop-beside",
				"drop-beside counter drop",
			},
		},
		{
			"many remote networks",
			Antispoof{Remote: nets(5), In: []string{"a", "b"}, Usual: []string{"b"}},
			[]string{
				"prerouting ip saddr != 10.0.0.0/13 accept", `prerouting iifname "b" accept`,
				"prerouting ip saddr & 255.255.0.0 @remote16 jump foreign",
				`foreign iifname != "a" iifname != "b" jump drop-beside`, "drop-beside counter drop",
			},
		},
		{"many remote networks, and pods next to them", Antispoof{
			Remote:   nets(5),
			In:       []string{"a"},
			Usually:  []netip.Prefix{p("10.5.0.0/16"), p("10.4.128.0/17")},
			Siblings: []string{"a"},
			Cables:   []string{"b"},
		}, []string{
			`forward iifname "a" jump siblings`,
			"siblings ip saddr 10.5.0.0/16 return",
			"siblings ip saddr != 10.0.0.0/13 return",
			"siblings ip saddr & 255.255.0.0 @remote16 jump handed",
			`handed oifname "b" jump drop-source`,
			"prerouting ip saddr 10.5.0.0/16 accept",
			"prerouting ip saddr != 10.0.0.0/13 accept",
			"prerouting ip saddr & 255.255.0.0 @remote16 jump foreign",
			`foreign iifname != "a" jump drop-beside`,
			"drop-source counter drop",
			"drop-beside counter drop",
		}},
		{
			"remote networks with nothing in common",
			Antispoof{
				Remote: append(nets(5), p("192.168.0.0/16")),
				In:     []string{"a", "b"},
				Usual:  []string{"b"},
			},
			[]string{
				"prerouting ip saddr & 255.255.0.0 @remote16 jump foreign", `foreign iifname "b" accept`,
				`foreign iifname != "a" iifname != "b" jump drop-beside`, "drop-beside counter drop",
			},
		},
		{
			"remote networks with many masks",
			Antispoof{
				Remote: append(nets(5), p("11.0.0.0/8"), p("12.0.0.0/9"), p("13.0.0.0/10"), p("14.0.0.0/11")),
				In:     []string{"a", "b"},
				Usual:  []string{"b"},
			},
			[]string{
				"prerouting ip saddr != 8.0.0.0/5 accept", `prerouting iifname "b" accept`,
				"prerouting ip saddr @remote jump foreign", `foreign iifname != "a" iifname != "b" jump drop-beside`,
				"drop-beside counter drop",
			},
		},
		{
			"closed ports",
			Antispoof{
				Closed:      dataplane.Range{Min: 1, Max: 2},
				ClosedOn:    []string{"a", "b*"},
				Remote:      nets(1),
				Unforwarded: []netip.Prefix{p("240.0.0.0/8"), p("241.0.0.0/8")},
			},
			[]string{
				"forward ip daddr 240.0.0.0/7 jump unforwarded", "unforwarded ip daddr 240.0.0.0/8 counter drop",
				"unforwarded ip daddr 241.0.0.0/8 counter drop",
				"input tcp dport 1-2 jump closed", "closed ct direction reply tcp flags & (syn | ack) != syn return",
				"closed ip saddr 240.0.0.0/7 counter drop",
				"closed ip saddr & 255.255.0.0 @remote16 counter drop",
				`closed iifname "a" counter drop`, `closed iifname "b*" counter drop`,
			},
		},
		{"answers to pings", Antispoof{Pongs: []string{"a", "b*"}, Unforwarded: nets(1)}, []string{
			"forward ip daddr 10.0.0.0/16 jump unforwarded", "unforwarded ip daddr 10.0.0.0/16 counter drop",
			"input icmp type echo-reply jump pongs", "pongs ct state invalid counter drop",
			`pongs ip saddr 10.0.0.0/16 iifname != "lo" iifname != "a" iifname != "b*" counter drop`,
			"pongs update @echoes { ip saddr limit rate over 500/second burst 500 packets } counter drop",
		}},
		{"many own networks", Antispoof{Own: append(nets(5), p("11.0.0.0/8")), Out: []string{"a"}}, []string{
			`prerouting iifname "a" ip daddr != 11.0.0.0/8 ip daddr != 10.0.0.0/16 ip daddr != 10.1.0.0/16 ip daddr != 10.2.0.0/16 ip daddr != @own jump drop-source`,
			`postrouting oifname "a" ip saddr != 11.0.0.0/8 ip saddr != 10.0.0.0/16 ip saddr != 10.1.0.0/16 ip saddr != 10.2.0.0/16 ip saddr != @own jump drop-destination`,
			"drop-source counter drop", "drop-destination counter drop",
		}},
		{
			"devices apart",
			Antispoof{
				Apart:    []string{"a", "b*"},
				Clusters: []dataplane.ClusterNet{{Net: p("10.0.0.0/16"), Cluster: "c"}},
			},
			[]string{
				`forward iifname "a" jump apart`,
				`forward iifname "b*" jump apart`,
				`apart oifname "a" jump drop-source`,
				`apart oifname "b*" jump drop-source`,
				"drop-source ip saddr @clusters counter drop",
				"drop-source counter drop",
			},
		},
		{"devices apart from all but local networks", Antispoof{
			Apart: []string{"a"}, Local: nets(1), Nodes: []string{"n"},
			Clusters: []dataplane.ClusterNet{{Net: p("10.9.0.0/16"), Cluster: "c"}},
		}, []string{
			`forward ip saddr != 10.0.0.0/16 oifname "a" jump abroad`, `abroad iifname "a" jump drop-source`,
			"abroad ct direction reply return",
			"abroad ip saddr @clusters counter drop", `abroad ct status dnat iifname != "n" return`,
			"abroad jump drop-destination",
			"drop-source ip saddr @clusters counter drop", "drop-source counter drop",
			"drop-destination ip daddr @clusters counter drop",
			"drop-destination rt ip nexthop @clusters counter drop", "drop-destination counter drop",
		}},
		{"one device apart", Antispoof{Apart: []string{"a"}}, []string{
			`forward iifname "a" oifname "a" jump drop-source`, "drop-source counter drop",
		}},
		{"one device apart, with global networks", Antispoof{Apart: []string{"a"}, Global: nets(1)}, []string{
			`forward iifname "a" jump apart`, `apart oifname "a" jump drop-source`,
			"apart ip daddr 10.0.0.0/16 jump drop-source", "drop-source counter drop",
		}},
		{
			"devices apart, with global networks and other gateways",
			Antispoof{Apart: []string{"a"}, Global: nets(1), Between: []string{"b"}},
			[]string{
				`forward iifname "a" jump apart`,
				`apart oifname "a" jump drop-source`,
				`apart ip daddr 10.0.0.0/16 ct direction reply oifname "b" return`,
				`forward ip daddr 10.0.0.0/16 iifname "b" jump drop-source`,
				"apart ip daddr 10.0.0.0/16 jump drop-source",
				"drop-source counter drop",
			},
		},
		{
			"masks",
			Antispoof{Ports: []int{1}, Inner: inner("10.0.0.1/32", "10.1.0.0/16", "10.2.0.0/16")},
			append([]string{
				"input udp dport 1 jump vxlan-in",
				"vxlan-in @th,224,16 != 0x0800 jump drop-source",
				"vxlan-in meta priority set 0:0",
				"vxlan-in meta priority set ip saddr map @senders",
				"vxlan-in ip saddr . iif . @th,336,32 & 0xffff0000 @known16 accept",
				"vxlan-in meta priority . @th,336,32 & 0xffff0000 @from16 fib saddr . iif oif missing counter drop",
				"vxlan-in meta priority . @th,336,32 & 0xffff0000 @from16 add @known16 { ip saddr . iif . @th,336,32 & 0xffff0000 }",
				"vxlan-in meta priority . @th,336,32 & 0xffff0000 @from16 accept",
				"vxlan-in meta priority . @th,336,32 @from32 jump way",
				"vxlan-in jump drop-source",
			}, append(way, "drop-source counter drop")...),
		},
		{"destinations inside", Antispoof{
			Ports:    []int{1},
			Inner:    inner("10.0.0.1/32"),
			Own:      append(nets(1), p("11.0.0.0/12"), p("241.0.0.2/32")),
			Usually:  nets(1),
			Echoing:  []netip.Addr{netip.MustParseAddr("241.0.0.3")},
			Echoes:   []Echo{{Dev: "a", Port: 2, Own: netip.MustParseAddr("241.0.0.2")}},
			Clusters: []dataplane.ClusterNet{{Net: p("10.9.0.0/16"), Cluster: "c"}},
		}, append([]string{
			"output udp dport 1 @th,336,16 != 0x0a00 @th,336,32 & 0xfff00000 != 0x0b000000 @th,336,32 != 0xf1000002 jump drop-leaving",
			"input udp dport 1 jump vxlan-in", "vxlan-in @th,224,16 != 0x0800 jump drop-source",
			"vxlan-in meta priority set 0:0",
			"vxlan-in meta priority set ip saddr map @senders",
			"vxlan-in meta priority . @th,336,32 @from32 jump way", "vxlan-in jump drop-source",
		}, append(way, `drop-source iifname "a" udp dport 2 ip daddr 241.0.0.0/8 @nh,96,32 . @nh,128,32 @echo accept`,
			"drop-source ip saddr @clusters counter drop", "drop-source counter drop",
			"drop-leaving @th,336,32 . @th,368,32 @echo @th,240,8 0x45 @th,288,16 & 0x3fff == 0 @th,312,8 17 @th,416,16 2 accept",
			"drop-leaving ip saddr set ip daddr ip daddr set @th,368,32",
			"drop-leaving ip daddr @clusters counter drop", "drop-leaving ip saddr @clusters counter drop",
			"drop-leaving counter drop")...)},
		{
			"ICMP errors",
			Antispoof{
				Out: []string{"a", "b"},
				Behind: []PeerNet{
					{Net: p("10.1.0.0/16"), Peer: outer},
					{Net: p("11.0.0.0/8"), Peer: outer},
					{Net: p("12.0.0.0/16"), Peer: outer.Next()},
				},
			},
			[]string{
				"prerouting ip protocol icmp jump any-icmp",
				"any-icmp icmp type 3-5 jump errors",
				"any-icmp icmp type 11-12 jump errors",
				`errors iifname != "a" iifname != "b" return`,
				"errors meta priority set 0:0",
				"errors meta priority set ip saddr map @peers",
				"errors meta priority . @th,192,32 & 0xff000000 @behind8 return",
				"errors meta priority . @th,192,32 & 0xffff0000 @behind16 return",
				"errors jump drop-source",
				"drop-source counter drop",
			},
		},
		{
			"any source inside",
			Antispoof{Ports: []int{1}},
			append([]string{"input udp dport 1 jump way"}, way...),
		},
		{"any source inside, of known senders", Antispoof{Ports: []int{1}, Ends: nets(1)}, []string{
			"input udp dport 1 jump way", way[0], way[1], "way ip saddr @ends add @ways { ip saddr . iif }", way[3],
		}},
		{
			"networks next to each other",
			Antispoof{Unforwarded: []netip.Prefix{p("241.0.0.0/8"), p("244.0.0.0/6")}},
			[]string{
				"forward ip daddr 240.0.0.0/5 jump unforwarded", "unforwarded ip daddr 241.0.0.0/8 counter drop",
				"unforwarded ip daddr 244.0.0.0/6 counter drop",
			},
		},
		{
			"networks with nothing in common",
			Antispoof{Unforwarded: []netip.Prefix{p("10.0.0.0/8"), p("244.0.0.0/6")}},
			[]string{
				"forward jump unforwarded", "unforwarded ip daddr 10.0.0.0/8 counter drop",
				"unforwarded ip daddr 244.0.0.0/6 counter drop",
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var rules []string
			for _, c := range test.table.Tables()[0].Chains {
				// see TestAntispoofArrived
				if strings.HasPrefix(c.Name, "arriv") || c.Name == "drop-forged" {
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

// Packets that VXLAN packets have contained are checked once more, with the sender as their
// priority. The node's own echoes are limited there only.
func TestAntispoofArrived(t *testing.T) {
	p := netip.MustParsePrefix
	ip := netip.MustParseAddr
	table := Antispoof{
		Ports: []int{
			1,
		},
		Inner: []InnerSource{
			{Outer: ip("192.0.2.1"), Net: p("10.1.0.0/16")},
			{Outer: ip("192.0.2.1"), Net: p("241.0.0.3/32")},
		},
		Inside: []string{
			"a",
			"b*",
		},
		Own:     []netip.Prefix{p("10.0.0.0/16"), p("241.0.0.2/32")},
		Echoing: []netip.Addr{ip("241.0.0.3")},
		Echoes: []Echo{
			{Dev: "a", Port: 2, Own: ip("241.0.0.2")},
		},
		Clusters: []dataplane.ClusterNet{{Net: p("10.9.0.0/16"), Cluster: "c"}},
	}
	var rules []string
	tables := table.Tables()
	for _, c := range slices.Concat(tables[1].Chains, tables[0].Chains) {
		for _, r := range c.Rules {
			if strings.HasPrefix(c.Name, "arriv") || c.Name == "drop-forged" {
				rules = append(rules, c.Name+" "+r.Text)
			}
			require.False(t, strings.Contains(r.Text, "limit") && c.Name == "vxlan-in")
		}
	}
	require.Equal(t, []string{
		`arriving-ipv6 iifname "a" counter drop`,
		`arriving-ipv6 iifname "b*" counter drop`,
		"arrived-elsewhere @nh,96,32 . @nh,128,32 @echo udp dport 2 return",
		"arrived-elsewhere jump drop-forged",
		"arrived-errors icmp type redirect @th,192,32 0xf1000002 counter drop",
		"arrived-errors @th,192,32 0xf1000002 jump drop-forged",
		"arrived-errors meta priority . @th,192,32 & 0xffff0000 @from16 return",
		"arrived-errors meta priority . @th,192,32 @from32 return",
		"arrived-errors jump drop-forged",
		"arrived-icmp ip frag-off & 0x1fff != 0 return",
		"arrived-icmp icmp type 3-5 jump arrived-errors",
		"arrived-icmp icmp type 11-12 jump arrived-errors",
		"arrived-own ip saddr 241.0.0.2 update @echoes-inside { meta priority limit rate over 500/second burst 500 packets } jump drop-forged",
		"arrived-own ip saddr 241.0.0.2 ip daddr 241.0.0.2 udp dport 2 return",
		"arrived-own jump drop-forged",
		`arriving iifname != "a" iifname != "b*" accept`,
		"arriving ip protocol icmp jump arrived-icmp",
		"arriving ip saddr 241.0.0.2 jump arrived-own",
		"arriving ip daddr != 10.0.0.0/16 ip daddr != 241.0.0.2/32 ip daddr != @own jump arrived-elsewhere",
		"arriving meta priority . @nh,96,32 & 0xffff0000 @from16 accept",
		"arriving meta priority . @nh,96,32 @from32 accept",
		"arriving jump drop-forged",
		"drop-forged add @forged { meta priority counter }",
		"drop-forged counter drop",
	}, rules)
}

// Every rule that drops packets has a reason, but for the redirects about a node's own echoes.
func TestAntispoofDropReasons(t *testing.T) {
	ip := netip.MustParseAddr("192.0.2.1")
	p := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
	on := []string{"a"}
	table := Antispoof{
		Ports: []int{1}, Inner: []InnerSource{{Outer: ip, Net: p[0]}}, Inside: on, Transit: []int{2}, Ends: p,
		Unforwarded: p, Remote: p, In: on, Closed: dataplane.Range{Min: 3, Max: 4}, ClosedOn: on, Out: on, Own: p,
		Apart: on, Local: p, Global: p, Between: on, Siblings: on, Cables: on, Pongs: on,
		Behind:   []PeerNet{{Net: p[0], Peer: ip}},
		Clusters: []dataplane.ClusterNet{{Net: p[0], Cluster: "c"}},
		Echoes:   []Echo{{Dev: "a", Port: 5, Own: ip}},
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
