package policy

import (
	"strings"

	submarinerv1 "subctl/api/submariner/v1"
)

// ClusterOf returns another cluster from the local copy of its Cluster object, without
// Driver. Its clustersets come from the broker, through an annotation of the copy, and not from
// the cluster itself.
func ClusterOf(c *submarinerv1.Cluster) Cluster {
	sets := []string{submarinerv1.DefaultClusterSet}
	if listed := c.Annotations[submarinerv1.ClusterSetsAnnotation]; listed != "" {
		sets = strings.Split(listed, ",")
	}
	return Cluster{ID: c.Spec.ClusterID, Labels: c.Labels, Sets: sets, MustEncrypt: c.Spec.Encryption.Required()}
}
