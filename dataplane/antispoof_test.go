package dataplane_test

import (
	"fmt"
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
	inner := func(nets ...string) (out []dataplane.InnerSource) {
		for _, n := range nets {
			out = append(out, dataplane.InnerSource{Outer: outer, Net: p(n)})
		}
		return out
	}
	way := []string{
		"way ip saddr . iif @ways accept", "way fib saddr . iif oif missing counter drop",
		"way add @ways { ip saddr . iif }", "way accept",
	}
	for _, test := range []struct {
		name  string
		table dataplane.Antispoof
		rules []string
	}{
		{
			"few remote networks",
			dataplane.Antispoof{Remote: nets(2), In: []string{"a", "b"}, Usual: []string{"b"}},
			[]string{
				"prerouting ip saddr 10.0.0.0/16 jump foreign", "prerouting ip saddr 10.1.0.0/16 jump foreign",
				`foreign iifname "b" accept`, `foreign iifname != "a" iifname != "b" jump drop-beside`,
				"drop-beside counter drop",
			},
		},
		{
			"few remote networks, to protected ones",
			dataplane.Antispoof{
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
			dataplane.Antispoof{Remote: nets(5), In: []string{"a", "b"}, Usual: []string{"b"}},
			[]string{
				"prerouting ip saddr != 10.0.0.0/13 accept", `prerouting iifname "b" accept`,
				"prerouting ip saddr & 255.255.0.0 . 255.255.0.0 @masked jump foreign",
				`foreign iifname != "a" iifname != "b" jump drop-beside`, "drop-beside counter drop",
			},
		},
		{"many remote networks, and pods next to them", dataplane.Antispoof{
			Remote:   nets(5),
			In:       []string{"a"},
			Usually:  []netip.Prefix{p("10.5.0.0/16"), p("10.4.128.0/17")},
			Siblings: []string{"a"},
			Cables:   []string{"b"},
		}, []string{
			`forward iifname "a" jump siblings`,
			"siblings ip saddr 10.5.0.0/16 return",
			"siblings ip saddr != 10.0.0.0/13 return",
			"siblings ip saddr & 255.255.0.0 . 255.255.0.0 @masked jump handed",
			`handed oifname "b" jump drop-source`,
			"prerouting ip saddr 10.5.0.0/16 accept",
			"prerouting ip saddr != 10.0.0.0/13 accept",
			"prerouting ip saddr & 255.255.0.0 . 255.255.0.0 @masked jump foreign",
			`foreign iifname != "a" jump drop-beside`,
			"drop-source counter drop",
			"drop-beside counter drop",
		}},
		{
			"remote networks with nothing in common",
			dataplane.Antispoof{
				Remote: append(nets(5), p("192.168.0.0/16")),
				In:     []string{"a", "b"},
				Usual:  []string{"b"},
			},
			[]string{
				"prerouting ip saddr & 255.255.0.0 . 255.255.0.0 @masked jump foreign", `foreign iifname "b" accept`,
				`foreign iifname != "a" iifname != "b" jump drop-beside`, "drop-beside counter drop",
			},
		},
		{
			"remote networks with many masks",
			dataplane.Antispoof{
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
			dataplane.Antispoof{
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
				"closed ip saddr & 255.255.0.0 . 255.255.0.0 @masked counter drop",
				`closed iifname "a" counter drop`, `closed iifname "b*" counter drop`,
			},
		},
		{"answers to pings", dataplane.Antispoof{Pongs: []string{"a", "b*"}, Unforwarded: nets(1)}, []string{
			"forward ip daddr 10.0.0.0/16 jump unforwarded", "unforwarded ip daddr 10.0.0.0/16 counter drop",
			"input icmp type echo-reply jump pongs", "pongs ct state invalid counter drop",
			`pongs ip saddr 10.0.0.0/16 iifname != "lo" iifname != "a" iifname != "b*" counter drop`,
			"pongs update @echoes { ip saddr limit rate over 500/second burst 500 packets } counter drop",
		}},
		{"many own networks", dataplane.Antispoof{Own: append(nets(5), p("11.0.0.0/8")), Out: []string{"a"}}, []string{
			`prerouting iifname "a" ip daddr != 11.0.0.0/8 ip daddr != 10.0.0.0/16 ip daddr != 10.1.0.0/16 ip daddr != 10.2.0.0/16 ip daddr != @own jump drop-source`,
			`postrouting oifname "a" ip saddr != 11.0.0.0/8 ip saddr != 10.0.0.0/16 ip saddr != 10.1.0.0/16 ip saddr != 10.2.0.0/16 ip saddr != @own jump drop-destination`,
			"drop-source counter drop", "drop-destination counter drop",
		}},
		{
			"devices apart",
			dataplane.Antispoof{
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
		{"devices apart from all but local networks", dataplane.Antispoof{
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
		{"one device apart", dataplane.Antispoof{Apart: []string{"a"}}, []string{
			`forward iifname "a" oifname "a" jump drop-source`, "drop-source counter drop",
		}},
		{"one device apart, with global networks", dataplane.Antispoof{Apart: []string{"a"}, Global: nets(1)}, []string{
			`forward iifname "a" jump apart`, `apart oifname "a" jump drop-source`,
			"apart ip daddr 10.0.0.0/16 jump drop-source", "drop-source counter drop",
		}},
		{
			"devices apart, with global networks and other gateways",
			dataplane.Antispoof{Apart: []string{"a"}, Global: nets(1), Between: []string{"b"}},
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
			dataplane.Antispoof{Ports: []int{1}, Inner: inner("10.0.0.1/32", "10.1.0.0/16", "10.2.0.0/16")},
			append([]string{
				"input udp dport 1 jump vxlan",
				"vxlan @th,224,16 != 0x0800 jump drop-source",
				"vxlan meta priority set @nh,96,32",
				"vxlan ip saddr . iif . @th,336,32 & 255.255.0.0 . 255.255.0.0 @known accept",
				"vxlan ip saddr . @th,336,32 & 255.255.0.0 . 255.255.0.0 @inner fib saddr . iif oif missing counter drop",
				"vxlan ip saddr . @th,336,32 & 255.255.0.0 . 255.255.0.0 @inner add @known { ip saddr . iif . @th,336,32 & 255.255.0.0 . 255.255.0.0 }",
				"vxlan ip saddr . @th,336,32 & 255.255.0.0 . 255.255.0.0 @inner accept",
				"vxlan ip saddr . @th,336,32 & 255.255.255.255 . 255.255.255.255 @inner jump way",
				"vxlan jump drop-source",
			}, append(way, "drop-source counter drop")...),
		},
		{"destinations inside", dataplane.Antispoof{
			Ports:    []int{1},
			Inner:    inner("10.0.0.1/32"),
			Own:      append(nets(1), p("11.0.0.0/12"), p("241.0.0.2/32")),
			Usually:  nets(1),
			Echoing:  []netip.Addr{netip.MustParseAddr("241.0.0.3")},
			Echoes:   []dataplane.Echo{{Dev: "a", Port: 2, Own: netip.MustParseAddr("241.0.0.2")}},
			Clusters: []dataplane.ClusterNet{{Net: p("10.9.0.0/16"), Cluster: "c"}},
		}, append([]string{
			"output udp dport 1 @th,336,16 != 0x0a00 @th,336,32 & 255.240.0.0 != 0x0b000000 @th,336,32 != 0xf1000002 @th,336,32 != @own jump drop-leaving",
			"input udp dport 1 jump vxlan", "vxlan @th,224,16 != 0x0800 jump drop-source",
			"vxlan meta priority set @nh,96,32",
			"vxlan ip saddr . @th,336,32 & 255.255.255.255 . 255.255.255.255 @inner jump way", "vxlan jump drop-source",
		}, append(way, `drop-source iifname "a" udp dport 2 ip daddr 241.0.0.0/8 ip saddr . ip daddr @echo accept`,
			"drop-source ip saddr @clusters counter drop", "drop-source counter drop",
			"drop-leaving @th,336,32 . @th,368,32 @echo @th,240,8 0x45 @th,288,16 & 0x3fff == 0 @th,312,8 17 @th,416,16 2 accept",
			"drop-leaving @th,368,32 @clusters counter drop", "drop-leaving ip daddr @clusters counter drop",
			"drop-leaving counter drop")...)},
		{
			"ICMP errors",
			dataplane.Antispoof{
				Out: []string{"a", "b"},
				Behind: []dataplane.PeerNet{
					{Net: p("10.1.0.0/16"), Peer: outer},
					{Net: p("11.0.0.0/8"), Peer: outer},
					{Net: p("12.0.0.0/16"), Peer: outer.Next()},
				},
			},
			[]string{
				"prerouting ip protocol icmp jump icmp",
				"icmp icmp type 3-5 jump errors",
				"icmp icmp type 11-12 jump errors",
				`errors iifname != "a" iifname != "b" return`,
				"errors meta priority set ip saddr map @peers",
				"errors meta priority . @th,192,32 & 255.0.0.0 . 255.0.0.0 @behind return",
				"errors meta priority . @th,192,32 & 255.255.0.0 . 255.255.0.0 @behind return",
				"errors jump drop-source",
				"drop-source counter drop",
			},
		},
		{
			"any source inside",
			dataplane.Antispoof{Ports: []int{1}},
			append([]string{"input udp dport 1 jump way"}, way...),
		},
		{"any source inside, of known senders", dataplane.Antispoof{Ports: []int{1}, Ends: nets(1)}, []string{
			"input udp dport 1 jump way", way[0], way[1], "way ip saddr @ends add @ways { ip saddr . iif }", way[3],
		}},
		{
			"networks next to each other",
			dataplane.Antispoof{Unforwarded: []netip.Prefix{p("241.0.0.0/8"), p("244.0.0.0/6")}},
			[]string{
				"forward ip daddr 240.0.0.0/5 jump unforwarded", "unforwarded ip daddr 241.0.0.0/8 counter drop",
				"unforwarded ip daddr 244.0.0.0/6 counter drop",
			},
		},
		{
			"networks with nothing in common",
			dataplane.Antispoof{Unforwarded: []netip.Prefix{p("10.0.0.0/8"), p("244.0.0.0/6")}},
			[]string{
				"forward ip daddr 0.0.0.0/0 jump unforwarded", "unforwarded ip daddr 10.0.0.0/8 counter drop",
				"unforwarded ip daddr 244.0.0.0/6 counter drop",
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var rules []string
			for _, r := range test.table.Rules() {
				// see TestAntispoofArrived
				if !strings.HasPrefix(r.Chain, "arriv") && r.Chain != dataplane.AntispoofForged {
					rules = append(rules, fmt.Sprintf("%s %v", r.Chain, r))
				}
			}
			require.Equal(t, test.rules, rules)
		})
	}
}

// Packets that VXLAN packets have contained are checked once more, with the sender as their
// priority. The node's own echoes are limited there only.
func TestAntispoofArrived(t *testing.T) {
	p := netip.MustParsePrefix
	ip := netip.MustParseAddr
	table := dataplane.Antispoof{
		Ports: []int{
			1,
		},
		Inner: []dataplane.InnerSource{
			{Outer: ip("192.0.2.1"), Net: p("10.1.0.0/16")},
			{Outer: ip("192.0.2.1"), Net: p("241.0.0.3/32")},
		},
		Inside: []string{
			"a",
			"b*",
		},
		Own:     []netip.Prefix{p("10.0.0.0/16"), p("241.0.0.2/32")},
		Echoing: []netip.Addr{ip("241.0.0.3")},
		Echoes: []dataplane.Echo{
			{Dev: "a", Port: 2, Own: ip("241.0.0.2")},
		},
		Clusters: []dataplane.ClusterNet{{Net: p("10.9.0.0/16"), Cluster: "c"}},
	}
	var rules []string
	for _, r := range table.Rules() {
		rule := fmt.Sprintf("%s %v", r.Chain, r)
		if strings.HasPrefix(rule, "arriv") || strings.Contains(rule, "priority") ||
			r.Chain == dataplane.AntispoofForged {
			rules = append(rules, rule)
		}
		require.False(t, r.Over != 0 && r.Chain == dataplane.AntispoofVXLAN)
	}
	require.Equal(t, []string{
		"vxlan meta priority set @nh,96,32",
		`arriving-ipv6 iifname "a" counter drop`,
		`arriving-ipv6 iifname "b*" counter drop`,
		`arriving iifname != "a" iifname != "b*" accept`,
		"arriving ip protocol icmp jump arrived-icmp",
		"arrived-icmp ip frag-off & 0x1fff != 0 return",
		"arrived-icmp icmp type 3-5 jump arrived-errors",
		"arrived-icmp icmp type 11-12 jump arrived-errors",
		"arrived-errors icmp type 5-5 @th,192,32 == 0xf1000002 counter drop",
		"arrived-errors @th,192,32 == 0xf1000002 jump drop-forged",
		"arriving ip saddr 241.0.0.2/32 jump arrived-own",
		"arrived-own ip saddr 241.0.0.2/32 update @echoes { meta priority limit rate over 500/second burst 500 packets } jump drop-forged",
		"arrived-own ip saddr 241.0.0.2/32 ip daddr 241.0.0.2/32 udp dport 2 return",
		"arrived-own jump drop-forged",
		"arrived-errors meta priority . @th,192,32 & 255.255.0.0 . 255.255.0.0 @inner return",
		"arrived-errors meta priority . @th,192,32 & 255.255.255.255 . 255.255.255.255 @inner return",
		"arrived-errors jump drop-forged",
		"arriving ip daddr != 10.0.0.0/16 ip daddr != 241.0.0.2/32 ip daddr != @own jump arrived-elsewhere",
		"arrived-elsewhere ip saddr . ip daddr @echo udp dport 2 return",
		"arrived-elsewhere jump drop-forged",
		"arriving meta priority . ip saddr & 255.255.0.0 . 255.255.0.0 @inner accept",
		"arriving meta priority . ip saddr & 255.255.255.255 . 255.255.255.255 @inner accept",
		"arriving jump drop-forged",
		"drop-forged meta priority @clusters counter drop",
		"drop-forged counter drop",
	}, rules)
}

// A network ends the connections of its cluster when it is added or removed, or passes to another
// cluster.
func TestEnded(t *testing.T) {
	p := netip.MustParsePrefix
	nets := func(of ...string) (out []dataplane.ClusterNet) {
		for i := 0; i < len(of); i += 2 {
			out = append(out, dataplane.ClusterNet{Net: p(of[i]), Cluster: of[i+1]})
		}
		return out
	}
	older := dataplane.Antispoof{Remote: []netip.Prefix{p("10.1.0.0/16")}}
	newer := dataplane.Antispoof{Clusters: nets("10.1.0.0/16", "a")}
	require.Empty(t, newer.Ended(older), "the table of an older agent")
	for _, test := range []struct {
		name       string
		have, want []dataplane.ClusterNet
		ended      []netip.Prefix
	}{
		{"no change", nets("10.1.0.0/16", "a"), nets("10.1.0.0/16", "a"), nil},
		{
			"removed",
			nets("10.1.0.0/16", "a", "10.2.0.0/16", "b"),
			nets("10.2.0.0/16", "b"),
			[]netip.Prefix{p("10.1.0.0/16")},
		},
		{"added", nil, nets("10.1.0.0/16", "a"), []netip.Prefix{p("10.1.0.0/16")}},
		{"of another cluster", nets("10.1.0.0/16", "a"), nets("10.1.0.0/16", "b"), []netip.Prefix{p("10.1.0.0/16")}},
		{"without a cable", nets("10.1.0.0/16", "a"), nets("10.1.0.0/16", ""), nil},
		{"with a cable again", nets("10.1.0.0/16", ""), nets("10.1.0.0/16", "a"), nil},
		{"wider", nets("10.1.0.0/17", "a"), nets("10.1.0.0/16", "a"), nil},
		{"narrower", nets("10.1.0.0/16", "a"), nets("10.1.0.0/17", "a"), []netip.Prefix{p("10.1.0.0/16")}},
		{
			"a device has another address",
			nets("10.1.0.0/16", "a", "241.0.0.1/32", "a"),
			nets("10.1.0.0/16", "a", "241.0.0.2/32", "a"),
			nil,
		},
		{
			"a device has the address of another's", nets("10.1.0.0/16", "a", "241.0.0.1/32", "a", "10.2.0.0/16", "b"),
			nets("10.1.0.0/16", "a", "10.2.0.0/16", "b", "241.0.0.1/32", "b"),
			[]netip.Prefix{p("241.0.0.1/32")},
		},
		{
			"a device leaves with its cluster",
			nets("10.1.0.0/16", "a", "241.0.0.1/32", "a"),
			nil,
			[]netip.Prefix{p("10.1.0.0/16"), p("241.0.0.1/32")},
		},
		{"a gateway moves", nets("192.0.2.1/32", "a"), nets("192.0.2.2/32", "a"), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			gateways := []dataplane.InnerSource{
				{Outer: netip.MustParseAddr("192.0.2.1")},
				{Outer: netip.MustParseAddr("192.0.2.2")},
			}
			have := dataplane.Antispoof{Clusters: test.have, Inner: gateways[:1]}
			want := dataplane.Antispoof{Clusters: test.want, Inner: gateways[1:]}
			require.Equal(t, test.ended, want.Ended(have))
		})
	}
}

// Every rule that drops packets has a reason, which is explained, but for the redirects about a
// node's own echoes.
func TestDropReasons(t *testing.T) {
	for _, chain := range append(slices.Clone(dataplane.AntispoofChains), dataplane.AntispoofIPv6) {
		if reason := dataplane.DropReason(chain); reason != "" {
			require.NotEmpty(t, dataplane.DropReasons[reason], chain)
		}
	}
	for _, o := range objects() {
		switch o := o.(type) {
		case dataplane.Antispoof:
			for _, r := range o.Rules() {
				require.False(t, strings.HasSuffix(r.String(), "drop") && r.Chain != dataplane.AntispoofArrivedErrors &&
					dataplane.DropReason(r.Chain) == "", "%s %v", r.Chain, r)
			}
		}
	}
	for rule, reason := range map[string]string{
		"-i submariner -j DROP": dataplane.DropNotAccepted, "-j DROP": dataplane.DropNotAccepted,
		"-o north-+ -j DROP":                 dataplane.DropTransit,
		"-p udp -m udp --dport 4500 -j DROP": dataplane.DropUnknownSender,
		"-p esp -j DROP":                     dataplane.DropUnknownSender,
		"-i vx-submariner -o vx-submariner -m mac --mac-source 02:00:00:00:00:01 -c 0 0 -j DROP": dataplane.DropDetour,
		"-i submariner -j RETURN": "",
	} {
		require.Equal(t, reason, dataplane.ChainDropReason(rule), rule)
		require.True(t, reason == "" || dataplane.DropReasons[reason] != "", reason)
	}
}
