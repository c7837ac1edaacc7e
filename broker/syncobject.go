package broker

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
)

// This file knows the kinds that are synced: everything PlanSync needs of them, and
// no decision.

type key struct{ kind, name string }

func keyOf(o client.Object) key { return key{kindOf(o), o.GetName()} }

func kindOf(o client.Object) string {
	switch o.(type) {
	case *submarinerv1.Cluster:
		return "Cluster"
	case *v1alpha1.CablePolicies:
		return "CablePolicies"
	}
	return "Endpoint"
}

// flaw says why o cannot be an object of cluster id, or is empty.
func flaw(o client.Object, id string) string {
	switch {
	case submarinerv1.CheckClusterID(id) != nil:
		return fmt.Sprintf("%.70q is not a cluster ID", id)
	case clusterID(o) != id:
		return fmt.Sprintf("spec.cluster_id is %.70q, not %q", clusterID(o), id)
	case !owns(id, kindOf(o), o.GetName()):
		return fmt.Sprintf("it is not named like one of the %ss of cluster %q", kindOf(o), id)
	}
	if e, ok := o.(*submarinerv1.Endpoint); ok && e.Name != id+"-"+e.Spec.CableName {
		return fmt.Sprintf("spec.cable_name is %.200q, which is not what it is named after", e.Spec.CableName)
	}
	if n := size(o); n > maxObjectSize {
		return tooLarge(n)
	}
	return ""
}

// federate returns what of a Cluster or Endpoint goes to the other side: name, labels,
// annotations and spec, but for annotations that are about one side.
func federate(o client.Object, namespace string) client.Object {
	var out client.Object = &submarinerv1.Endpoint{}
	if kindOf(o) == "Cluster" {
		out = &submarinerv1.Cluster{}
	}
	out.SetName(o.GetName())
	out.SetNamespace(namespace)
	out.SetLabels(maps.Clone(o.GetLabels()))
	annotations := maps.Clone(o.GetAnnotations())
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	delete(annotations, submarinerv1.ClusterSetsAnnotation)
	delete(annotations, submarinerv1.CableConfigAnnotation)
	delete(annotations, v1alpha1.ClusterLabelsAnnotation)
	out.SetAnnotations(annotations)
	setSpec(out, o)
	return out
}

func annotate(o client.Object, name, value string) {
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[name] = value
	o.SetAnnotations(annotations)
}

// same compares what is synced.
func same(a, b client.Object) bool {
	return maps.Equal(a.GetLabels(), b.GetLabels()) && maps.Equal(a.GetAnnotations(), b.GetAnnotations()) &&
		equality.Semantic.DeepEqual(spec(a), spec(b))
}

func spec(o client.Object) any {
	switch o := o.(type) {
	case *submarinerv1.Cluster:
		return &o.Spec
	case *v1alpha1.CablePolicies:
		return o.ConnectionPolicies
	}
	return &o.(*submarinerv1.Endpoint).Spec
}

// setSpec copies the spec of an object to another of the same kind.
func setSpec(to, from client.Object) {
	switch from := from.(type) {
	case *submarinerv1.Cluster:
		from.Spec.DeepCopyInto(&to.(*submarinerv1.Cluster).Spec)
	case *submarinerv1.Endpoint:
		from.Spec.DeepCopyInto(&to.(*submarinerv1.Endpoint).Spec)
	case *v1alpha1.CablePolicies:
		to.(*v1alpha1.CablePolicies).ConnectionPolicies = from.DeepCopy().ConnectionPolicies
	}
}

func clusterID(o client.Object) string {
	if c, ok := o.(*submarinerv1.Cluster); ok {
		return c.Spec.ClusterID
	}
	return o.(*submarinerv1.Endpoint).Spec.ClusterID
}

// size is the length in bytes of what is synced of an object, as JSON. A stub has the
// size of the object.
func size(o client.Object) int {
	if n := stubSize(o); n > 0 {
		return n
	}
	b, err := json.Marshal([]any{o.GetLabels(), o.GetAnnotations(), spec(o)})
	if err != nil {
		return maxObjectSize + 1 // strings and numbers cannot fail to encode
	}
	return len(b)
}

// members returns the Clusters and Endpoints among objects, sorted.
func members(objects []client.Object) []client.Object {
	out := slices.DeleteFunc(slices.Clone(objects), func(o client.Object) bool {
		_, ok := o.(*v1alpha1.CablePolicies)
		return ok
	})
	slices.SortFunc(out, func(a, b client.Object) int { return keyOf(a).compare(keyOf(b)) })
	return out
}

// sortedKeys sorts by kind, Clusters first, then by name.
func sortedKeys[T any](m map[key]T) []key { return slices.SortedFunc(maps.Keys(m), key.compare) }

func (k key) compare(other key) int {
	return cmp.Or(cmp.Compare(k.kind, other.kind), cmp.Compare(k.name, other.name))
}
