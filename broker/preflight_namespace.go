package broker

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/internal/kube"
	"subctl/internal/words"
)

// foreignKinds are the kinds of objects that a broker's namespace does not have, with the
// exceptions of isBrokers. ConfigMaps are not among them: cable policies name them.
var foreignKinds = []schema.GroupVersionKind{
	{Group: "apps", Version: "v1", Kind: "DaemonSet"},
	{Group: "apps", Version: "v1", Kind: "Deployment"},
	{Group: "apps", Version: "v1", Kind: "StatefulSet"},
	{Group: "batch", Version: "v1", Kind: "CronJob"},
	{Group: "batch", Version: "v1", Kind: "Job"},
	{Version: "v1", Kind: "PersistentVolumeClaim"},
	{Version: "v1", Kind: "Pod"},
	{Version: "v1", Kind: "Secret"},
	{Version: "v1", Kind: "Service"},
	{Version: "v1", Kind: "ServiceAccount"},
}

// lookRights returns the rights to check that nobody else uses a namespace.
func lookRights(c client.Client, ns string) ([]kube.Right, error) {
	var rights []kube.Right
	for _, kind := range foreignKinds {
		mapping, err := c.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return nil, fmt.Errorf("reading which kinds the API server serves: %w", err)
		}
		rights = append(rights, kube.Right{Verb: "list", Group: kind.Group, Resource: mapping.Resource.Resource, Namespace: ns})
	}
	return rights, nil
}

// checkUnused returns an error if somebody else uses a namespace: members and holders of join
// files have rights in it, and names in it have a meaning.
func checkUnused(ctx context.Context, c client.Client, ns string) error {
	var found []string
	for _, kind := range foreignKinds {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := c.List(ctx, list, client.InNamespace(ns)); err != nil {
			return fmt.Errorf("checking that nobody else uses namespace %s: %w", ns, err)
		}
		for _, o := range list.Items {
			if !isBrokers(kind.Kind, o) {
				found = append(found, kind.Kind+" "+o.Name)
			}
		}
	}
	if len(found) == 0 {
		return nil
	}
	const most = 5
	if more := len(found) - most; more > 0 {
		found = append(slices.Clone(found[:most]), fmt.Sprintf("%d more objects", more))
	}
	return fmt.Errorf("namespace %s is in use: it has %s; a broker needs a namespace of its own: choose another one with --namespace", ns, words.List(found))
}

// isBrokers reports whether an object is the broker's, or one that Kubernetes or OpenShift creates
// in every namespace.
func isBrokers(kind string, o metav1.PartialObjectMetadata) bool {
	account := o.Name
	switch kind {
	case "Secret":
		account = o.Annotations[corev1.ServiceAccountNameKey]
	case "ServiceAccount":
	default:
		return false
	}
	return slices.Contains([]string{"default", "builder", "deployer", "pipeline", JoinerName}, account) ||
		strings.HasPrefix(account, memberPrefix) || strings.HasPrefix(account, inviteePrefix)
}
