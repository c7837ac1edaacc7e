package dataplane_test

import (
	"fmt"
	"net/netip"
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
	outer, p := netip.MustParseAddr("192.0.2.1"), netip.MustParsePrefix
	inner := func(nets ...string) (out []dataplane.InnerSource) {
		for _, n := range nets {
			out = append(out, dataplane.InnerSource{Outer: outer, Net: p(n)})
		}
		return out
	}
	way := []string{"way ip saddr . iif @ways accept", "way fib saddr . iif oif missing drop", "way add @ways { ip saddr . iif }", "way accept"}
	for _, test := range []struct {
		name  string
		table dataplane.Antispoof
		rules []string
	}{
		{"few remote networks", dataplane.Antispoof{Remote: nets(2), In: []string{"a", "b"}, Usual: []string{"b"}}, []string{
			"prerouting ip saddr 10.0.0.0/16 jump foreign", "prerouting ip saddr 10.1.0.0/16 jump foreign",
			`foreign iifname "b" accept`, `foreign iifname != "a" iifname != "b" drop`,
		}},
		{"many remote networks", dataplane.Antispoof{Remote: nets(5), In: []string{"a", "b"}, Usual: []string{"b"}}, []string{
			`prerouting iifname "b" accept`, "prerouting ip saddr @remote jump foreign", `foreign iifname != "a" iifname != "b" drop`,
		}},
		{"closed ports", dataplane.Antispoof{Closed: dataplane.Range{Min: 1, Max: 2}, ClosedOn: []string{"a", "b*"}, Remote: nets(1), Unforwarded: []netip.Prefix{p("240.0.0.0/8"), p("241.0.0.0/8")}}, []string{
			"forward ip daddr 240.0.0.0/7 jump unforwarded", "unforwarded ip daddr 240.0.0.0/8 drop", "unforwarded ip daddr 241.0.0.0/8 drop",
			"input tcp dport 1-2 jump closed", "closed ip saddr 240.0.0.0/7 drop", "closed ip saddr @remote drop",
			`closed iifname "a" drop`, `closed iifname "b*" drop`,
		}},
		{"many own networks", dataplane.Antispoof{Own: append(nets(5), p("11.0.0.0/8")), Out: []string{"a"}}, []string{
			`postrouting oifname "a" ip saddr != 11.0.0.0/8 ip saddr != 10.0.0.0/16 ip saddr != 10.1.0.0/16 ip saddr != 10.2.0.0/16 ip saddr != @own drop`,
		}},
		{"masks", dataplane.Antispoof{Ports: []int{1}, Inner: inner("10.0.0.1/32", "10.1.0.0/16", "10.2.0.0/16")}, append([]string{
			"input udp dport 1 jump vxlan", "vxlan @th,224,16 != 0x0800 drop",
			"vxlan ip saddr . @th,336,32 & 255.255.0.0 . 255.255.0.0 @inner jump way",
			"vxlan ip saddr . @th,336,32 & 255.255.255.255 . 255.255.255.255 @inner jump way", "vxlan drop",
		}, way...)},
		{"any source inside", dataplane.Antispoof{Ports: []int{1}}, append([]string{"input udp dport 1 jump way"}, way...)},
		{"any source inside, of known senders", dataplane.Antispoof{Ports: []int{1}, Ends: nets(1)}, []string{
			"input udp dport 1 jump way", way[0], way[1], "way ip saddr @ends add @ways { ip saddr . iif }", way[3],
		}},
		{"networks next to each other", dataplane.Antispoof{Unforwarded: []netip.Prefix{p("241.0.0.0/8"), p("244.0.0.0/6")}}, []string{
			"forward ip daddr 240.0.0.0/5 jump unforwarded", "unforwarded ip daddr 241.0.0.0/8 drop", "unforwarded ip daddr 244.0.0.0/6 drop",
		}},
		{"networks with nothing in common", dataplane.Antispoof{Unforwarded: []netip.Prefix{p("10.0.0.0/8"), p("244.0.0.0/6")}}, []string{
			"forward ip daddr 0.0.0.0/0 jump unforwarded", "unforwarded ip daddr 10.0.0.0/8 drop", "unforwarded ip daddr 244.0.0.0/6 drop",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var rules []string
			for _, r := range test.table.Rules() {
				rules = append(rules, fmt.Sprintf("%s %v", r.Chain, r))
			}
			require.Equal(t, test.rules, rules)
		})
	}
}
