package impact

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"

	"subctl/policy/catalog"
)

// Conflict is two clusters that use the same addresses, and a cluster that should reach both: one
// of them, or a third one that shares a clusterset with each. Two clusters may use the same
// addresses if no cluster should reach both.
type Conflict struct {
	X, Y    string // IDs, in order
	Reaches string
	Network netip.Prefix // the smaller one of two networks that overlap
}

func (c Conflict) String() string {
	if c.Reaches == c.X || c.Reaches == c.Y {
		return fmt.Sprintf("clusters %s and %s both have %s, so that they cannot be connected", c.X, c.Y, c.Network)
	}
	return fmt.Sprintf("clusters %s and %s both have %s, so that cluster %s could reach only one of them", c.X, c.Y,
		c.Network, c.Reaches)
}

// Networks are the networks of a cluster.
type Networks struct {
	Announced []netip.Prefix
	// Own are networks that the cluster uses itself and does not announce: the addresses of its
	// gateways, and, if it has a global network, its pod and Service networks. Others may have the
	// same, but the cluster reaches nobody who announces them.
	Own []netip.Prefix
}

// Conflicts returns the conflicts among the clusters of a catalog, sorted, one for each pair of
// clusters. networks are the networks of each cluster, by ID.
func Conflicts(all *catalog.Catalog, networks map[string]Networks) []Conflict {
	return paired(conflicts(all, networks))
}

// NewConflicts returns the conflicts after a change that were none before: of each pair of clusters
// at most one.
func NewConflicts(was, is *catalog.Catalog, networks map[string]Networks) []Conflict {
	known := map[[3]string]bool{}
	for x := range conflicts(was, networks) {
		known[[3]string{x.X, x.Y, x.Reaches}] = true
	}
	return paired(func(yield func(Conflict) bool) {
		for x := range conflicts(is, networks) {
			if !known[[3]string{x.X, x.Y, x.Reaches}] && !yield(x) {
				return
			}
		}
	})
}

// paired returns one conflict for each pair of clusters, sorted: the conflict that prevents the
// pair itself from being connected, or else the first one.
func paired(conflicts iter.Seq[Conflict]) []Conflict {
	found := map[[2]string]Conflict{}
	for x := range conflicts {
		pair := [2]string{x.X, x.Y}
		if was, known := found[pair]; !known || was.Reaches != x.X && x.Reaches == x.X {
			found[pair] = x
		}
	}
	return slices.SortedFunc(maps.Values(found),
		func(a, b Conflict) int { return cmp.Or(cmp.Compare(a.X, b.X), cmp.Compare(a.Y, b.Y)) })
}

// conflicts yields all conflicts, by the cluster that should reach both; some of them more than
// once.
func conflicts(all *catalog.Catalog, networks map[string]Networks) iter.Seq[Conflict] {
	return func(yield func(Conflict) bool) {
		for _, cluster := range all.Clusters {
			var reached []claim
			add := func(of string, nets []netip.Prefix) {
				for _, n := range nets {
					reached = append(reached, claim{n.Masked(), of})
				}
			}
			for _, other := range all.Clusters {
				if other.ID == cluster.ID || other.SharesSet(cluster) {
					add(other.ID, networks[other.ID].Announced)
				}
			}
			add(cluster.ID, networks[cluster.ID].Own)
			for x := range overlapping(reached) {
				if !yield(
					Conflict{
						X:       min(x[0].of, x[1].of),
						Y:       max(x[0].of, x[1].of),
						Reaches: cluster.ID,
						Network: x[1].network,
					},
				) {
					return
				}
			}
		}
	}
}

// claim is a network of a cluster.
type claim struct {
	network netip.Prefix
	of      string
}

// overlapping yields the pairs of claims of different clusters that overlap, the larger network
// first. Two networks overlap only if one contains the other.
func overlapping(claims []claim) func(yield func([2]claim) bool) {
	slices.SortFunc(claims, func(a, b claim) int {
		return cmp.Or(a.network.Addr().Compare(b.network.Addr()), cmp.Compare(a.network.Bits(), b.network.Bits()),
			cmp.Compare(a.of, b.of))
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
