package catalog

import (
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
	Settings cable.Config // of the policy
	Policy   string       // the policy that decides; empty: the clusters' default driver
	Err      error        // the reason why there is no cable
}

// Move counts the pairs that one policy decided and another will decide. An empty name
// stands for the clusters' default driver.
type Move struct {
	From, To string
	Pairs    int
}

// Compare returns what changes if the policies are replaced by then.
func (c *Catalog) Compare(then []*v1alpha1.CablePolicies) Change {
	var out Change
	moves := map[[2]string]int{}
	before, after := map[string]bool{}, map[string]bool{}
	next, stop := c.decisions(then)
	defer stop()
	for pair, was := range policy.Compile(c.Policies).Pairs(c.Clusters) {
		is := next()
		before[was.Policy], after[is.Policy] = true, true
		if was.Policy != is.Policy {
			moves[[2]string{was.Policy, is.Policy}]++
		}
		if !was.Same(is) {
			out.Cables = append(out.Cables, CableChange{pair, c.cable(pair, was), c.cable(pair, is)})
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(moves), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		out.Moves = append(out.Moves, Move{k[0], k[1], moves[k]})
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if n := called(then, name); n > 0 && n == called(c.Policies, name) && !after[name] {
			out.Idle = append(out.Idle, name)
		}
	}
	known := policy.Shadows(c.Policies)
	out.Shadowed = slices.DeleteFunc(policy.Shadows(then), func(s policy.Shadow) bool { return slices.Contains(known, s) })
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

// decisions returns an iterator over the decisions for all pairs, in the order of
// policy.Book.Pairs.
func (c *Catalog) decisions(policies []*v1alpha1.CablePolicies) (next func() policy.Decision, stop func()) {
	pull, stop := iter.Pull2(policy.Compile(policies).Pairs(c.Clusters))
	return func() policy.Decision {
		_, dec, _ := pull()
		return dec
	}, stop
}

func (c *Catalog) cable(pair policy.Pair, dec policy.Decision) Cable {
	driver, err := c.Cable(pair, dec)
	return Cable{driver, dec.Config, dec.Policy, err}
}

// Review describes which pairs a new policy matches, and which of them do not get its cable.
type Review struct {
	Policy *v1alpha1.CablePolicies
	// Selected are the IDs of the clusters that the left and right selectors of each rule
	// select.
	Selected [][2][]string
	// Matched are the pairs that the policy matches.
	Matched []policy.Pair
	// Lost are the matched pairs that another policy decides, by the name of that policy.
	Lost map[string][]policy.Pair
	// Lacking are the clusters that do not offer the driver of a pair, by driver.
	Lacking map[string][]string
	// Refused are the pairs that offer the driver, but that the driver cannot connect.
	Refused []Refusal
}

// Refusal is a pair that a driver cannot connect.
type Refusal struct {
	Pair   policy.Pair
	Driver string
	Err    error
}

// Review reviews new policies, after Place.
func (c *Catalog) Review(policies []*v1alpha1.CablePolicies) []Review {
	var out []Review
	then := c.With(policies)
	for _, p := range policies {
		r := Review{Policy: p, Lost: map[string][]policy.Pair{}, Lacking: map[string][]string{}}
		for _, rule := range p.ConnectionPolicies {
			r.Selected = append(r.Selected, [2][]string{
				policy.Select(rule.LeftClusterSelector, c.Clusters), policy.Select(rule.RightClusterSelector, c.Clusters),
			})
		}
		next, stop := c.decisions(then)
		for pair, would := range policy.Compile([]*v1alpha1.CablePolicies{c.shared(p)}).Pairs(c.Clusters) {
			if is := next(); would.Policy == p.Name {
				c.review(&r, pair, is)
			}
		}
		stop()
		out = append(out, r)
	}
	return out
}

// review adds a pair that the policy matches, with its decision, to r.
func (c *Catalog) review(r *Review, pair policy.Pair, is policy.Decision) {
	r.Matched = append(r.Matched, pair)
	if is.Policy != r.Policy.Name {
		r.Lost[is.Policy] = append(r.Lost[is.Policy], pair)
		return
	}
	offered := true
	for _, id := range []string{pair.X.ID, pair.Y.ID} {
		if c.lacks(id, is.Driver) {
			offered = false
			if !slices.Contains(r.Lacking[is.Driver], id) {
				r.Lacking[is.Driver] = append(r.Lacking[is.Driver], id)
			}
		}
	}
	if !offered || is.Err != nil {
		return
	}
	if err := c.refusal(pair, is); err != nil {
		r.Refused = append(r.Refused, Refusal{pair, is.Driver, err})
	}
}
