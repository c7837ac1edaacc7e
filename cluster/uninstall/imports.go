package uninstall

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"subctl/cluster"
	"subctl/internal/kube"
	"subctl/services"
)

// importedKind is a kind of objects that the agent of service discovery makes, in all namespaces,
// and the labels that tell them from others.
type importedKind struct {
	kind   schema.GroupVersionKind
	labels labels.Selector
}

func importedKinds() []importedKind {
	ours := labels.SelectorFromSet(labels.Set{cluster.ManagedByLabel: cluster.ManagedBy})
	derived := ours
	if r, err := labels.NewRequirement(mcsv1alpha1.LabelServiceName, selection.Exists, nil); err == nil {
		derived = ours.Add(*r)
	}
	return []importedKind{
		{mcsv1alpha1.SchemeGroupVersion.WithKind(mcsv1alpha1.ServiceImportKindName), ours},
		{corev1.SchemeGroupVersion.WithKind("Service"), derived},
		{
			discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"),
			labels.SelectorFromSet(labels.Set{discoveryv1.LabelManagedBy: services.ManagedBy}),
		},
	}
}

// list returns the objects of a kind.
func (k importedKind) list(ctx context.Context, c client.Reader) ([]metav1.PartialObjectMetadata, error) {
	l := &metav1.PartialObjectMetadataList{}
	l.SetGroupVersionKind(k.kind.GroupVersion().WithKind(k.kind.Kind + "List"))
	err := c.List(ctx, l, client.MatchingLabelsSelector{Selector: k.labels})
	if err != nil && !kube.NotThere(err) {
		return nil, fmt.Errorf("listing objects of kind %s: %w", k.kind.Kind, err)
	}
	return l.Items, nil
}

// readImports counts the objects that the agent of service discovery has made.
func (r *Remains) readImports(ctx context.Context, c client.Client) error {
	for _, k := range importedKinds() {
		all, err := k.list(ctx, c)
		if err != nil {
			return err
		}
		r.Imports += len(all)
	}
	return nil
}

// removeImports deletes what the agent of service discovery has made. The agent does so, too, when
// the Submariner object is being deleted, but may have been down, or slow.
func (u *Operation) removeImports(ctx context.Context) error {
	for _, k := range importedKinds() {
		all, err := k.list(ctx, u.Cluster)
		if err != nil {
			return err
		}
		namespaces := map[string]bool{}
		for _, o := range all {
			namespaces[o.Namespace] = true
		}
		for namespace := range namespaces {
			of := &metav1.PartialObjectMetadata{}
			of.SetGroupVersionKind(k.kind)
			err := u.Cluster.DeleteAllOf(ctx, of, client.InNamespace(namespace),
				client.MatchingLabelsSelector{Selector: k.labels})
			if err != nil && !kube.NotThere(err) {
				return fmt.Errorf("deleting what stands for imported Services: %w", err)
			}
		}
	}
	return nil
}
