package sdewan

import (
	"cmp"
	"strconv"

	batch "subctl/api/sdewan/v1alpha1"
)

// Order compares the places of two rules on a CNF: negative if a comes before b. Of the rules that
// match a packet, the first one decides. Rules with a priority come first, in its order, and those
// with the same in the order of their names: whenever they were created, after a restored backup,
// for one, they mean the same. The others are in the order of their creation: the oldest first, and
// those that were created in the same second in the order of their names. Rules of several kinds
// with the same name are in the order of their kinds.
func Order(a, b Rule) int {
	pa := priority(a)
	pb := priority(b)
	if c := cmp.Compare(pa, pb); c != 0 {
		return c
	}
	ta := a.GetCreationTimestamp()
	tb := b.GetCreationTimestamp()
	if c := ta.Compare(tb.Time); c != 0 && pa == last {
		return c
	}
	if c := cmp.Compare(a.GetName(), b.GetName()); c != 0 {
		return c
	}
	ka, _ := KindOf(a)
	kb, _ := KindOf(b)
	return cmp.Compare(ka.Rank(), kb.Rank())
}

// last is the priority of rules without one: after all others.
const last = 1 << 16

// priority returns the priority of a rule. The schema accepts numbers below last only.
func priority(r Rule) int {
	p, ok := r.(interface{ RulePriority() batch.Priority })
	if !ok {
		return last
	}
	n, err := strconv.Atoi(string(p.RulePriority()))
	if err != nil {
		return last
	}
	return n
}
