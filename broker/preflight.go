package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/internal/kube"
	"subctl/internal/words"
)

// Preflight returns everything that would prevent objects that Render returned from being
// applied. It changes nothing.
func Preflight(ctx context.Context, c client.Client, objects []client.Object) error {
	policies := schema.GroupKind{Group: admissionv1.GroupName, Kind: "ValidatingAdmissionPolicy"}
	if _, err := c.RESTMapper().RESTMapping(policies, "v1"); meta.IsNoMatchError(err) {
		return fmt.Errorf("the API server has no admission policies (%s/v1), which keep clusters apart on a broker: "+
			"use Kubernetes 1.%d or later", admissionv1.GroupName, minKubernetes)
	} else if err != nil {
		return fmt.Errorf("reading which kinds the API server serves: %w", err)
	}
	missing, err := missingRights(ctx, c, objects)
	if err != nil {
		return err
	}
	var errs []error
	if len(missing) > 0 {
		errs = append(
			errs,
			fmt.Errorf("the user of this context may not %s: use a context with an administrator's rights",
				strings.Join(missing, ", ")),
		)
	}
	for _, obj := range objects {
		if ns, ok := obj.(*corev1.Namespace); ok && len(missing) == 0 {
			errs = append(errs, checkNamespace(ctx, c, ns.Name), checkUnused(ctx, c, ns.Name))
		}
	}
	return errors.Join(errs...)
}

// checkNamespace returns an error if a namespace is being deleted: objects that are applied
// to it would be denied, or deleted too.
func checkNamespace(ctx context.Context, c client.Client, name string) error {
	ns := &corev1.Namespace{}
	err := client.IgnoreNotFound(c.Get(ctx, client.ObjectKey{Name: name}, ns))
	if err != nil {
		return fmt.Errorf("reading namespace %s: %w", name, err)
	}
	if ns.DeletionTimestamp != nil {
		return fmt.Errorf("namespace %s is being deleted: wait until it is gone, then try again", name)
	}
	return nil
}

// missingRights returns the rights that applying objects and inviting clusters takes, and
// that the user does not have, sorted by object.
func missingRights(ctx context.Context, c client.Client, objects []client.Object) ([]string, error) {
	rights, err := directRights(c, objects)
	if err != nil {
		return nil, err
	}
	grants, err := grantRights(ctx, c, objects)
	if err != nil {
		return nil, err
	}
	denied, err := kube.Denied(ctx, c, append(rights, grants...))
	if err != nil {
		return nil, err
	}
	missing := map[string][]string{}
	for _, r := range denied {
		missing[r.Object()] = append(missing[r.Object()], r.Verb)
	}
	var out []string
	for object, verbs := range missing {
		slices.Sort(verbs)
		out = append(out, strings.Join(verbs, "/")+" "+object)
	}
	slices.Sort(out)
	return out, nil
}

// directRights returns the rights to the requests that deploy-broker makes.
func directRights(c client.Client, objects []client.Object) ([]kube.Right, error) {
	rights, err := kube.ObjectRights(c.Scheme(), objects, "get", "create", "patch")
	if err != nil {
		return nil, err
	}
	for _, obj := range objects {
		if ns, ok := obj.(*corev1.Namespace); ok {
			look, err := lookRights(c, ns.Name)
			if err != nil {
				return nil, err
			}
			rights = append(rights, look...)
		}
		if q, ok := obj.(*corev1.ResourceQuota); ok { // see startQuota
			rights = append(rights,
				kube.Right{Verb: "update", Resource: "resourcequotas/status", Namespace: q.Namespace})
		}
		if sa, ok := obj.(*corev1.ServiceAccount); ok { // see Look, Invite and DefaultDriver
			rights = append(
				rights,
				kube.Right{Verb: "create", Resource: "serviceaccounts/token", Namespace: sa.Namespace},
				kube.Right{Verb: "list", Resource: "serviceaccounts", Namespace: sa.Namespace},
				kube.Right{
					Verb:      "list",
					Group:     submarinerv1.GroupVersion.Group,
					Resource:  "clusters",
					Namespace: sa.Namespace,
				},
				kube.Right{
					Verb:      "list",
					Group:     v1alpha1.GroupVersion.Group,
					Resource:  "cablepolicies",
					Namespace: sa.Namespace,
				},
			)
		}
	}
	return rights, nil
}

// grantRights returns the rights that the API server requires of a user who grants rights
// that the user does not have: escalate for a Role or a ClusterRole, and bind for a RoleBinding.
func grantRights(ctx context.Context, c client.Client, objects []client.Object) ([]kube.Right, error) {
	var rights []kube.Right
	lacking := map[client.ObjectKey]bool{} // Roles
	for _, obj := range objects {
		var rules []rbacv1.PolicyRule
		resource := "roles"
		switch role := obj.(type) {
		case *rbacv1.Role:
			rules = role.Rules
		case *rbacv1.ClusterRole:
			rules = role.Rules
			resource = "clusterroles"
		default:
			continue
		}
		denied, err := kube.Denied(ctx, c, kube.Rights(rules, obj.GetNamespace()))
		if err != nil {
			return nil, err
		}
		if len(denied) > 0 {
			lacking[client.ObjectKeyFromObject(obj)] = true
			rights = append(
				rights,
				kube.Right{
					Verb:      "escalate",
					Group:     rbacv1.GroupName,
					Resource:  resource,
					Namespace: obj.GetNamespace(),
					Name:      obj.GetName(),
				},
			)
		}
	}
	for _, obj := range objects {
		if b, ok := obj.(*rbacv1.RoleBinding); ok &&
			lacking[client.ObjectKey{Namespace: b.Namespace, Name: b.RoleRef.Name}] {
			rights = append(
				rights,
				kube.Right{
					Verb:      "bind",
					Group:     rbacv1.GroupName,
					Resource:  "roles",
					Namespace: b.Namespace,
					Name:      b.RoleRef.Name,
				},
			)
		}
	}
	return rights, nil
}

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
