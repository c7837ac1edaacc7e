package dataplane

import (
	"fmt"
	"slices"
	"strings"
)

// FlowTable is a flow table of a Ruleset (https://docs.kernel.org/networking/nf_flowtable.html): the kernel forwards packets of connections
// that are in it without any rule, and by the routes by which the connections were added. The rules that add connections are in the
// chain that has the same name as the flow table, and nowhere else.
//
// A connection in the table does not see what changes in rules. So each change of a Ruleset makes the table anew, in the same transaction: the next packet
// of each connection passes the rules again, which may add it again. Routes and policy rules need nothing of this kind: when one changes, the
// kernel takes connections out of the table itself.
type FlowTable struct {
	Name    string
	Devices []string // whose packets are looked up in it; sorted
	// Odd reports that a table that was observed has settings that a plan cannot express.
	Odd bool
}

// Rule returns the rule that adds the connection of a packet. Packets that have been in an IPsec tunnel, or will be, are left
// out: the table would bypass the policies of IPsec.
func (f FlowTable) Rule() string {
	return "meta ipsec missing rt ipsec missing flow add @" + f.Name
}

// spec returns what a flow table is.
func (f FlowTable) spec() string {
	quoted := make([]string, len(f.Devices))
	for i, d := range f.Devices {
		quoted[i] = fmt.Sprintf("%q", d)
	}
	return fmt.Sprintf("hook ingress priority 0; devices = { %s };", strings.Join(quoted, ", "))
}

func (f FlowTable) equal(o FlowTable) bool {
	return f.Name == o.Name && f.Odd == o.Odd && slices.Equal(f.Devices, o.Devices)
}

// adds reports whether a chain adds connections to a flow table.
func (r Ruleset) adds(chain string) bool {
	return slices.ContainsFunc(r.FlowTables, func(f FlowTable) bool { return f.Name == chain })
}

// withoutFlows returns r without what adds connections to flow tables, and removes that, too.
func (w *script) withoutFlows(r Ruleset) Ruleset {
	r.Chains = slices.Clone(r.Chains)
	for i, c := range r.Chains {
		if r.adds(c.Name) {
			w.add("flush chain inet %s %s", w.table, c.Name)
			r.Chains[i].Rules = nil
		}
	}
	return r
}

// flows replaces the flow tables of have by the flow tables of r. No rule refers to a flow table of have any more: see withoutFlows.
func (w *script) flows(r, have Ruleset) {
	for _, f := range have.FlowTables {
		w.add("delete flowtable inet %s %s", w.table, f.Name)
	}
	for _, f := range r.FlowTables {
		w.add("add flowtable inet %s %s { %s }", w.table, f.Name, f.spec())
	}
	for _, c := range r.Chains {
		if r.adds(c.Name) {
			var rules []TextRule
			if h := have.chain(c.Name); h != nil {
				rules = h.Rules
			}
			w.rules(c, rules)
		}
	}
}
