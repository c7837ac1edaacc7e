//go:build linux

package iptables

import (
	"regexp"
	"slices"

	"subctl/dataplane"
)

// last reports whether a jump is the last rule of its chain that packets reach, except for rules
// that only accept: their order does not matter. (Calico appends such rules, and keeps them at the
// end.)
func last(saved []savedRule, jump savedRule) bool {
	rules := rulesOf(saved, jump.table, jump.chain)
	i := slices.Index(rules, jump)
	end := endOf(saved, rules)
	return i < end && !slices.ContainsFunc(rules[i+1:end], func(r savedRule) bool {
		return r.target() != "ACCEPT" && !anyOwner(r.target())
	})
}

// lastPosition returns the position at which the jump to a chain is inserted, counted from 1 among
// the rules of its hook without such jumps: after all rules, or before the first rule that ends all
// packets, as rules after it see none.
func lastPosition(saved []savedRule, c dataplane.Chain) int {
	rules := slices.DeleteFunc(rulesOf(saved, c.Table, c.Hook), func(r savedRule) bool { return r.target() == c.Name })
	return 1 + endOf(saved, rules)
}

// rulesOf returns the rules of a chain.
func rulesOf(saved []savedRule, table, chain string) (rules []savedRule) {
	for _, r := range saved {
		if r.table == table && r.chain == chain && r.rule != "" {
			rules = append(rules, r)
		}
	}
	return rules
}

// endOf returns the index of the first rule that ends all packets, or the number of rules if there
// is none.
func endOf(saved []savedRule, rules []savedRule) int {
	for i, r := range rules {
		if endsAll(saved, r) {
			return i
		}
	}
	return len(rules)
}

// endsAll reports whether a rule drops or rejects all packets, or leads them to a chain that does
// nothing else, but accept or log some of them first. So do ufw with "reject" as its policy, and
// the rules that images of some clouds and iptables-services have.
func endsAll(saved []savedRule, r savedRule) bool {
	target := r.target()
	switch {
	case !unconditional(r):
		return false
	case refuses(target):
		return true
	}
	for _, inner := range rulesOf(saved, r.table, target) {
		switch {
		case refuses(inner.target()):
			return unconditional(inner)
		case inner.target() == "ACCEPT" && !unconditional(inner), inner.target() == "LOG", inner.target() == "NFLOG":
		default:
			return false
		}
	}
	return false
}

func refuses(target string) bool { return target == "DROP" || target == "REJECT" }

// unconditional reports whether a rule applies to all packets: it has no match except a comment.
func unconditional(r savedRule) bool { return allPackets.MatchString(r.rule) }

var allPackets = regexp.MustCompile(`^(-m comment --comment ("([^"\\]|\\.)*"|\S+) )?-[jg] `)
