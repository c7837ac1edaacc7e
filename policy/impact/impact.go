// Package impact computes what a change means for clusters: which pairs get another cable, which of
// them lose it or its encryption, which clusters are cut off, and which use the same addresses
// although a cluster should reach both. It compares the clusters and policies before and after the
// change, and does no I/O. All commands that change something for other clusters use it, and refuse
// the same changes with the same words.
package impact

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"

	"subctl/api/submariner/v1alpha1"
	"subctl/internal/words"
	"subctl/policy"
	"subctl/policy/catalog"
)

// Change is what a change means for clusters.
type Change struct {
	// Cables are the pairs whose cable or its settings change, sorted by cluster IDs.
	Cables []CableChange
	// Moves count the pairs that another policy decides than before, sorted.
	Moves []Move
	// Idle are the remaining policies that decided pairs before and no longer decide any,
	// sorted.
	Idle []string
	// Shadowed are the rules that can no longer decide any pair, whatever clusters join.
	Shadowed []policy.Shadow
	// Alone are the clusters that are in no clusterset any more, sorted.
	Alone []string
	// Conflicts are clusters that use the same addresses, sorted. Of does not look for them, as few
	// changes can cause them: see NewConflicts.
	Conflicts []Conflict
}

// CableChange is a pair and its cables before and after.
type CableChange struct {
	Pair      policy.Pair
	Now, Then catalog.Cable
	// New reports whether the two clusters had no clusterset in common before, or were no members;
	// Ended, whether that is so afterwards. Then the cable of that time has an error.
	New, Ended bool
}

// Connection returns the pair with the cable that it gets.
func (c CableChange) Connection() catalog.Connection {
	return catalog.Connection{Pair: c.Pair, Cable: c.Then}
}

// Other returns the cluster to which the pair connects a cluster; empty if that is not one of the
// pair.
func (c CableChange) Other(id string) string {
	switch id {
	case c.Pair.X.ID:
		return c.Pair.Y.ID
	case c.Pair.Y.ID:
		return c.Pair.X.ID
	}
	return ""
}

// Move counts the pairs that one policy decided and another will decide. An empty name
// stands for the clusters' default driver.
type Move struct {
	From, To string
	Pairs    int
}

func (m Move) String() string {
	return fmt.Sprintf("%s: %s decides instead of %s", words.Count(m.Pairs, "pair"), catalog.Decider(m.To),
		catalog.Decider(m.From))
}

// Loses reports whether the pair loses its cable, or encryption: it gets an unencrypted cable
// although it has an encrypted one, or should have had one, or must not have been connected
// without encryption.
func (c CableChange) Loses() bool {
	if c.Then.Err != nil {
		return c.Now.Err == nil
	}
	return c.Now.MayNotBePlain() && !c.Then.Encrypts()
}

// Empty reports whether no pair changes its cable, and there is no warning.
func (c Change) Empty() bool { return len(c.Cables) == 0 && len(c.Warnings()) == 0 }

// Losses returns the pairs that lose their cable, or the encryption of their cable.
func (c Change) Losses() []CableChange {
	return slices.DeleteFunc(slices.Clone(c.Cables), func(x CableChange) bool { return !x.Loses() })
}

// On returns the pairs of a cluster whose cable changes.
func (c Change) On(id string) []CableChange {
	return slices.DeleteFunc(slices.Clone(c.Cables), func(x CableChange) bool { return x.Other(id) == "" })
}

// Of returns what it means if the clusters and policies of was become those of is.
func Of(was, is *catalog.Catalog) Change {
	var out Change
	moves := map[[2]string]int{}
	before := map[string]bool{}
	after := map[string]bool{}
	reoffered := was.Reoffered(is)
	for a, b := range compared(was.Decisions, is.Decisions) {
		if !a.there {
			a.dec.Err = was.Apart(a.pair)
		}
		if !b.there {
			b.dec.Err = is.Apart(b.pair)
		}
		before[a.dec.Policy] = true
		after[b.dec.Policy] = true
		if a.there && b.there && a.dec.Policy != b.dec.Policy {
			moves[[2]string{a.dec.Policy, b.dec.Policy}]++
		}
		others := reoffered[a.pair.X.ID] || reoffered[a.pair.Y.ID]
		if a.dec.Same(b.dec) && !others {
			continue
		}
		x := CableChange{
			Pair:  b.pair,
			Now:   was.CableOf(a.pair, a.dec),
			Then:  is.CableOf(b.pair, b.dec),
			New:   !a.there,
			Ended: !b.there,
		}
		if !others || !x.Now.Same(x.Then) {
			out.Cables = append(out.Cables, x)
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(moves), func(a, b [2]string) int {
		return slices.Compare(a[:], b[:])
	}) {
		out.Moves = append(out.Moves, Move{k[0], k[1], moves[k]})
	}
	accepted := was.Accepted()
	acceptedThen := is.Accepted()
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if n := called(acceptedThen, name); n > 0 && n == called(accepted, name) && !after[name] {
			out.Idle = append(out.Idle, name)
		}
	}
	known := policy.Shadows(accepted, was.Makers())
	out.Shadowed = slices.DeleteFunc(policy.Shadows(acceptedThen, is.Makers()),
		func(s policy.Shadow) bool { return slices.Contains(known, s) })
	for _, cluster := range was.Clusters {
		if then, there := is.Cluster(cluster.ID); there && len(cluster.Sets) > 0 && len(then.Sets) == 0 {
			out.Alone = append(out.Alone, cluster.ID)
		}
	}
	return out
}

// called returns the number of policies of a name: clustersets may have different ones.
func called(policies []*v1alpha1.CablePolicies, name string) int {
	n := 0
	for _, p := range policies {
		if p.SharedName() == name {
			n++
		}
	}
	return n
}

// decided is a pair with its decision. If there is no such pair, because the two clusters have
// no clusterset in common or one of them does not exist, there is no decision.
type decided struct {
	pair  policy.Pair
	dec   policy.Decision
	there bool
}

// compared yields every pair that is in one of two sorted sequences, with both decisions.
func compared(was, is iter.Seq2[policy.Pair, policy.Decision]) iter.Seq2[decided, decided] {
	return func(yield func(decided, decided) bool) {
		nextWas, stopWas := pulled(was)
		defer stopWas()
		nextIs, stopIs := pulled(is)
		defer stopIs()
		a := nextWas()
		b := nextIs()
		for a.there || b.there {
			var more bool
			switch order := a.compare(b); {
			case order < 0:
				more = yield(a, decided{pair: a.pair})
				a = nextWas()
			case order > 0:
				more = yield(decided{pair: b.pair}, b)
				b = nextIs()
			default:
				more = yield(a, b)
				a = nextWas()
				b = nextIs()
			}
			if !more {
				return
			}
		}
	}
}

// compare compares pairs by the IDs of their clusters. A pair that is not there comes last.
func (d decided) compare(other decided) int {
	switch {
	case !d.there:
		return 1
	case !other.there:
		return -1
	}
	return cmp.Or(cmp.Compare(d.pair.X.ID, other.pair.X.ID), cmp.Compare(d.pair.Y.ID, other.pair.Y.ID))
}

func pulled(seq iter.Seq2[policy.Pair, policy.Decision]) (next func() decided, stop func()) {
	pull, stop := iter.Pull2(seq)
	return func() decided {
		pair, dec, ok := pull()
		return decided{pair, dec, ok}
	}, stop
}
