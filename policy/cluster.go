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

// ParseLabels parses labels in the format of join, k=v,k=v. It skips entries in any other
// format.
func ParseLabels(text string) map[string]string {
	out := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if k, v, ok := strings.Cut(pair, "="); ok {
			out[strings.TrimSpace(k)] = strings.TrimSpace(v)
		}
	}
	return out
}
