package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/kube"
)

// Preflight says everything that would keep objects, as Render returned them,
// from being applied. It changes nothing.
func Preflight(ctx context.Context, c client.Client, objects []client.Object) error {
	policies := schema.GroupKind{Group: admissionv1.GroupName, Kind: "ValidatingAdmissionPolicy"}
	if _, err := c.RESTMapper().RESTMapping(policies, "v1"); meta.IsNoMatchError(err) {
		return fmt.Errorf("the API server has no admission policies (%s/v1), which keep clusters apart on a broker: "+
			"use Kubernetes 1.%d or later", admissionv1.GroupName, MinKubernetes)
	} else if err != nil {
		return fmt.Errorf("asking the API server what it serves: %w", err)
	}
	missing, err := missingRights(ctx, c, objects)
	if err != nil {
		return err
	}
	var errs []error
	if len(missing) > 0 {
		errs = append(errs, fmt.Errorf("the user of this context may not %s: use a context with an administrator's rights",
			strings.Join(missing, ", ")))
	}
	for _, obj := range objects {
		if ns, ok := obj.(*corev1.Namespace); ok && len(missing) == 0 {
			errs = append(errs, checkNamespace(ctx, c, ns.Name))
		}
	}
	return errors.Join(errs...)
}

// checkNamespace refuses a namespace that is being deleted: what is applied to it
// would be deleted too, or denied.
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

// right is something a user may or may not do.
type right struct {
	verb, group, resource, sub, namespace string
	name                                  string // of one object; empty: of all
}

// object names what the right is about.
func (r right) object() string {
	s := r.resource
	if r.sub != "" {
		s += "/" + r.sub
	}
	if r.group != "" {
		s += "." + r.group
	}
	if r.name != "" {
		s += " " + r.name
	}
	if r.namespace != "" {
		s += " in " + r.namespace
	}
	return s
}

// missingRights asks the API server for every right that applying objects and
// inviting clusters takes. It asks an administrator for one only.
func missingRights(ctx context.Context, c client.Client, objects []client.Object) ([]string, error) {
	if all, err := allowed(ctx, c, right{verb: "*", group: "*", resource: "*"}); all || err != nil {
		return nil, err
	}
	rights, err := directRights(c, objects)
	if err != nil {
		return nil, err
	}
	if err := addGrants(ctx, c, objects, rights); err != nil {
		return nil, err
	}
	missing := map[string][]string{}
	for r := range rights {
		ok, err := allowed(ctx, c, r)
		if err != nil {
			return nil, err
		}
		if !ok {
			missing[r.object()] = append(missing[r.object()], r.verb)
		}
	}
	var out []string
	for object, verbs := range missing {
		slices.Sort(verbs)
		out = append(out, strings.Join(verbs, "/")+" "+object)
	}
	slices.Sort(out)
	return out, nil
}

// directRights are those to the requests that deploy-broker makes.
func directRights(c client.Client, objects []client.Object) (map[right]bool, error) {
	rights := map[right]bool{}
	for _, obj := range objects {
		gvk, err := apiutil.GVKForObject(obj, c.Scheme())
		if err != nil {
			return nil, err
		}
		for _, verb := range []string{"get", "create", "patch"} {
			rights[right{verb: verb, group: gvk.Group, resource: kube.Resource(gvk), namespace: obj.GetNamespace()}] = true
		}
		if sa, ok := obj.(*corev1.ServiceAccount); ok { // see Look and Invite
			rights[right{verb: "create", resource: "serviceaccounts", sub: "token", namespace: sa.Namespace}] = true
			rights[right{verb: "list", resource: "serviceaccounts", namespace: sa.Namespace}] = true
			rights[right{verb: "list", group: submarinerv1.GroupVersion.Group, resource: "clusters", namespace: sa.Namespace}] = true
		}
	}
	return rights, nil
}

// addGrants adds what the API server asks of who gives rights away: all of them,
// or escalate for a Role and bind for a RoleBinding.
func addGrants(ctx context.Context, c client.Client, objects []client.Object, rights map[right]bool) error {
	holds := map[client.ObjectKey]bool{} // the rights of a Role
	for _, obj := range objects {
		role, ok := obj.(*rbacv1.Role)
		if !ok {
			continue
		}
		has, err := holdsAll(ctx, c, role)
		if err != nil {
			return err
		}
		holds[client.ObjectKeyFromObject(role)] = has
		if !has {
			rights[right{verb: "escalate", group: rbacv1.GroupName, resource: "roles", namespace: role.Namespace, name: role.Name}] = true
		}
	}
	for _, obj := range objects {
		b, ok := obj.(*rbacv1.RoleBinding)
		if ok && !holds[client.ObjectKey{Namespace: b.Namespace, Name: b.RoleRef.Name}] {
			rights[right{verb: "bind", group: rbacv1.GroupName, resource: "roles", namespace: b.Namespace, name: b.RoleRef.Name}] = true
		}
	}
	return nil
}

// holdsAll says whether the user has every right of a role.
func holdsAll(ctx context.Context, c client.Client, role *rbacv1.Role) (bool, error) {
	for _, rule := range role.Rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					for _, name := range names {
						r := right{verb: verb, group: group, resource: resource, namespace: role.Namespace, name: name}
						if ok, err := allowed(ctx, c, r); !ok || err != nil {
							return false, err
						}
					}
				}
			}
		}
	}
	return true, nil
}

func allowed(ctx context.Context, c client.Client, r right) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: r.verb, Group: r.group, Resource: r.resource, Subresource: r.sub, Namespace: r.namespace, Name: r.name,
		},
	}}
	if err := c.Create(ctx, review); err != nil {
		return false, fmt.Errorf("asking the API server for this user's rights: %w", err)
	}
	return review.Status.Allowed, nil
}
