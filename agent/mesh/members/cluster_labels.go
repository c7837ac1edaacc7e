package members

import (
	"maps"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
)

// ClusterLabels returns the labels that the agent applies to the Cluster object: those
// that join was given (joined, as k=v,k=v), except where a person has since changed or
// removed such a label. Then the person's choice stands until join is given another
// value. current is the Cluster as the API server has it; nil if there is none. Its
// annotation ClusterLabelsAnnotation holds what join was given when the labels were last
// applied.
//
// Server-side apply keeps labels that people added, and removes labels that join is no
// longer given.
func ClusterLabels(joined string, current *submarinerv1.Cluster) map[string]string {
	out := submarinerv1.ParseLabels(joined)
	maps.DeleteFunc(out, func(k, _ string) bool { return submarinerv1.IsReservedLabel(k) }) // of an older join
	if current == nil {
		return out
	}
	before := submarinerv1.ParseLabels(current.Annotations[v1alpha1.ClusterLabelsAnnotation])
	for k, v := range out {
		old, known := before[k]
		if !known || old != v {
			continue
		}
		if now, there := current.Labels[k]; there {
			out[k] = now
		} else {
			delete(out, k)
		}
	}
	return out
}

// Labelled reports whether a Cluster has the labels that the agent applies, and records
// what join was given.
func Labelled(is, want *submarinerv1.Cluster) bool {
	for k, v := range want.Labels {
		if is.Labels[k] != v {
			return false
		}
	}
	return is.Annotations[v1alpha1.ClusterLabelsAnnotation] == want.Annotations[v1alpha1.ClusterLabelsAnnotation]
}

// Labels returns the labels of this cluster: the labels of its Cluster object, or, until
// the object exists, the labels that join was given.
func (m Membership) Labels() map[string]string {
	labels := ClusterLabels(submarinerv1.FormatLabels(m.Submariner.ClusterLabels()), m.Cluster)
	if c := m.Cluster; c != nil {
		if labels == nil {
			labels = map[string]string{}
		}
		maps.Copy(labels, c.Labels)
	}
	return submarinerv1.SharedLabels(labels)
}
