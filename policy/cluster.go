package policy

import (
	submarinerv1 "subctl/api/submariner/v1"
)

// ClusterOf returns another cluster from the local copy of its Cluster object, without
// Driver. Its clustersets come from the broker, through an annotation of the copy, and not from
// the cluster itself.
func ClusterOf(c *submarinerv1.Cluster) Cluster {
	return Cluster{
		ID:          c.Spec.ClusterID,
		Labels:      submarinerv1.SharedLabels(c.Labels),
		Sets:        c.ClusterSets(),
		MustEncrypt: c.Spec.Encryption.Required(),
	}
}
