package catalog

import (
	"slices"

	"subctl/api/submariner/v1alpha1"
	"subctl/policy"
)

// Disclosure is that a new policy tells clusters the ID of a cluster of another clusterset: the
// whole policy is shared in each of its clustersets.
type Disclosure struct {
	Clusters []string // the IDs, sorted
	To       []string // the clustersets of the policy whose members need not know all of these, sorted
	// Only are the clustersets that have all clusters which the policy names. If the policy is
	// limited to one of them, it discloses nothing.
	Only []string
}

// disclosure returns what a policy discloses; the zero value if it discloses nothing. An ID that is
// not known may be the ID of a cluster that joins later: a policy of a single clusterset discloses
// nothing by naming it.
func (c *Catalog) disclosure(p *v1alpha1.CablePolicies) (d Disclosure) {
	named := slices.DeleteFunc(policy.NamedClusters(p.ConnectionPolicies),
		func(id string) bool { return id == c.Keeper })
	sets := c.SetsOf(p)
	for _, set := range c.Sets {
		missing := slices.DeleteFunc(slices.Clone(named), func(id string) bool { return c.isIn(id, set) })
		if len(missing) == 0 {
			d.Only = append(d.Only, set)
			continue
		}
		if len(sets) == 1 {
			missing = slices.DeleteFunc(missing, func(id string) bool { _, known := c.index(id); return !known })
		}
		if slices.Contains(sets, set) && len(missing) > 0 {
			d.Clusters, d.To = append(d.Clusters, missing...), append(d.To, set)
		}
	}
	if len(d.To) == 0 {
		return Disclosure{}
	}
	slices.Sort(d.Clusters)
	d.Clusters = slices.Compact(d.Clusters)
	return d
}

// isIn reports whether a cluster is known in a clusterset.
func (c *Catalog) isIn(id, set string) bool {
	cluster, _ := c.Cluster(id)
	return slices.Contains(cluster.Sets, set)
}
