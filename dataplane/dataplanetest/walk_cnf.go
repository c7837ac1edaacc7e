package dataplanetest

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"subctl/dataplane"
)

// randomCNF returns a plan that a CNF could have.
func randomCNF(r *rand.Rand) dataplane.State {
	s := dataplane.State{}
	add := func(o dataplane.Object) {
		if err := s.Add(o); err != nil {
			panic(err) // an error in this function
		}
	}
	if r.IntN(4) > 0 {
		add(randomRuleset(r))
	}
	for i := range r.IntN(4) {
		src := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), 0, 0}), pick(r, 16, 24))
		rule := dataplane.PolicyRule{
			Priority: pick(r, 100, 7000) + i,
			Not:      r.IntN(3) == 0,
			Src:      src,
			Table:    pick(r, 40, 254, 1234),
		}
		if r.IntN(3) == 0 {
			rule.Mark = pick[uint32](r, 1, 2)
			rule.Mask = 0xff
		}
		if r.IntN(3) == 0 {
			rule.Dst = netip.MustParsePrefix("192.0.2.0/24")
		}
		add(dataplane.NewRule(rule))
		add(dataplane.NewRule(dataplane.PolicyRule{Priority: 999, Src: src, Table: 40})) // many with one priority
	}
	if r.IntN(2) == 0 {
		add(
			dataplane.PolicyRule{
				Priority: 3001,
				Mark:     0x100,
				Mask:     0x3f00,
				Action:   pick(r, dataplane.ActionUnreachable, dataplane.ActionBlackhole),
			},
		)
		add(dataplane.MarkRule{Priority: 2001, Mark: 0x100, Mask: 0x3f00, Table: 41})
		add(dataplane.Arrival{Priority: 1001, Dev: pick(r, "eth0", "net1"), Table: 41})
	}
	for i := range r.IntN(3) {
		hop := dataplane.Hop{Dev: "eth0", Weight: 1}
		if r.IntN(2) == 0 {
			hop.Via = netip.AddrFrom4([4]byte{172, 18, 0, pick[byte](r, 1, 9)})
		}
		m := dataplane.Multipath{
			Table: pick(r, 40, 41, 254),
			Dst:   netip.PrefixFrom(netip.AddrFrom4([4]byte{20, byte(i), 0, 0}), 16),
			Hops:  []dataplane.Hop{hop},
		}
		if r.IntN(2) == 0 {
			m.Src = netip.MustParseAddr(NodeIP)
		}
		add(m)
	}
	return s
}

// randomRuleset returns a table whose chains have common rules at the beginning, in the middle or
// at the end.
func randomRuleset(r *rand.Rand) dataplane.Object {
	out := dataplane.Ruleset{Family: dataplane.CNFRules.Family, Table: dataplane.CNFRules.Name}
	for i := range r.IntN(3) {
		out.Sets = append(out.Sets, dataplane.RuleSet{
			Name:  fmt.Sprint("sticky_", i),
			Type:  "ipv4_addr",
			Flags: "dynamic,timeout",
			Size:  pick(r, 1000, 1000, 2000),
		})
	}
	for i := range r.IntN(4) {
		c := dataplane.RuleChain{Name: fmt.Sprint("zone_", i+r.IntN(2)*4)}
		for n := range r.IntN(6) {
			rule := dataplane.TextRule{Text: fmt.Sprintf("ip saddr 10.%d.0.0/16 tcp dport %d accept", r.IntN(3), 80+n)}
			if r.IntN(2) == 0 {
				rule.Note = pick(r, "http-rule", "a name, with \"quotes\" and \\")
			}
			if len(out.Sets) > 0 && r.IntN(4) == 0 {
				rule.Text = fmt.Sprintf("update @%s { ip saddr timeout 600s }", out.Sets[0].Name)
			}
			c.Rules = append(c.Rules, rule)
		}
		if len(out.Chains) > 0 && r.IntN(2) == 0 {
			c.Rules = append(
				c.Rules,
				dataplane.TextRule{
					Text: "numgen inc mod 5 vmap { 0-1 : jump " + out.Chains[0].Name + ", 2-4 : accept }",
				},
			)
		}
		out.Chains = append(out.Chains, c)
	}
	for _, hook := range []string{"input", "prerouting"} {
		if r.IntN(2) == 0 {
			c := dataplane.RuleChain{
				Name:     "fw_" + hook,
				Type:     pick(r, "filter", "filter", "nat"),
				Hook:     hook,
				Priority: pick(r, -150, 0),
			}
			if c.Type == "nat" {
				c.Priority = 100
				if hook == "prerouting" {
					c.Priority = -100
				}
			}
			if len(out.Chains) > 0 && out.Chains[0].Hook == "" {
				c.Rules = append(c.Rules,
					dataplane.TextRule{Text: `iifname "eth0" jump ` + out.Chains[0].Name, Note: "a"})
			}
			out.Chains = append(out.Chains, c)
		}
	}
	slices.SortFunc(out.Chains, func(a, b dataplane.RuleChain) int { return strings.Compare(a.Name, b.Name) })
	return out
}
