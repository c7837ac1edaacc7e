package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
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

// OthersIn returns the objects of some kinds in a namespace, as KIND NAME, except ours, which ours
// reports, and those that are in every namespace: see isEverywhere.
func OthersIn(
	ctx context.Context,
	c client.Reader,
	namespace string,
	kinds []schema.GroupVersionKind,
	ours func(kind string, o metav1.PartialObjectMetadata) bool,
) ([]string, error) {
	var out []string
	for _, kind := range kinds {
		items, err := listOthers(ctx, c, kind, namespace)
		if err != nil {
			return nil, err
		}
		for _, o := range items {
			if !ours(kind.Kind, o) && o.DeletionTimestamp == nil && !isEverywhere(kind.Kind, o) {
				out = append(out, kind.Kind+" "+o.Name)
			}
		}
	}
	return out, nil
}

// listOthers is ListMetadata, without the credentials for image registries: whoever needs these
// has them in every namespace, so they do not tell that somebody uses this one.
func listOthers(
	ctx context.Context, c client.Reader, kind schema.GroupVersionKind, namespace string,
) ([]metav1.PartialObjectMetadata, error) {
	if kind.Kind != "Secret" { // metadata do not have the type of a Secret
		return ListMetadata(ctx, c, kind, namespace)
	}
	l := &corev1.SecretList{}
	if err := c.List(ctx, l, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing objects of kind %s: %w", kind.Kind, err)
	}
	var out []metav1.PartialObjectMetadata
	for _, s := range l.Items {
		if s.Type != corev1.SecretTypeDockerConfigJson && s.Type != corev1.SecretTypeDockercfg {
			out = append(out, metav1.PartialObjectMetadata{ObjectMeta: s.ObjectMeta})
		}
	}
	return out, nil
}

// standardAccounts are the service accounts that Kubernetes or OpenShift creates in every
// namespace.
var standardAccounts = []string{"default", "builder", "deployer", "pipeline"}

// standardConfigMaps are the ConfigMaps that Kubernetes, OpenShift, Istio or Linkerd creates in
// every namespace.
var standardConfigMaps = []string{
	"kube-root-ca.crt", "openshift-service-ca.crt", "istio-ca-root-cert", "linkerd-identity-trust-roots",
}

// replicaMarks begin the labels and annotations of objects that Kyverno, reflector, replicator or
// ClusterSecret copies into namespaces.
var replicaMarks = []string{
	"generate.kyverno.io/", "kyverno.io/generated-by", "reflector.v1.k8s.emberstack.com/reflects",
	"replicator.v1.mittwald.de/replicated", "clustersecret.io",
}

// isEverywhere reports whether an object is one that Kubernetes, a distribution of it or a tool
// puts into every namespace.
func isEverywhere(kind string, o metav1.PartialObjectMetadata) bool {
	switch kind {
	case "Secret":
		if slices.Contains(standardAccounts, o.Annotations[corev1.ServiceAccountNameKey]) {
			return true
		}
	case "ServiceAccount":
		if slices.Contains(standardAccounts, o.Name) {
			return true
		}
	case "ConfigMap":
		if slices.Contains(standardConfigMaps, o.Name) {
			return true
		}
	default: // nobody copies workloads
		return false
	}
	if o.Labels["app.kubernetes.io/managed-by"] == "kyverno" {
		return true
	}
	for _, marks := range []map[string]string{o.Labels, o.Annotations} {
		for key := range marks {
			if slices.ContainsFunc(replicaMarks, func(begin string) bool { return strings.HasPrefix(key, begin) }) {
				return true
			}
		}
	}
	return false
}

// ListMetadata returns the metadata of all objects of a kind in a namespace; an empty namespace
// means all namespaces. It returns nil if the kind does not exist.
func ListMetadata(
	ctx context.Context,
	c client.Reader,
	kind schema.GroupVersionKind,
	namespace string,
) ([]metav1.PartialObjectMetadata, error) {
	l := &metav1.PartialObjectMetadataList{}
	l.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := c.List(ctx, l, client.InNamespace(namespace)); err != nil && !NotThere(err) {
		return nil, fmt.Errorf("listing objects of kind %s: %w", kind.Kind, err)
	}
	return l.Items, nil
}
