package catalog

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// Conflict is two clusters that use the same addresses, and a cluster that is to reach both: one of them, or a
// third one that shares a clusterset with each. Clusters that nobody is to reach both of may use the same
// addresses.
type Conflict struct {
	X, Y    string // IDs, in order
	Reaches string
	Network netip.Prefix // the smaller one of two networks that overlap
}

func (c Conflict) String() string {
	if c.Reaches == c.X || c.Reaches == c.Y {
		return fmt.Sprintf("clusters %s and %s both have %s, so that they cannot be connected", c.X, c.Y, c.Network)
	}
	return fmt.Sprintf("clusters %s and %s both have %s, so that cluster %s could reach only one of them", c.X, c.Y, c.Network, c.Reaches)
}

// Networks are the networks of a cluster.
type Networks struct {
	Announced []netip.Prefix
	// Own are those that the cluster uses itself and does not announce, as it has a global network: others may have the
	// same, but it reaches nobody who announces them.
	Own []netip.Prefix
}

// Conflicts returns the conflicts among the clusters of the catalog, sorted, one for each pair of clusters. networks
// are the networks of each cluster, by ID.
func (c *Catalog) Conflicts(networks map[string]Networks) []Conflict {
	found := map[[2]string]Conflict{}
	for _, cluster := range c.Clusters {
		var reached []claim
		add := func(of string, nets []netip.Prefix) {
			for _, n := range nets {
				reached = append(reached, claim{n.Masked(), of})
			}
		}
		for _, other := range c.Clusters {
			if other.ID == cluster.ID || other.SharesSet(cluster) {
				add(other.ID, networks[other.ID].Announced)
			}
		}
		add(cluster.ID, networks[cluster.ID].Own)
		for x := range overlapping(reached) {
			pair := [2]string{min(x[0].of, x[1].of), max(x[0].of, x[1].of)}
			was, known := found[pair]
			if known && (was.Reaches == pair[0] || cluster.ID != pair[0]) {
				continue // the pair itself says it best
			}
			found[pair] = Conflict{X: pair[0], Y: pair[1], Reaches: cluster.ID, Network: x[1].network}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b Conflict) int { return cmp.Or(cmp.Compare(a.X, b.X), cmp.Compare(a.Y, b.Y)) })
}

// NewConflicts returns the conflicts after a change that were none before, whoever is to reach both clusters.
func NewConflicts(before, after []Conflict) []Conflict {
	return slices.DeleteFunc(slices.Clone(after), func(c Conflict) bool {
		return slices.ContainsFunc(before, func(b Conflict) bool { return b.X == c.X && b.Y == c.Y })
	})
}

// claim is a network of a cluster.
type claim struct {
	network netip.Prefix
	of      string
}

// overlapping yields the pairs of claims of different clusters that overlap, the larger network first. Two
// networks overlap only if one contains the other.
func overlapping(claims []claim) func(yield func([2]claim) bool) {
	slices.SortFunc(claims, func(a, b claim) int {
		return cmp.Or(a.network.Addr().Compare(b.network.Addr()), cmp.Compare(a.network.Bits(), b.network.Bits()), cmp.Compare(a.of, b.of))
	})
	return func(yield func([2]claim) bool) {
		var around []claim // the networks that may contain the next one, each within the one before
		for _, c := range claims {
			for len(around) > 0 && !around[len(around)-1].network.Contains(c.network.Addr()) {
				around = around[:len(around)-1]
			}
			for _, outer := range around {
				if outer.of != c.of && !yield([2]claim{outer, c}) {
					return
				}
			}
			around = append(around, c)
		}
	}
}
