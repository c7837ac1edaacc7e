package kube

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// PeoplesKinds are the kinds of objects that people usually have in a namespace.
func PeoplesKinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		{Group: "apps", Version: "v1", Kind: "DaemonSet"},
		{Group: "apps", Version: "v1", Kind: "Deployment"},
		{Group: "apps", Version: "v1", Kind: "StatefulSet"},
		{Group: "batch", Version: "v1", Kind: "CronJob"},
		{Group: "batch", Version: "v1", Kind: "Job"},
		{Version: "v1", Kind: "ConfigMap"},
		{Version: "v1", Kind: "PersistentVolumeClaim"},
		{Version: "v1", Kind: "Pod"},
		{Version: "v1", Kind: "Secret"},
		{Version: "v1", Kind: "Service"},
	}
}

// OthersIn returns the objects of some kinds in a namespace, as KIND NAME, that neither Kubernetes created there nor we: ours reports our objects.
func OthersIn(ctx context.Context, c client.Reader, namespace string, kinds []schema.GroupVersionKind, ours func(kind string, o metav1.PartialObjectMetadata) bool) ([]string, error) {
	var out []string
	for _, kind := range kinds {
		items, err := ListMetadata(ctx, c, kind, namespace)
		if err != nil {
			return nil, err
		}
		for _, o := range items {
			if !ours(kind.Kind, o) && o.DeletionTimestamp == nil && o.Name != "kube-root-ca.crt" {
				out = append(out, kind.Kind+" "+o.Name)
			}
		}
	}
	return out, nil
}

// ListMetadata returns the metadata of all objects of a kind in a namespace; an empty namespace means
// all namespaces. It returns nil if the kind does not exist.
func ListMetadata(ctx context.Context, c client.Reader, kind schema.GroupVersionKind, namespace string) ([]metav1.PartialObjectMetadata, error) {
	l := &metav1.PartialObjectMetadataList{}
	l.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := c.List(ctx, l, client.InNamespace(namespace)); err != nil && !NotThere(err) {
		return nil, fmt.Errorf("listing objects of kind %s: %w", kind.Kind, err)
	}
	return l.Items, nil
}
