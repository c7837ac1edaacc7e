package sdewan

import "cmp"

// Order compares the places of two rules on a CNF: negative if a comes before b. Of the rules that
// match a packet, the first one decides: the oldest. Rules that were created in the same second are
// in the order of their names, and then of their kinds.
func Order(a, b Rule) int {
	ta := a.GetCreationTimestamp()
	tb := b.GetCreationTimestamp()
	if c := ta.Compare(tb.Time); c != 0 {
		return c
	}
	if c := cmp.Compare(a.GetName(), b.GetName()); c != 0 {
		return c
	}
	ka, _ := KindOf(a)
	kb, _ := KindOf(b)
	return cmp.Compare(ka.Rank(), kb.Rank())
}
