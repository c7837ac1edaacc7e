package catalog

import (
	"slices"

	"subctl/api/submariner/v1alpha1"
	"subctl/policy"
)

// Soon returns the catalog of a member as it is once the gateway has shared the policies of its own
// cluster as they are now. Until then, the policies that it shared before are in force.
func (c *Catalog) Soon() *Catalog {
	var own []*v1alpha1.CablePolicies
	for _, p := range c.Policies {
		if c.Maker(p) == c.Keeper && policy.Check(p) == nil {
			own = append(own, p)
		}
	}
	return c.With(own)
}

// Judges reports whether the catalog, of a member, has all that decides about a pair: the member is
// in all clustersets of the pair. The catalog of a broker has it.
func (c *Catalog) Judges(pair policy.Pair) bool {
	if c.OnBroker() {
		return true
	}
	self, _ := c.Cluster(c.Keeper)
	return !slices.ContainsFunc(pair.X.Sets, func(set string) bool {
		return slices.Contains(pair.Y.Sets, set) && !slices.Contains(self.Sets, set)
	})
}
