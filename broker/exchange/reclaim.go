package exchange

import (
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
)

// Reclaim removes the label that only copies carry from the objects that were made in the cluster
// where objs were found. Somebody may have put it there, and it must not hide them: other clusters
// go by the name of a Cluster or an Endpoint, and by who created a policy. Reclaim replaces these
// objects in objs by ones without the label, and returns those that are named after the
// cluster, sorted by name. The Submariner among objs has the cluster's ID.
func Reclaim[T client.Object](kinds Table, objs []T) (mislabelled []T) {
	id := clusterIn(objs)
	if id == "" {
		return nil
	}
	for i, o := range objs {
		if !submarinerv1.IsCopy(o) {
			continue
		}
		kind, err := kinds.Of(o)
		if err != nil || !kind.MadeBy(id, o) { // not copied at all, or a copy
			continue
		}
		objs[i] = o.DeepCopyObject().(T)
		delete(objs[i].GetLabels(), submarinerv1.ClusterIDLabel)
		if kind.Named != nil && kind.Named.Names.Owns(id, o.GetName()) {
			mislabelled = append(mislabelled, objs[i])
		}
	}
	slices.SortFunc(mislabelled, func(x, y T) int { return strings.Compare(x.GetName(), y.GetName()) })
	return mislabelled
}

// clusterIn returns the ID of the cluster where objs were found; "" if it has not joined.
func clusterIn[T client.Object](objs []T) string {
	for _, o := range objs {
		if sub, ok := any(o).(*v1alpha1.Submariner); ok {
			return sub.Spec.ClusterID
		}
	}
	return ""
}
