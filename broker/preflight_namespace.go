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

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/internal/kube"
	"subctl/internal/words"
)

// foreignKinds are the kinds of objects that a broker's namespace does not have, with the
// exceptions of isBrokers and of what is in every namespace. ConfigMaps are not among them: cable
// policies name them.
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
		rights = append(rights,
			kube.Right{Verb: "list", Group: kind.Group, Resource: mapping.Resource.Resource, Namespace: ns})
	}
	return rights, nil
}

// checkUnused returns an error if somebody else uses a namespace that is to become the broker's:
// members and holders of join files have rights in it, and names in it have a meaning. What others
// put into a namespace that the broker has already is no reason to refuse it: see Others.
func checkUnused(ctx context.Context, c client.Client, ns string) error {
	isNew, err := isNewNamespace(ctx, c, ns)
	if err != nil || !isNew {
		return err
	}
	found, err := OthersIn(ctx, c, ns)
	if err != nil || len(found) == 0 {
		return err
	}
	return fmt.Errorf("namespace %s is in use: it has %s; a broker needs a namespace of its own: "+
		"choose another one with --namespace, or delete the namespace: it is created with the broker", ns, few(found))
}

// isNewNamespace reports whether a namespace exists and is not the broker's yet.
func isNewNamespace(ctx context.Context, c client.Client, name string) (bool, error) {
	ns, err := kube.Optional(ctx, c, &corev1.Namespace{}, client.ObjectKey{Name: name})
	if err != nil || ns == nil || ns.Labels[submarinerv1.ClusterSetLabel] != "" {
		return false, err
	}
	// The broker of another tool, which this one takes over, has no such label.
	b, err := kube.Optional(ctx, c, &v1alpha1.Broker{}, client.ObjectKey{Namespace: name, Name: v1alpha1.BrokerName})
	return b == nil, err
}

// Others returns a warning for each namespace among objects, which Render or NewSets returned, that
// contains objects of others.
func Others(ctx context.Context, c client.Client, objects []client.Object) ([]string, error) {
	var out []string
	for _, obj := range objects {
		ns, ok := obj.(*corev1.Namespace)
		if !ok {
			continue
		}
		found, err := OthersIn(ctx, c, ns.Name)
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			out = append(out, fmt.Sprintf("namespace %s also contains objects of others, which stay as they are: %s; "+
				"clusters have rights in this namespace: keep nothing else in it", ns.Name, few(found)))
		}
	}
	return out, nil
}

// OthersIn returns the objects in a namespace, as KIND NAME, that are neither the broker's nor in
// every namespace.
func OthersIn(ctx context.Context, c client.Client, ns string) ([]string, error) {
	found, err := kube.OthersIn(ctx, c, ns, foreignKinds, isBrokers)
	if err != nil {
		return nil, fmt.Errorf("checking that nobody else uses namespace %s: %w", ns, err)
	}
	return found, nil
}

// few returns a list of at most five names, and the number of the others.
func few(names []string) string {
	const most = 5
	if more := len(names) - most; more > 0 {
		names = append(slices.Clone(names[:most]), words.Count(more, "more object"))
	}
	return words.List(names)
}

// isBrokers reports whether an object is the broker's.
func isBrokers(kind string, o metav1.PartialObjectMetadata) bool {
	account := o.Name
	switch kind {
	case "Secret":
		account = o.Annotations[corev1.ServiceAccountNameKey]
	case "ServiceAccount":
	default:
		return false
	}
	return account == JoinerName || strings.HasPrefix(account, memberPrefix) ||
		strings.HasPrefix(account, inviteePrefix)
}
