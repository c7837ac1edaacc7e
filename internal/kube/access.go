package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Right is a permission on an API server: a verb on a resource.
type Right struct {
	Verb, Group, Resource string // Resource may contain a subresource: pods/status
	Namespace             string // empty: all namespaces, or a cluster-scoped resource
	Name                  string // name of one object; empty: all objects
}

// NewRight returns the right to a verb on all objects of a resource in a namespace.
func NewRight(verb, group, resource, namespace string) Right {
	return Right{Verb: verb, Group: group, Resource: resource, Namespace: namespace}
}

func (r Right) String() string { return r.Verb + " " + r.Object() }

// Object describes the objects of the right.
func (r Right) Object() string {
	s := r.Resource
	if r.Group != "" {
		s += "." + r.Group
	}
	if r.Name != "" {
		s += " " + r.Name
	}
	if r.Namespace != "" {
		s += " in namespace " + r.Namespace
	}
	return s
}

// Rights returns the rights that the rules of a Role in a namespace grant. For a ClusterRole,
// namespace is empty.
func Rights(rules []rbacv1.PolicyRule, namespace string) []Right {
	var out []Right
	for _, r := range rules {
		names := r.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, verb := range r.Verbs {
					for _, name := range names {
						out = append(out, Right{verb, group, resource, namespace, name})
					}
				}
			}
		}
	}
	return out
}

// ObjectRights returns the rights to verbs on objects.
func ObjectRights(s *runtime.Scheme, objects []client.Object, verbs ...string) ([]Right, error) {
	var out []Right
	for _, obj := range objects {
		gvk, err := apiutil.GVKForObject(obj, s)
		if err != nil {
			return nil, err
		}
		for _, verb := range verbs {
			out = append(out, NewRight(verb, gvk.Group, Resource(gvk), obj.GetNamespace()))
		}
	}
	return out, nil
}

// maxReviews is the number of concurrent access reviews.
const maxReviews = 8

// Denied returns the rights that the user of c does not have, sorted and without duplicates.
// For an administrator with all rights it takes a single request.
func Denied(ctx context.Context, c client.Client, rights []Right) ([]Right, error) {
	if all, err := Allowed(ctx, c, Right{Verb: "*", Group: "*", Resource: "*"}); err != nil || all {
		return nil, err
	}
	rights = slices.Clone(rights)
	slices.SortFunc(rights, func(a, b Right) int { return cmp.Compare(a.String(), b.String()) })
	rights = slices.Compact(rights)
	answers := make([]bool, len(rights))
	errs := make([]error, len(rights))
	slots := make(chan struct{}, maxReviews)
	var group sync.WaitGroup
	for i, r := range rights {
		slots <- struct{}{}
		group.Go(func() {
			answers[i], errs[i] = Allowed(ctx, c, r)
			<-slots
		})
	}
	group.Wait()
	var out []Right
	for i, ok := range answers {
		if !ok {
			out = append(out, rights[i])
		}
	}
	return out, errors.Join(errs...)
}

// Allowed reports whether the user of c has a right.
func Allowed(ctx context.Context, c client.Client, r Right) (bool, error) {
	resource, sub, _ := strings.Cut(r.Resource, "/")
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: r.Verb, Group: r.Group, Resource: resource, Subresource: sub, Namespace: r.Namespace, Name: r.Name,
		},
	}}
	if err := c.Create(ctx, review); err != nil {
		return false, fmt.Errorf("checking the right to %s: %w", r, err)
	}
	return review.Status.Allowed, nil
}

// DeniedError returns an error that names the API server (where), the missing rights and the
// remedy; nil if no right is missing.
func DeniedError(where string, missing []Right, remedy string) error {
	if len(missing) == 0 {
		return nil
	}
	var names []string
	for _, r := range missing {
		names = append(names, r.String())
	}
	const most = 6
	if n := len(names) - most; n > 0 {
		names = append(names[:most], fmt.Sprintf("and %d more", n))
	}
	return fmt.Errorf("%s does not allow this user to %s: %s", where, strings.Join(names, ", "), remedy)
}
