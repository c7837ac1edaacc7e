package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
)

// namedHolders is the number of objects that Holding names.
const namedHolders = 5

// Holding returns why an object that is being deleted is still there, as the end of a sentence: its
// finalizers, and for a namespace the objects in it with finalizers, and what Kubernetes reports.
// It is empty if nothing is known.
func Holding(ctx context.Context, c client.Reader, obj client.Object) string {
	var out []string
	if f := obj.GetFinalizers(); len(f) > 0 {
		out = append(out, "it has the finalizers "+strings.Join(f, ", "))
	}
	if ns, ok := obj.(*corev1.Namespace); ok {
		out = append(out, holders(ctx, c, ns.Name)...)
		for _, cond := range ns.Status.Conditions {
			if cond.Status == corev1.ConditionTrue && cond.Message != "" {
				out = append(out, cond.Message)
			}
		}
	}
	if len(out) == 0 {
		return ""
	}
	return ": " + strings.Join(out, "; ")
}

// holders names objects in a namespace with finalizers, as far as the user may list them.
func holders(ctx context.Context, c client.Reader, namespace string) (out []string) {
	ours := []schema.GroupVersionKind{v1alpha1.GroupVersion.WithKind("Submariner")}
	for _, kind := range []string{"Cluster", "Endpoint", "Gateway", "RouteAgent", "GlobalIngressIP", "GlobalEgressIP"} {
		ours = append(ours, submarinerv1.GroupVersion.WithKind(kind))
	}
	for _, kind := range slices.Concat(PeoplesKinds(), ours) {
		items, err := ListMetadata(ctx, c, kind, namespace)
		if err != nil {
			continue
		}
		for _, o := range items {
			if len(o.Finalizers) > 0 && o.DeletionTimestamp != nil && len(out) < namedHolders {
				out = append(out, fmt.Sprintf("%s %s has the finalizers %s, which the program that has set them "+
					"removes", kind.Kind, o.Name, strings.Join(o.Finalizers, ", ")))
			}
		}
	}
	return out
}
