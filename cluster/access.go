package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	authv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/internal/kube"
)

// Right is one thing to be allowed: a verb on a resource.
type Right struct {
	Verb, Group, Resource string // the resource may be a subresource: pods/status
	Namespace             string // empty: in all, or not namespaced
}

func (r Right) String() string {
	s := r.Verb + " " + r.Resource
	if r.Group != "" {
		s += "." + r.Group
	}
	if r.Namespace != "" {
		s += " in namespace " + r.Namespace
	}
	return s
}

// rights returns what it takes to apply objs. Who makes or binds a Role must
// hold what is in it besides: see grants.
func rights(c client.Client, objs []client.Object) ([]Right, error) {
	var out []Right
	for _, obj := range objs {
		u, err := kube.Unstructured(c.Scheme(), obj)
		if err != nil {
			return nil, err
		}
		gvk := u.GroupVersionKind()
		for _, verb := range []string{"create", "patch"} {
			// All kinds we make have the regular plural.
			out = append(out, Right{verb, gvk.Group, strings.ToLower(gvk.Kind) + "s", obj.GetNamespace()})
		}
	}
	return out, nil
}

// denied returns those of rights that the user does not have, sorted.
func denied(ctx context.Context, c client.Client, rights []Right) ([]Right, error) {
	if all, err := allowed(ctx, c, Right{Verb: "*", Group: "*", Resource: "*"}); err != nil || all {
		return nil, err
	}
	rights = slices.Clone(rights)
	slices.SortFunc(rights, func(a, b Right) int { return strings.Compare(a.String(), b.String()) })
	rights = slices.Compact(rights)
	answers := make([]bool, len(rights))
	errs := make([]error, len(rights))
	slots := make(chan struct{}, 8) // so many questions at a time
	var wg sync.WaitGroup
	for i, r := range rights {
		slots <- struct{}{}
		wg.Go(func() {
			answers[i], errs[i] = allowed(ctx, c, r)
			<-slots
		})
	}
	wg.Wait()
	var out []Right
	for i, ok := range answers {
		if !ok {
			out = append(out, rights[i])
		}
	}
	return out, errors.Join(errs...)
}

func allowed(ctx context.Context, c client.Client, r Right) (bool, error) {
	resource, sub, _ := strings.Cut(r.Resource, "/")
	review := &authv1.SelfSubjectAccessReview{Spec: authv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authv1.ResourceAttributes{Verb: r.Verb, Group: r.Group, Resource: resource, Subresource: sub, Namespace: r.Namespace},
	}}
	if err := c.Create(ctx, review); err != nil {
		return false, fmt.Errorf("asking for the right to %s: %w", r, err)
	}
	return review.Status.Allowed, nil
}

// deniedError names missing rights on the API server at server.
func deniedError(where string, missing []Right, remedy string) error {
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
