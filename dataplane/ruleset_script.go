package dataplane

import (
	"fmt"
	"slices"
	"strings"
)

// Script returns the commands of nft(8), for one transaction, that make r of have: of what was observed, or of the zero Ruleset if
// there is no such table. Rules, chains and sets that are in both stay as they are, and sets keep their elements. If another
// program has turned one of them into something else, the whole table is made anew.
func (r Ruleset) Script(have Ruleset) string {
	w := script{table: r.Table}
	w.add("add table inet %s", r.Table)
	if r.conflicts(have) {
		w.add("delete table inet %s", r.Table)
		return w.String() + r.Script(Ruleset{})
	}
	for _, s := range r.Sets {
		if !slices.Contains(have.Sets, s) {
			w.add("add set inet %s %s { %s }", r.Table, s.Name, s.spec())
		}
	}
	for _, c := range r.Chains { // rules of one may lead to another one
		if have.chain(c.Name) == nil {
			w.chain(c)
		}
	}
	for _, c := range have.Chains {
		if r.chain(c.Name) == nil {
			w.add("flush chain inet %s %s", r.Table, c.Name)
		}
	}
	for _, c := range r.Chains {
		switch h := have.chain(c.Name); {
		case h != nil:
			w.rules(c, h.Rules)
		default:
			w.rules(c, nil)
		}
	}
	for _, c := range have.Chains {
		if r.chain(c.Name) == nil {
			w.add("delete chain inet %s %s", r.Table, c.Name)
		}
	}
	for _, s := range have.Sets {
		if !slices.ContainsFunc(r.Sets, func(n RuleSet) bool { return n.Name == s.Name }) {
			w.add("delete set inet %s %s", r.Table, s.Name)
		}
	}
	return w.String()
}

// chain returns the chain of a name, or nil.
func (r Ruleset) chain(name string) *RuleChain {
	if i, ok := slices.BinarySearchFunc(r.Chains, name, func(c RuleChain, name string) int { return strings.Compare(c.Name, name) }); ok {
		return &r.Chains[i]
	}
	return nil
}

// conflicts reports whether a chain or a set of r exists with other settings.
func (r Ruleset) conflicts(have Ruleset) bool {
	return slices.ContainsFunc(have.Chains, func(h RuleChain) bool { c := r.chain(h.Name); return c != nil && !c.same(h) }) ||
		slices.ContainsFunc(have.Sets, func(h RuleSet) bool {
			return slices.ContainsFunc(r.Sets, func(s RuleSet) bool { return s.Name == h.Name && s != h })
		})
}

// script collects commands of nft(8), one a line.
type script struct {
	strings.Builder
	table string
}

func (w *script) add(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }

// chain adds a chain without rules.
func (w *script) chain(c RuleChain) {
	if base := c.base(); base != "" {
		w.add("add chain inet %s %s { %s }", w.table, c.Name, base)
		return
	}
	w.add("add chain inet %s %s", w.table, c.Name)
}

// rules changes the rules of a chain: those between the rules that stay at the beginning and those that stay at the end.
func (w *script) rules(c RuleChain, have []TextRule) {
	first, last := 0, 0
	for first < len(have) && first < len(c.Rules) && sameRule(have[first], c.Rules[first]) {
		first++
	}
	for last < len(have)-first && last < len(c.Rules)-first && sameRule(have[len(have)-1-last], c.Rules[len(c.Rules)-1-last]) {
		last++
	}
	for _, r := range have[first : len(have)-last] {
		w.add("delete rule inet %s %s handle %d", w.table, c.Name, r.Handle)
	}
	put := fmt.Sprintf("add rule inet %s %s", w.table, c.Name)
	if last > 0 {
		put = fmt.Sprintf("insert rule inet %s %s handle %d", w.table, c.Name, have[len(have)-last].Handle)
	}
	for _, r := range c.Rules[first : len(c.Rules)-last] {
		w.add("%s %s", put, r.command())
	}
}
