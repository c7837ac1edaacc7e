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
	if r.Conflicts(have) {
		w.add("delete table %s", w.table)
		return w.String() + r.block(true)
	}
	if r.Equal(have) {
		return w.String()
	}
	for _, s := range r.Sets {
		if have.Set(s.Name) == nil {
			w.add("add %s %s %s { %s comment %q; }", s.command(), w.table, s.Name, s.spec(), s.Comment())
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

// Prepared returns a table in two steps between have and r, which change nothing for packets, and
// no elements that exist: first the sets and the chains without a hook that have lacks, all empty,
// and then also what goes over netlink, the elements of these sets and the rules with an Inner. So
// Script, which does the rest, is short and not long in coming into effect, however many elements
// there are. There is nothing to prepare if both are the same.
func (r Ruleset) Prepared(have Ruleset) (empty, filled Ruleset) {
	empty = have
	empty.Family = r.Family
	empty.Table = r.Table
	empty.Sets = slices.Clone(have.Sets)
	empty.Chains = slices.Clone(have.Chains)
	for _, s := range r.Sets {
		if have.Set(s.Name) == nil {
			s.Elements = nil
			empty.Sets = append(empty.Sets, s)
		}
	}
	for _, c := range r.Chains {
		if c.Hook == "" && have.Chain(c.Name) == nil {
			empty.Chains = append(empty.Chains, RuleChain{Name: c.Name})
		}
	}
	slices.SortFunc(empty.Sets, func(a, b RuleSet) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(empty.Chains, func(a, b RuleChain) int { return strings.Compare(a.Name, b.Name) })
	filled = empty
	filled.Sets = slices.Clone(empty.Sets)
	filled.Chains = slices.Clone(empty.Chains)
	for i, s := range filled.Sets {
		if have.Set(s.Name) == nil {
			filled.Sets[i].Elements = r.Set(s.Name).Elements
		}
	}
	for i, c := range filled.Chains {
		if rule, is := r.InnerRule(c.Name); is && !slices.ContainsFunc(c.Rules, rule.same) {
			filled.Chains[i].Rules = append(slices.Clone(c.Rules), rule)
		}
	}
	return empty, filled
}

// HasInner reports whether a rule of the table goes over netlink.
func (r Ruleset) HasInner() bool {
	return slices.ContainsFunc(r.Chains, func(c RuleChain) bool { _, is := r.InnerRule(c.Name); return is })
}

// InnerRule returns the rule of a chain that goes over netlink; false if it has none.
func (r Ruleset) InnerRule(chain string) (TextRule, bool) {
	if c := r.Chain(chain); c != nil && len(c.Rules) == 1 && c.Rules[0].Inner.Map != "" {
		return c.Rules[0], true
	}
	return TextRule{}, false
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

// Conflicts reports whether a chain or a set of r exists with other settings.
func (r Ruleset) Conflicts(have Ruleset) bool {
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

// Without returns the items of a that are not in b. Both are sorted.
func Without[T interface{ Compare(T) int }](a, b []T) (out []T) {
	for _, m := range a {
		for len(b) > 0 && b[0].Compare(m) < 0 {
			b = b[1:]
		}
		if len(b) == 0 || b[0].Compare(m) != 0 {
			out = append(out, m)
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
	for first < len(have) && first < len(c.Rules) && have[first].same(c.Rules[first]) {
		first++
	}
	for last < len(have)-first && last < len(c.Rules)-first &&
		have[len(have)-1-last].same(c.Rules[len(c.Rules)-1-last]) {
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
		if r.Inner.Map != "" {
			put = "" // a comment
		}
		w.add("%s", strings.TrimSpace(put+" "+r.command()))
	}
}
