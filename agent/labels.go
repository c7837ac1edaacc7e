package agent

import (
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/policy"
)

// clusterLabels returns the labels that join said (k=v,k=v), as far as the Cluster is
// to have them from us. was is how it is now; nil if there is none. What join said
// before is said: if a person has changed or removed such a label since, that stands
// until join says something else of it. The Cluster's annotation ClusterLabelsAnnotation
// tells what it said. Labels that people added are theirs: server-side apply leaves
// them, and removes what join does not say any more.
func clusterLabels(said string, was *submarinerv1.Cluster) map[string]string {
	out := policy.ParseLabels(said)
	if was == nil {
		return out
	}
	before := policy.ParseLabels(was.Annotations[v1alpha1.ClusterLabelsAnnotation])
	for k, v := range out {
		old, known := before[k]
		if !known || old != v {
			continue
		}
		if now, there := was.Labels[k]; there {
			out[k] = now
		} else {
			delete(out, k)
		}
	}
	return out
}

// labelled says whether a Cluster has the labels it is to have from us, and says what
// join said.
func labelled(is, want *submarinerv1.Cluster) bool {
	for k, v := range want.Labels {
		if is.Labels[k] != v {
			return false
		}
	}
	return is.Annotations[v1alpha1.ClusterLabelsAnnotation] == want.Annotations[v1alpha1.ClusterLabelsAnnotation]
}
