package catalog

import (
	"errors"
	"maps"
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

// CablesOf returns the cables that a cluster should have now, to each of the other clusters that
// the catalog knows. If the two have no clusterset in common, the cable has an error.
func (c *Catalog) CablesOf(id string) map[string]CableChange {
	self, known := c.Cluster(id)
	if !known {
		return nil
	}
	book := c.Book()
	out := map[string]CableChange{}
	for _, other := range c.Clusters {
		pair := policy.Pair{X: self, Y: other}
		if other.ID < id {
			pair = policy.Pair{X: other, Y: self}
		}
		switch {
		case other.ID == id:
		case !self.SharesSet(other):
			out[other.ID] = CableChange{Pair: pair, Then: Cable{Err: errApart}}
		default:
			out[other.ID] = CableChange{Pair: pair, Then: c.cable(pair, book.Decide(pair.X, pair.Y))}
		}
	}
	return out
}

// errApart is the reason why two clusters are no pair.
var errApart = errors.New("the two clusters have no clusterset in common")

// Agrees reports whether two catalogs specify the same cable for a pair, made by the same policy.
func (c Cable) Agrees(other Cable) bool {
	if c.Err != nil || other.Err != nil {
		return c.Err != nil && other.Err != nil
	}
	return c.Driver == other.Driver && c.Policy == other.Policy && maps.Equal(c.Settings, other.Settings)
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
