package v1alpha1

import (
	"slices"

	submarinerv1 "subctl/api/submariner/v1"
)

// ClusterSets returns the clustersets of a cluster, sorted. The speaker of the cluster notes the
// clustersets of the grant on its Cluster object. If there is no Cluster yet, the clustersets are
// the ones that the cluster has joined.
func ClusterSets(s SubmarinerSpec, c *submarinerv1.Cluster) []string {
	if c != nil && c.Annotations != nil {
		if _, noted := c.Annotations[submarinerv1.ClusterSetsAnnotation]; noted {
			return c.ClusterSets()
		}
	}
	return s.Sets()
}

// Sets returns the clustersets that the cluster has joined, sorted; never empty. The administrator
// of the broker may have changed them since: see ClusterSets.
func (s SubmarinerSpec) Sets() []string {
	if len(s.ClusterSets) == 0 {
		return []string{submarinerv1.DefaultClusterSet}
	}
	return slices.Compact(slices.Sorted(slices.Values(s.ClusterSets)))
}
