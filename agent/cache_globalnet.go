package agent

import (
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/mesh"
	"subctl/api/submariner/v1alpha1"
)

// wholeCluster returns what the cache of an agent without a node holds of a kind: all objects of the cluster, slimmed
// if they are not ours.
func wholeCluster(kind client.Object, ours cache.ByObject) cache.ByObject {
	if _, is := kind.(*v1alpha1.Submariner); is {
		return ours
	}
	return cache.ByObject{Transform: func(obj any) (any, error) {
		if o, ok := obj.(client.Object); ok {
			return slimOther(mesh.Slim(o))
		}
		return obj, nil
	}}
}
