package catalog

import (
	"iter"
	"maps"
	"slices"

	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/policy"
)

// Change is what other policies mean for the pairs of clusters.
type Change struct {
	// Cables are the pairs whose cable changes, or its settings, by cluster IDs.
	Cables []CableChange
	// Moves count the pairs that another policy decides, sorted.
	Moves []Move
	// Idle are the policies that decided pairs, and decide none any more though they are
	// still there, sorted.
	Idle []string
	// Shadowed are rules that never decide any more, whatever clusters there will be.
	Shadowed []policy.Shadow
}

// CableChange is a pair and its cables before and after.
type CableChange struct {
	Pair      policy.Pair
	Now, Then Cable
}

// Cable is how a pair is joined, or why it is not.
type Cable struct {
	Driver   string
	Settings cable.Config // of the policy
	Policy   string       // that decides; empty: the clusters' own default
	Err      error        // why there is none
}

// Move is a number of pairs that one policy decided and another will. An empty name is
// the clusters' own default.
type Move struct {
	From, To string
	Pairs    int
}

// Compare says what changes if the policies become others.
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

// called counts the policies of a name: clustersets may have different ones.
func called(policies []*v1alpha1.CablePolicies, name string) int {
	n := 0
	for _, p := range policies {
		if p.SharedName() == name {
			n++
		}
	}
	return n
}

// decisions returns what policies decide on one pair after the other, in the order of
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

// Review is what a new policy matches now, and what stands in its way.
type Review struct {
	Policy *v1alpha1.CablePolicies
	// Selected are the IDs of the clusters that the left and right selectors of each rule
	// select.
	Selected [][2][]string
	// Matched are the pairs that it matches.
	Matched []policy.Pair
	// Lost are those of them that another policy decides still, by its name.
	Lost map[string][]policy.Pair
	// Lacking are the clusters that do not offer the driver they would need, by that.
	Lacking map[string][]string
	// Refused are the pairs that offer the driver, and cannot be joined by it.
	Refused []Refusal
}

// Refusal is a pair that a driver cannot join.
type Refusal struct {
	Pair   policy.Pair
	Driver string
	Err    error
}

// Review looks at each of some new policies, in their places.
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

// review notes a pair that the policy matches, and what is decided on it.
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
