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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/internal/kube"
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
