package dataplane

import (
	"fmt"
	"slices"
	"strings"
)

// Script returns the commands of nft(8), for one transaction, that make r of have: of what was
// observed, or of the zero Ruleset if there is no such table. Rules, chains, sets and elements that
// are in both stay as they are. If another program has turned one of them into something else, the
// whole table is made anew.
func (r Ruleset) Script(have Ruleset) string {
	w := script{table: r.Family + " " + r.Table}
	if have.Table == "" {
		return r.block(true)
	}
	w.add("add table %s", w.table)
	if r.conflicts(have) {
		w.add("delete table %s", w.table)
		return w.String() + r.block(true)
	}
	if r.Equal(have) {
		return w.String()
	}
	for _, s := range r.Sets {
		if have.Set(s.Name) == nil {
			w.add("add %s %s %s { %s comment \"#%s\"; }", s.command(), w.table, s.Name, s.spec(), s.Digest())
		}
	}
	for _, c := range r.Chains { // rules of one may lead to another one
		if have.Chain(c.Name) == nil {
			w.chain(c)
		}
	}
	for _, c := range have.Chains {
		if r.Chain(c.Name) == nil {
			w.add("flush chain %s %s", w.table, c.Name)
		}
	}
	for _, s := range r.Sets {
		var elements []string
		if h := have.Set(s.Name); h != nil {
			elements = h.Elements
		}
		w.elements("delete", s.Name, WithoutElements(elements, s.Elements))
		w.elements("add", s.Name, WithoutElements(s.Elements, elements))
	}
	for _, name := range r.Forgotten(have) {
		w.add("flush set %s %s", w.table, name)
	}
	for _, c := range r.Chains {
		var rules []TextRule
		if h := have.Chain(c.Name); h != nil {
			rules = h.Rules
		}
		w.rules(c, rules)
	}
	for _, s := range have.Sets { // elements of a map may lead to chains
		if r.Set(s.Name) == nil {
			w.add("delete %s %s %s", s.command(), w.table, s.Name)
		}
	}
	for _, c := range have.Chains {
		if r.Chain(c.Name) == nil {
			w.add("delete chain %s %s", w.table, c.Name)
		}
	}
	return w.String()
}

// Chain returns the chain of a name, or nil.
func (r Ruleset) Chain(name string) *RuleChain {
	if i, ok := slices.BinarySearchFunc(r.Chains, name, byName); ok {
		return &r.Chains[i]
	}
	return nil
}

// Set returns the set of a name, or nil.
func (r Ruleset) Set(name string) *RuleSet {
	if i, ok := slices.BinarySearchFunc(r.Sets, name, bySetName); ok {
		return &r.Sets[i]
	}
	return nil
}

// Forgotten returns the names of the sets whose elements are forgotten when have becomes r.
func (r Ruleset) Forgotten(have Ruleset) (names []string) {
	for _, s := range r.Sets {
		of := r.Set(s.Remembers)
		had := have.Set(s.Remembers)
		if of != nil && had != nil && have.Set(s.Name) != nil && len(WithoutElements(had.Elements, of.Elements)) > 0 {
			names = append(names, s.Name)
		}
	}
	return names
}

// conflicts reports whether a chain or a set of r exists with other settings.
func (r Ruleset) conflicts(have Ruleset) bool {
	return slices.ContainsFunc(have.Chains,
		func(h RuleChain) bool { c := r.Chain(h.Name); return c != nil && !c.same(h) }) ||
		slices.ContainsFunc(have.Sets, func(h RuleSet) bool { s := r.Set(h.Name); return s != nil && !s.same(h) })
}

// WithoutElements returns the elements of a that are not in b. Both are sorted.
func WithoutElements(a, b []string) (out []string) {
	for _, e := range a {
		for len(b) > 0 && b[0] < e {
			b = b[1:]
		}
		if len(b) == 0 || b[0] != e {
			out = append(out, e)
		}
	}
	return out
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
		w.add("add chain %s %s { %s }", w.table, c.Name, base)
		return
	}
	w.add("add chain %s %s", w.table, c.Name)
}

// elementBatch is the number of elements in one command.
const elementBatch = 500

// elements adds or deletes elements of a set.
func (w *script) elements(verb, set string, elements []string) {
	for some := range slices.Chunk(elements, elementBatch) {
		w.add("%s element %s %s { %s }", verb, w.table, set, strings.Join(some, ", "))
	}
}

// rules changes the rules of a chain: those between the rules that stay at the beginning and those
// that stay at the end.
func (w *script) rules(c RuleChain, have []TextRule) {
	first := 0
	last := 0
	for first < len(have) && first < len(c.Rules) && sameRule(have[first], c.Rules[first]) {
		first++
	}
	for last < len(have)-first && last < len(c.Rules)-first &&
		sameRule(have[len(have)-1-last], c.Rules[len(c.Rules)-1-last]) {
		last++
	}
	for _, r := range have[first : len(have)-last] {
		w.add("delete rule %s %s handle %d", w.table, c.Name, r.Handle)
	}
	put := fmt.Sprintf("add rule %s %s", w.table, c.Name)
	if last > 0 {
		put = fmt.Sprintf("insert rule %s %s handle %d", w.table, c.Name, have[len(have)-last].Handle)
	}
	for _, r := range c.Rules[first : len(c.Rules)-last] {
		w.add("%s %s", put, r.command())
	}
}
