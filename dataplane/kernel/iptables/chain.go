//go:build linux

package iptables

import (
	"fmt"
	"slices"
	"strings"

	"subctl/dataplane"
)

// chains are the iptables chains with the owner's names, and the jumps to them.
//
// The last rule of a chain has a comment that identifies the plan: "subctl:FINGERPRINT:RULES:HOOK".
// It is the last match of the rule, so a packet costs it at most if all others match. (A rule of
// its own for the comment costs every packet that gets so far one comparison.) The chain is as
// planned if it has RULES rules, and if exactly one jump leads to it, from HOOK, and before all
// rules that are not jumps to chains of subctl's owners. (Each owner inserts its jumps first; if
// the jumps of other owners counted, the owners would push each other aside forever.) The jump to a
// chain that is Last comes after all rules of others that may decide about a packet: see last.
type chains struct{ *Tables }

const (
	commentMatch = "-m comment --comment "
	commentStart = "subctl:"
	lastMark     = "/last" // after HOOK
	damaged      = "damaged"
)

func (chains) Kinds() []dataplane.Kind { return []dataplane.Kind{dataplane.KindChain} }

func (s chains) List() (out []dataplane.Object, err error) {
	if s.owner.Chains == "" {
		return nil, nil
	}
	saved, err := s.program.look()
	if err != nil {
		return nil, err
	}
	for _, c := range saved {
		if c.rule == "" && s.owner.OwnsChain(c.chain) {
			out = append(out, readChain(saved, c.table, c.chain))
		}
	}
	return out, nil
}

// readChain returns one of the saved chains.
func readChain(saved []savedRule, table, name string) dataplane.Chain {
	c := dataplane.Chain{Table: table, Name: name, Seen: damaged}
	var rules []savedRule
	for _, r := range saved {
		if r.table == table && r.chain == name && r.rule != "" {
			rules = append(rules, r)
			c.Sets = append(c.Sets, matchedSets(r.rule)...)
		}
	}
	slices.Sort(c.Sets)
	c.Sets = slices.Compact(c.Sets)
	jumps := jumpsTo(saved, table, name)
	if len(jumps) > 0 {
		c.Hook = jumps[0].chain
	}
	if len(rules) == 0 {
		return c
	}
	fp, count, hook := parseComment(rules[len(rules)-1].rule)
	hook, c.Last = strings.CutSuffix(hook, lastMark)
	if fp == "" || count != fmt.Sprint(len(rules)) || len(jumps) > 1 || c.Hook != hook {
		return c
	}
	where := first
	if c.Last {
		where = last
	}
	if hook != "" && (jumps[0].rule != "-j "+name || !where(saved, jumps[0])) {
		return c
	}
	c.Seen = fp
	return c
}

// jumpsTo returns the rules that lead to a chain.
func jumpsTo(saved []savedRule, table, name string) (out []savedRule) {
	for _, r := range saved {
		if r.table == table && r.target() == name {
			out = append(out, r)
		}
	}
	return out
}

// first reports whether only jumps to chains of subctl come before a jump.
func first(saved []savedRule, jump savedRule) bool {
	for _, r := range saved {
		switch {
		case r == jump:
			return true
		case r.table == jump.table && r.chain == jump.chain && r.rule != "" && !anyOwner(r.target()):
			return false
		}
	}
	return false
}

// anyOwner reports whether a chain or a set has a name of one of our owners.
func anyOwner(chain string) bool {
	return slices.ContainsFunc(dataplane.Owners(), func(o dataplane.Owner) bool { return o.OwnsChain(chain) })
}

// markedRules returns the rules of a chain, the last of which has the comment. If there is none, or
// it has a comment of its own, that is one more rule, for packets from the broadcast address, of
// which there are none.
func markedRules(c dataplane.Chain) []string {
	rules := slices.Clone(c.Rules)
	if len(rules) == 0 || strings.Contains(rules[len(rules)-1], commentMatch) {
		rules = append(rules, "-s 255.255.255.255/32 -j RETURN")
	}
	hook := c.Hook
	if c.Last {
		hook += lastMark
	}
	text := fmt.Sprintf(`%s"%s%s:%d:%s" `, commentMatch, commentStart, c.Fingerprint(), len(rules), hook)
	last := &rules[len(rules)-1]
	target := max(0, strings.LastIndex(*last, "-j "))
	*last = (*last)[:target] + text + (*last)[target:]
	return rules
}

// parseComment returns the parts of the comment in the last rule of a chain.
func parseComment(rule string) (fingerprint, count, hook string) {
	_, text, _ := strings.Cut(" "+rule, " "+commentMatch)
	text, _, _ = strings.Cut(text, " ")
	text, ok := strings.CutPrefix(strings.Trim(text, `"`), commentStart)
	if f := strings.Split(text, ":"); ok && len(f) == 3 {
		return f[0], f[1], f[2]
	}
	return "", "", ""
}

// matchedSets returns the sets that a rule matches on.
func matchedSets(rule string) (out []string) {
	f := strings.Fields(rule)
	for i, word := range f {
		if word == "--match-set" && i+1 < len(f) {
			out = append(out, f[i+1])
		}
	}
	return out
}

// Put replaces the whole chain, and the jump to it, in one transaction.
func (s chains) Put(_, want dataplane.Object) error {
	c := want.(dataplane.Chain)
	saved, err := s.program.fresh()
	if err != nil {
		return fmt.Errorf("adding chain %s %s: %w", c.Table, c.Name, err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "*%s\n:%s - [0:0]\n", c.Table, c.Name) // creates or empties it
	for _, r := range markedRules(c) {
		fmt.Fprintf(&b, "-A %s %s\n", c.Name, r)
	}
	dropJumps(&b, saved, c)
	switch {
	case c.Last:
		fmt.Fprintf(&b, "-I %s %d -j %s\n", c.Hook, lastPosition(saved, c), c.Name)
	case c.Hook != "":
		fmt.Fprintf(&b, "-I %s 1 -j %s\n", c.Hook, c.Name)
	}
	b.WriteString("COMMIT\n")
	if err := s.program.restore(b.String()); err != nil {
		return fmt.Errorf("adding chain %s %s: %w", c.Table, c.Name, err)
	}
	return nil
}

func (s chains) Delete(old dataplane.Object) error {
	c := old.(dataplane.Chain)
	saved, err := s.program.fresh()
	if err != nil {
		return fmt.Errorf("removing chain %s %s: %w", c.Table, c.Name, err)
	}
	if !slices.Contains(saved, savedRule{table: c.Table, chain: c.Name}) {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "*%s\n", c.Table)
	dropJumps(&b, saved, c)
	fmt.Fprintf(&b, "-F %s\n-X %[1]s\nCOMMIT\n", c.Name)
	if err := s.program.restore(b.String()); err != nil {
		return fmt.Errorf("removing chain %s %s: %w", c.Table, c.Name, err)
	}
	return nil
}

// dropJumps removes the jumps to a chain, whichever program added them: each would keep the
// chain from being removed, or lead to it twice.
func dropJumps(b *strings.Builder, saved []savedRule, c dataplane.Chain) {
	for _, j := range jumpsTo(saved, c.Table, c.Name) {
		fmt.Fprintf(b, "-D %s %s\n", j.chain, j.rule)
	}
}
