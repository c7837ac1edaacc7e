//go:build linux

package kernel

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"subctl/dataplane"
	"subctl/internal/nstest"

	"github.com/stretchr/testify/require"
)

// sourcesOf returns a table of family ip that keeps the sources of packets to some networks.
func sourcesOf(remote ...netip.Prefix) dataplane.Ruleset {
	r := dataplane.Ruleset{
		Family: "ip", Table: dataplane.SourcesTable.Name,
		Sets: []dataplane.RuleSet{
			{Name: "remote", Type: "ipv4_addr", Flags: "interval", Elements: dataplane.Networks(remote)},
		},
	}
	r.AddChain("postrouting", "nat", "postrouting", 50)
	r.Add("postrouting", "ip saddr 10.0.0.0/16 ip daddr @remote snat to ip saddr")
	r.Add("postrouting", "ip saddr @remote ip daddr 10.0.0.0/16 snat to ip saddr")
	return r
}

// returnsOf returns a table for the replies to connections of some gateways, with chains of several
// types.
func returnsOf(gateways int) dataplane.Ruleset {
	r := dataplane.Ruleset{Family: "ip", Table: dataplane.ReturnsTable.Name}
	r.AddChain("prerouting", "filter", "prerouting", -150)
	r.AddChain("output", "route", "output", -150)
	for i := range gateways {
		r.Add("arrived", "ether saddr 02:73:f0:12:00:%02x ct mark set ct mark and 0xffffffc0 xor %#x accept", i+1, i+1)
	}
	r.Add("arrived", "ct direction reply accept")
	r.Add("prerouting", "iifname \"vx-submariner\" goto arrived")
	r.Add("prerouting", "ct state new fib daddr oifname \"vx-submariner\" numgen random mod 3 < 1 accept")
	r.Add("output", "oifname \"vx-submariner\" ct state new accept")
	return r
}

// mapsOfAll returns a table with a map of each type of elements.
func mapsOfAll(n int) dataplane.Ruleset {
	r := dataplane.Ruleset{Family: "ip", Table: dataplane.ReturnsTable.Name}
	chains := dataplane.RuleSet{Name: "chains", Type: "ipv4_addr : verdict"}
	pairs := dataplane.RuleSet{Name: "pairs", Type: "ipv4_addr : ipv4_addr"}
	ports := dataplane.RuleSet{
		Name: "ports",
		Type: "ipv4_addr . inet_proto . inet_service . mark : ipv4_addr . inet_service",
	}
	for i := range n {
		at := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
		r.Add(fmt.Sprintf("chain%d", i%3), "ip ttl %d drop", i)
		chains.Elements = append(chains.Elements, fmt.Sprintf("%v : goto chain%d", at, i%3))
		pairs.Elements = append(pairs.Elements, fmt.Sprintf("%v : 10.2.0.1", at))
		ports.Elements = append(ports.Elements,
			fmt.Sprintf("%v . 6 . %d . %d : 10.2.0.1 . %d", at, 80+i, 1000+i, 8080+i))
	}
	r.Sets = []dataplane.RuleSet{chains, pairs, ports}
	for _, s := range r.Sets {
		slices.Sort(s.Elements)
	}
	return r
}

// nft lists the tables as planned. Whatever another program does to them, Watch notices and one
// Sync repairs. In the end there are none.
func TestRulesetOfNode(t *testing.T) {
	ns, h := node(t, dataplane.RouteOwner)
	want := state(t, sourcesOf(cidr("10.1.0.0/16"), cidr("10.2.0.0/16")), returnsOf(2))
	require.Len(t, settle(t, ns, h, want), 2)
	requireEqual(t, want, look(t, ns, h))
	require.Empty(t, settle(t, ns, h, want))
	rules := ns.Run("nft list chain ip submariner-route postrouting")
	require.Contains(t, rules, "type nat hook postrouting priority security; policy accept;", "which is 50")
	require.Contains(t, rules, "ip saddr 10.0.0.0/16 ip daddr @remote snat to ip saddr")
	const table, returns = "ip submariner-route", "ip submariner-route-return"
	last := func(table, chain string) string {
		return "$(nft -a list chain " + table + " " + chain + " | grep -o 'handle [0-9]*$' | tail -1 | cut -d' ' -f2)"
	}
	requireRepaired(t, ns, h, want, map[string]string{
		"table deleted": "nft delete table " + table,
		"table dormant": "nft 'add table " + table + " { flags dormant; }'",
		"rule deleted":  "nft delete rule " + table + " postrouting handle " + last(table, "postrouting"),
		"rule added":    "nft add rule " + table + " postrouting return",
		"rule replaced": "nft replace rule " + table + " postrouting handle " + last(table, "postrouting") + " accept",
		"chain flushed": "nft flush chain " + table + " postrouting",
		"chain added":   "nft add chain " + table + " x",
		"policy drop":   "nft 'chain " + table + " postrouting { policy drop; }'",
		"set flushed":   "nft flush set " + table + " remote",
		"element added": "nft 'add element " + table + " remote { 10.3.0.0/16 }'",
		"odd element":   "nft 'add element " + table + " remote { 10.3.0.0-10.4.0.7 }'",
		"element gone":  "nft 'delete element " + table + " remote { 10.1.0.0/16 }'",
		"set added":     "nft 'add set " + table + " x { type ipv4_addr; }'",
		"map with chain": "nft 'add map " + table + " x { type ipv4_addr : verdict; }; add chain " + table +
			" y; add element " + table + " x { 10.0.0.1 : goto y }'",
		"set remade": "nft flush chain " + table + " postrouting && nft delete set " + table + " remote && " +
			"nft 'add set " + table + " remote { type ipv4_addr; flags interval; }'",
		"first rule":  "nft insert rule " + returns + " prerouting accept",
		"all flushed": "nft flush table " + returns,
		"set of other types": "nft 'add set " + returns + " x { type ether_addr . mark; }; add element " + returns +
			" x { 02:73:f0:12:00:01 . 1 }'",
	})
	settle(t, ns, h, nil)
	require.NotContains(t, ns.Run("nft list tables"), "submariner")
}

// requireEqual requires that all objects of two States are equal.
func requireEqual(t *testing.T, want, have dataplane.State) {
	t.Helper()
	require.Len(t, have, len(want))
	for k, o := range want {
		require.True(t, o.Equal(have[k]), "%v\n%v", o, have[k])
	}
}

// Maps of all types are observed as they were put, whether nft or netlink wrote their elements, and
// single elements change.
func TestRulesetMaps(t *testing.T) {
	ns, h := node(t, dataplane.RouteOwner)
	all := mapsOfAll(9)
	settle(t, ns, h, state(t, all))
	requireEqual(t, state(t, all), look(t, ns, h))
	less := mapsOfAll(9)
	for i := range less.Sets {
		s := &less.Sets[i]
		s.Elements = slices.Delete(slices.Clone(s.Elements), 2, 5)
	}
	settle(t, ns, h, state(t, less))
	requireEqual(t, state(t, less), look(t, ns, h))
	listed := ns.Run("nft list table ip submariner-route-return")
	settle(t, ns, h, state(t, all))
	requireEqual(t, state(t, all), look(t, ns, h))
	require.NotEqual(t, listed, ns.Run("nft list table ip submariner-route-return"))
	fewer := mapsOfAll(2) // chains go, with the elements that lead to them
	settle(t, ns, h, state(t, fewer))
	requireEqual(t, state(t, fewer), look(t, ns, h))
	byNft := ns.Run("nft list map ip submariner-route-return ports")
	settle(t, ns, h, nil)
	settle(t, ns, h, state(t, fewer))
	require.Equal(t, byNft, ns.Run("nft list map ip submariner-route-return ports"))
}

// Elements are added and removed singly: the others are there all the time, and so are the rules.
func TestElementsChangeInPlace(t *testing.T) {
	ns, h := node(t, dataplane.RouteOwner)
	var remote []netip.Prefix
	for i := range 3000 { // more than one message
		remote = append(remote, netip.PrefixFrom(netip.AddrFrom4([4]byte{20, byte(i >> 8), byte(i), 0}), 24))
	}
	settle(t, ns, h, state(t, sourcesOf(remote...)))
	rules := "nft -a list tables | grep submariner; nft -a list chain ip submariner-route postrouting"
	handle := ns.Run(rules)
	want := state(t, sourcesOf(append(slices.Clone(remote[5:1000]), remote[2000:]...)...))
	settle(t, ns, h, want)
	require.Equal(t, handle, ns.Run(rules))
	requireEqual(t, want, look(t, ns, h))
	require.Empty(t, settle(t, ns, h, want))
}

// A table of an agent before, whose rules have no digests, is replaced in one transaction, and then
// it is as if we had made it.
func TestRulesetOfAnAgentBefore(t *testing.T) {
	ns, h := node(t, dataplane.RouteOwner)
	ns.Run("nft -f - <<'END'\n" + `table ip submariner-route {
	set remote { type ipv4_addr; flags interval; elements = { 10.1.0.0/16, 10.9.0.0/16 }; }
	chain direct { }
	chain input { type nat hook input priority 50; }
	chain postrouting {
		type nat hook postrouting priority 50
		ip saddr 10.0.0.0/16 ip daddr @remote snat to ip saddr comment "from 10.0.0.0/16"
	}
}
END`)
	want := state(t, sourcesOf(cidr("10.1.0.0/16")))
	ops := settle(t, ns, h, want)
	require.Len(t, ops, 1)
	require.Contains(t, ops[0].String(),
		"add table ip submariner-route\ndelete table ip submariner-route\ntable ip submariner-route {\n",
		"in one transaction")
	requireEqual(t, want, look(t, ns, h))
	require.Empty(t, settle(t, ns, h, want))
}

// A rule changes alone: the others keep their handles.
func TestRulesChangeInPlace(t *testing.T) {
	ns, h := node(t, dataplane.RouteOwner)
	settle(t, ns, h, state(t, returnsOf(3)))
	const list = "nft -a list chain ip submariner-route-return "
	others := ns.Run(list + "prerouting;" + list + "output")
	end := ns.Run(list + "arrived | grep direction")
	settle(t, ns, h, state(t, returnsOf(2)))
	settle(t, ns, h, state(t, returnsOf(5)))
	require.Equal(t, others, ns.Run(list+"prerouting;"+list+"output"))
	require.Equal(t, end, ns.Run(list+"arrived | grep direction"))
	requireEqual(t, state(t, returnsOf(5)), look(t, ns, h))
}

// A table is what its String, given to a shell, makes.
func TestRulesetsAsPrinted(t *testing.T) {
	for _, r := range []dataplane.Ruleset{
		returnsOf(0),
		returnsOf(3),
		sourcesOf(),
		sourcesOf(cidr("10.1.0.0/16"), cidr("10.2.0.1/32")),
		mapsOfAll(5),
	} {
		ns, h := node(t, dataplane.RouteOwner)
		settle(t, ns, h, state(t, r))
		typed := nstest.New(t, "typed")
		typed.Run(strings.ReplaceAll(r.String(), "\t", " "))
		list := "nft list table ip " + r.Table
		require.Equal(t, sorted(typed.Run(list)), sorted(digests.ReplaceAllString(ns.Run(list), "")))
	}
}

// What nft refuses is an error that says why, and the table stays.
func TestRulesetRefused(t *testing.T) {
	ns, h := node(t, dataplane.RouteOwner)
	settle(t, ns, h, state(t, returnsOf(1)))
	bad := returnsOf(2)
	bad.Add("arrived", "ether saddr none accept")
	var err error
	ns.Do(func() { _, err = dataplane.Sync(t.Context(), h, state(t, bad)) })
	require.ErrorContains(t, err, "none")
	odd := sourcesOf()
	odd.Sets[0].Elements = []string{"10.1.0.0"}
	settle(t, ns, h, state(t, sourcesOf(), returnsOf(1)))
	ns.Do(func() { _, err = dataplane.Sync(t.Context(), h, state(t, odd, returnsOf(1))) })
	require.ErrorContains(t, err, `element "10.1.0.0" of remote`)
	require.Empty(t, settle(t, ns, h, state(t, sourcesOf(), returnsOf(1))))
}
