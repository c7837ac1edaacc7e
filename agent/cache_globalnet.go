package agent

import (
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
)

// wholeCluster returns what the cache of an agent without a node holds of a kind: all objects of
// the cluster, slimmed if they are not ours.
func wholeCluster(r role.Role, kind client.Object, ours cache.ByObject) cache.ByObject {
	out := cache.ByObject{Transform: func(obj any) (any, error) {
		if o, ok := obj.(client.Object); ok {
			return slimOther(r.Slim(o))
		}
		return obj, nil
	}}
	switch kind.(type) {
	case *v1alpha1.Submariner:
		return ours
	case *submarinerv1.Gateway, *submarinerv1.Cluster, *v1alpha1.ExportedServices:
		out.Namespaces = ours.Namespaces
	}
	return out
}
