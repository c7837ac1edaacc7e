package catalog

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"

	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/policy"
)

// Change is the effect of a change of policies on the pairs of clusters.
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
}

// CableChange is a pair and its cables before and after.
type CableChange struct {
	Pair      policy.Pair
	Now, Then Cable
}

// Cable is the cable of a pair, or the reason why it has none.
type Cable struct {
	Driver   string
	Wanted   string       // the driver that should be used; the same as Driver if there is a cable
	Settings cable.Config // of the policy
	Policy   string       // the policy that decides; empty: the clusters' default driver
	Err      error        // the reason why there is no cable
	// MustEncrypt reports whether the pair must never be connected without encryption.
	MustEncrypt bool
}

// CableOf returns the cable of a pair for which d was decided, if both clusters can have it.
func CableOf(d policy.Decision) Cable {
	return Cable{
		Driver:      d.Driver,
		Wanted:      d.Driver,
		Settings:    d.Config,
		Policy:      d.Policy,
		Err:         d.Err,
		MustEncrypt: d.ForbidsPlain(),
	}
}

// Move counts the pairs that one policy decided and another will decide. An empty name
// stands for the clusters' default driver.
type Move struct {
	From, To string
	Pairs    int
}

// Encrypts reports whether there is a cable, and its packets are encrypted.
func (c Cable) Encrypts() bool {
	return c.Err == nil && policy.SecrecyOf(c.Driver) == policy.Encrypted
}

// mayNotBePlain reports whether the pair has a cable that encrypts, or should have one, or must
// not have another. A driver that is not known may encrypt.
func (c Cable) mayNotBePlain() bool {
	return c.MustEncrypt || c.Wanted != "" && policy.SecrecyOf(c.Wanted) != policy.Plain
}

// Loses reports whether the pair loses its cable, or encryption: it gets an unencrypted cable
// although it has an encrypted one, or should have had one, or must not have been connected
// without encryption.
func (c CableChange) Loses() bool {
	if c.Then.Err != nil {
		return c.Now.Err == nil
	}
	return c.Now.mayNotBePlain() && !c.Then.Encrypts()
}

// Losses returns the pairs that lose their cable, or the encryption of their cable. Commands
// refuse a change with losses unless the user confirms it.
func (c Change) Losses() []CableChange {
	return slices.DeleteFunc(slices.Clone(c.Cables), func(x CableChange) bool { return !x.Loses() })
}

// Compare returns what changes if the clusters and policies become those of then.
func (c *Catalog) Compare(then *Catalog) Change {
	var out Change
	moves := map[[2]string]int{}
	before := map[string]bool{}
	after := map[string]bool{}
	reoffered := c.reoffered(then)
	for was, is := range compared(c.decisions, then.decisions) {
		if !was.there {
			was.dec.Err = c.apart(was.pair)
		}
		if !is.there {
			is.dec.Err = then.apart(is.pair)
		}
		before[was.dec.Policy] = true
		after[is.dec.Policy] = true
		if was.there && is.there && was.dec.Policy != is.dec.Policy {
			moves[[2]string{was.dec.Policy, is.dec.Policy}]++
		}
		others := reoffered[was.pair.X.ID] || reoffered[was.pair.Y.ID]
		if was.dec.Same(is.dec) && !others {
			continue
		}
		x := CableChange{was.pair, c.cable(was.pair, was.dec), then.cable(is.pair, is.dec)}
		if !others || !x.Now.same(x.Then) {
			out.Cables = append(out.Cables, x)
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(
		moves), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		out.Moves = append(out.Moves, Move{k[0], k[1], moves[k]})
	}
	accepted, acceptedThen := c.accepted(), then.accepted()
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if n := called(acceptedThen, name); n > 0 && n == called(accepted, name) && !after[name] {
			out.Idle = append(out.Idle, name)
		}
	}
	known := policy.Shadows(accepted, c.makers())
	out.Shadowed = slices.DeleteFunc(policy.Shadows(acceptedThen, then.makers()),
		func(s policy.Shadow) bool { return slices.Contains(known, s) })
	return out
}

// same reports whether two cables are the same, whichever policies decided.
func (c Cable) same(other Cable) bool {
	if c.Err != nil || other.Err != nil {
		return c.Err != nil && other.Err != nil && c.Err.Error() == other.Err.Error()
	}
	return c.Driver == other.Driver && maps.Equal(c.Settings, other.Settings)
}

// reoffered returns the clusters whose gateways offer other drivers, or other settings, in
// then.
func (c *Catalog) reoffered(then *Catalog) map[string]bool {
	out := map[string]bool{}
	for id, was := range c.gateways {
		if is := then.gateways[id]; len(was) != len(is) || len(was) > 0 && &was[0] != &is[0] {
			out[id] = true
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

// decisions yields all pairs with their decisions, in the order of policy.Book.Pairs.
func (c *Catalog) decisions(yield func(policy.Pair, policy.Decision) bool) {
	c.Book().Pairs(c.Clusters)(yield)
}

// decided is a pair with its decision. If there is no such pair, because the two clusters have
// no clusterset in common or one of them does not exist, there is no decision.
type decided struct {
	pair  policy.Pair
	dec   policy.Decision
	there bool
}

// Connections returns all pairs of clusters that have a clusterset in common, with the cable that
// they should have.
func (c *Catalog) Connections() (out []CableChange) {
	for pair, dec := range c.decisions {
		out = append(out, CableChange{Pair: pair, Then: c.cable(pair, dec)})
	}
	return out
}

// apart returns why two clusters are no pair.
func (c *Catalog) apart(p policy.Pair) error {
	for _, id := range []string{p.X.ID, p.Y.ID} {
		if _, known := c.Cluster(id); !known {
			return fmt.Errorf("cluster %s is not a member", id)
		}
	}
	return errApart
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

func (c *Catalog) cable(pair policy.Pair, dec policy.Decision) Cable {
	out := CableOf(dec)
	if out.Driver, out.Err = c.Cable(pair, dec); out.Err == nil {
		out.Wanted = out.Driver
	}
	return out
}
