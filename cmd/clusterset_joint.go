package cmd

import (
	"cmp"
	"slices"

	"subctl/policy/catalog"
	"subctl/policy/impact"
)

// mostTried bounds how many clustersets joint examines: for 1,000 clusters, one takes some 0.1 s.
const mostTried = 16

// joint is a change that gives two clusters a clusterset in common.
type joint struct {
	set  string
	add  []string // to set
	also []string // the other pairs of clusters that it connects, as texts
}

// joint returns a change that connects two clusters without a clusterset in common. clusterset add
// accepts this change, and no change that it accepts connects fewer other clusters. If clusterset
// add refuses all changes, refused is the reason for the first one, and alone reports whether
// clusterset add would accept both clusters in a new clusterset.
func (s *sets) joint(a, b string, networks map[string]impact.Networks) (best joint, alone bool, refused error) {
	now := s.catalog.InSets(a, s.of(a)).InSets(b, s.of(b)) // which are unknown if they are in no clusterset
	var all []joint
	for _, set := range s.sets {
		j := joint{set: set.Name}
		for _, id := range []string{a, b} {
			if !slices.Contains(set.Members, id) {
				j.add = append(j.add, id)
			}
		}
		for _, id := range j.add {
			for _, member := range set.Members {
				if member != a && member != b && !connects(now, id, member) {
					j.also = append(j.also, min(id, member)+" - "+max(id, member))
				}
			}
		}
		slices.Sort(j.also)
		all = append(all, j)
	}
	slices.SortStableFunc(all, func(x, y joint) int {
		return cmp.Or(cmp.Compare(len(x.also), len(y.also)), cmp.Compare(len(x.add), len(y.add)),
			cmp.Compare(x.set, y.set))
	})
	for _, j := range all[:min(len(all), mostTried)] {
		err := s.refuses(now, j, networks)
		if err == nil {
			return j, false, nil
		}
		refused = cmp.Or(refused, err)
	}
	return joint{}, s.refuses(now, joint{add: []string{a, b}}, networks) == nil, refused
}

// refuses returns why clusterset add refuses a change; nil if it does not.
func (s *sets) refuses(now *catalog.Catalog, j joint, networks map[string]impact.Networks) error {
	then := now
	for _, id := range j.add {
		then = then.InSets(id, append(s.of(id), j.set))
	}
	if conflicts := impact.NewConflicts(now, then, networks); len(conflicts) > 0 {
		return impact.Change{Conflicts: conflicts}.Refusal()
	}
	return impact.Of(now, then).Refusal()
}

// connects reports whether two clusters have a clusterset in common.
func connects(c *catalog.Catalog, a, b string) bool {
	x, isX := c.Cluster(a)
	y, isY := c.Cluster(b)
	return isX && isY && x.SharesSet(y)
}
