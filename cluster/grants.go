package cluster

import (
	"context"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/internal/kube"
)

// grant is what it takes to hand rules on, besides writing objects: the API server
// lets only those do it who hold the rules themselves, or may exceed them.
type grant struct {
	exceed kube.Right
	rules  []kube.Right
}

// grants returns what the Roles, ClusterRoles and their bindings in objs take. A
// binding binds the role of its name that is in objs as well.
func grants(objs []client.Object) []grant {
	var out []grant
	for _, obj := range objs {
		var rules []rbacv1.PolicyRule
		resource := "roles"
		switch role := obj.(type) {
		case *rbacv1.Role:
			rules = role.Rules
		case *rbacv1.ClusterRole:
			rules, resource = role.Rules, "clusterroles"
		default:
			continue
		}
		held := kube.Rights(rules, obj.GetNamespace())
		for _, verb := range []string{"escalate", "bind"} {
			out = append(out, grant{right(verb, rbacv1.GroupName, resource, obj.GetNamespace()), held})
		}
	}
	return out
}

// deniedGrants returns the rights to exceed one's own that the user needs and
// does not have, sorted.
func deniedGrants(ctx context.Context, c client.Client, grants []grant) ([]kube.Right, error) {
	var exceed []kube.Right
	for _, g := range grants {
		exceed = append(exceed, g.exceed)
	}
	exceed, err := kube.Denied(ctx, c, exceed)
	if err != nil || len(exceed) == 0 {
		return nil, err
	}
	var rules []kube.Right
	for _, g := range grants {
		rules = append(rules, g.rules...)
	}
	if rules, err = kube.Denied(ctx, c, rules); err != nil || len(rules) == 0 {
		return nil, err
	}
	var out []kube.Right
	for _, missing := range exceed {
		for _, g := range grants {
			if g.exceed == missing && slices.ContainsFunc(g.rules, func(r kube.Right) bool { return slices.Contains(rules, r) }) {
				out = append(out, missing)
				break
			}
		}
	}
	return out, nil
}
