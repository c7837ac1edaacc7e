//go:build linux

package iptables

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"subctl/dataplane"

	goiptables "github.com/coreos/go-iptables/iptables"
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

// Put adds a chain and the jump to it. In a chain that exists, the rules come before the old ones,
// which are then removed, and the jump stays if it is where it must be: what is accepted is
// accepted meanwhile.
func (s chains) Put(_, want dataplane.Object) error {
	c := want.(dataplane.Chain)
	saved, err := s.program.fresh()
	if err == nil {
		err = s.program.write(func(ipt *goiptables.IPTables) error { return put(ipt, saved, c) })
	}
	if err != nil {
		return fmt.Errorf("adding chain %s %s: %w", c.Table, c.Name, err)
	}
	return nil
}

func put(ipt *goiptables.IPTables, saved []savedRule, c dataplane.Chain) (err error) {
	if !slices.Contains(saved, savedRule{table: c.Table, chain: c.Name}) {
		if err := ipt.NewChain(c.Table, c.Name); err != nil {
			return err
		}
		defer func() {
			if err != nil {
				err = errors.Join(err, ipt.ClearAndDeleteChain(c.Table, c.Name))
			}
		}()
	}
	rules := markedRules(c)
	for i, r := range rules {
		if err := ipt.Insert(c.Table, c.Name, i+1, words(r)...); err != nil {
			return err
		}
	}
	for range rulesOf(saved, c.Table, c.Name) {
		if err := ipt.DeleteById(c.Table, c.Name, len(rules)+1); err != nil {
			return err
		}
	}
	where := first
	if c.Last {
		where = last
	}
	jumps := jumpsTo(saved, c.Table, c.Name)
	if len(jumps) == 1 && jumps[0].chain == c.Hook && jumps[0].rule == "-j "+c.Name && where(saved, jumps[0]) {
		return nil
	}
	if err := dropJumps(ipt, saved, c); err != nil {
		return err
	}
	switch {
	case c.Last:
		return ipt.Insert(c.Table, c.Hook, lastPosition(saved, c), "-j", c.Name)
	case c.Hook != "":
		return ipt.Insert(c.Table, c.Hook, 1, "-j", c.Name)
	}
	return nil
}

func (s chains) Delete(old dataplane.Object) error {
	c := old.(dataplane.Chain)
	saved, err := s.program.fresh()
	if err == nil && slices.Contains(saved, savedRule{table: c.Table, chain: c.Name}) {
		err = s.program.write(func(ipt *goiptables.IPTables) error {
			if err := dropJumps(ipt, saved, c); err != nil {
				return err
			}
			return ipt.ClearAndDeleteChain(c.Table, c.Name)
		})
	}
	if err != nil {
		return fmt.Errorf("removing chain %s %s: %w", c.Table, c.Name, err)
	}
	return nil
}

// dropJumps removes the jumps to a chain, whichever program added them: each would keep the chain
// from being removed, or lead to it twice.
func dropJumps(ipt *goiptables.IPTables, saved []savedRule, c dataplane.Chain) error {
	for _, j := range jumpsTo(saved, c.Table, c.Name) {
		if err := ipt.Delete(c.Table, j.chain, words(j.rule)...); err != nil {
			return err
		}
	}
	return nil
}

// words returns the arguments that iptables-save has printed as one line.
func words(rule string) (out []string) {
	for _, w := range quoted.FindAllString(rule, -1) {
		if inner, ok := strings.CutPrefix(w, `"`); ok {
			w = escaped.ReplaceAllString(strings.TrimSuffix(inner, `"`), "$1")
		}
		out = append(out, w)
	}
	return out
}

var (
	quoted  = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\S+`)
	escaped = regexp.MustCompile(`\\(.)`)
)
