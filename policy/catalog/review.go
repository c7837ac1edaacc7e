package catalog

import (
	"iter"
	"slices"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/policy"
)

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
	// SetAside are the matched pairs of other clusters that the policy would deprive of
	// encryption.
	SetAside []policy.Pair
	// Lacking are the clusters that do not offer the driver of a pair, each as an error with
	// the reason, by driver and cluster ID.
	Lacking map[string]map[string]error
	// Refused are the pairs that offer the driver, but that the driver cannot connect.
	Refused []Refusal
	// Limited are the pairs in which the driver connects fewer gateways of a cluster than are
	// active.
	Limited []Limit
	// Disclosure is what the policy tells clusters about clusters of other clustersets.
	Disclosure Disclosure
}

// Limit is a pair in which a driver does not connect all active gateways.
type Limit struct {
	Pair policy.Pair
	Err  error
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
	for _, p := range policies {
		clusters := c.inAnyOf(c.SetsOf(p))
		r := Review{
			Policy:     p,
			Disclosure: c.disclosure(p),
			Lost:       map[string][]policy.Pair{},
			Lacking:    map[string]map[string]error{},
		}
		for _, rule := range p.ConnectionPolicies {
			r.Selected = append(r.Selected, [2][]string{
				policy.Select(rule.LeftClusterSelector, clusters), policy.Select(rule.RightClusterSelector, clusters),
			})
		}
		next, stop := iter.Pull2(c.With(policies).Decisions)
		for pair, would := range policy.Compile([]*v1alpha1.CablePolicies{
			c.shared(p),
		}, policy.Makers{Here: submarinerv1.BrokerID}).Pairs(c.Clusters) {
			if _, is, _ := next(); would.Policy == p.Name {
				c.review(&r, pair, is)
			}
		}
		stop()
		out = append(out, r)
	}
	return out
}

// inAnyOf returns the clusters that are in any of the clustersets.
func (c *Catalog) inAnyOf(sets []string) []policy.Cluster {
	return slices.DeleteFunc(slices.Clone(c.Clusters), func(x policy.Cluster) bool {
		return !slices.ContainsFunc(x.Sets, func(set string) bool { return slices.Contains(sets, set) })
	})
}

// review adds a pair that the policy matches, with its decision, to r.
func (c *Catalog) review(r *Review, pair policy.Pair, is policy.Decision) {
	r.Matched = append(r.Matched, pair)
	decides := is.Policy == r.Policy.Name && is.Maker == c.Keeper
	if !decides &&
		slices.ContainsFunc(is.SetAside,
			func(ref policy.RuleRef) bool { return ref.Policy == r.Policy.Name && ref.Maker == c.Keeper }) {
		r.SetAside = append(r.SetAside, pair)
		return
	}
	if !decides {
		r.Lost[is.Policy] = append(r.Lost[is.Policy], pair)
		return
	}
	offered := true
	for _, id := range []string{pair.X.ID, pair.Y.ID} {
		if err := c.Lacks(id, is.Driver); err != nil {
			offered = false
			if r.Lacking[is.Driver] == nil {
				r.Lacking[is.Driver] = map[string]error{}
			}
			r.Lacking[is.Driver][id] = err
		}
	}
	if !offered || is.Err != nil {
		return
	}
	if err := c.refusal(pair, is); err != nil {
		r.Refused = append(r.Refused, Refusal{pair, is.Driver, err})
	} else if err := c.limited(pair, is); err != nil {
		r.Limited = append(r.Limited, Limit{pair, err})
	}
}
