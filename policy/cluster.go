package policy

import (
	"strings"

	submarinerv1 "subctl/api/submariner/v1"
)

// ClusterOf is another cluster as its Cluster object shows it, but for Driver. Which
// clustersets it is in is the broker's word, which the copy carries, and not its own.
func ClusterOf(c *submarinerv1.Cluster) Cluster {
	sets := []string{submarinerv1.DefaultClusterSet}
	if heardIn := c.Annotations[submarinerv1.ClusterSetsAnnotation]; heardIn != "" {
		sets = strings.Split(heardIn, ",")
	}
	return Cluster{ID: c.Spec.ClusterID, Labels: c.Labels, Sets: sets}
}

// ParseLabels reads labels as join takes them, k=v,k=v. What is not of that form is left
// out.
func ParseLabels(text string) map[string]string {
	out := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if k, v, ok := strings.Cut(pair, "="); ok {
			out[strings.TrimSpace(k)] = strings.TrimSpace(v)
		}
	}
	return out
}
