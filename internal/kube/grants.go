package kube

import (
	"context"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// DeniedGrants returns the rights to escalate and bind that the user of c needs to apply the Roles,
// ClusterRoles and bindings in objs, and does not have, sorted.
func DeniedGrants(ctx context.Context, c client.Client, objs []client.Object) ([]Right, error) {
	grants := grantsOf(objs)
	var exceed []Right
	for _, g := range grants {
		exceed = append(exceed, g.exceed)
	}
	exceed, err := Denied(ctx, c, exceed)
	if err != nil || len(exceed) == 0 {
		return nil, err
	}
	var rules []Right
	for _, g := range grants {
		rules = append(rules, g.rules...)
	}
	if rules, err = Denied(ctx, c, rules); err != nil || len(rules) == 0 {
		return nil, err
	}
	var out []Right
	for _, missing := range exceed {
		for _, g := range grants {
			if g.exceed == missing &&
				slices.ContainsFunc(g.rules, func(r Right) bool { return slices.Contains(rules, r) }) {
				out = append(out, missing)
				break
			}
		}
	}
	return out, nil
}

// grant is the right to grant rules to others. The API server allows it to users who have
// all the rights in the rules, and to users who have the verb "escalate" or "bind".
type grant struct {
	exceed Right
	rules  []Right
}

// grantsOf returns the grants that the Roles, ClusterRoles and bindings in objs need. A
// binding binds the role with its own name, which is also in objs.
func grantsOf(objs []client.Object) []grant {
	var out []grant
	for _, obj := range objs {
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
		held := Rights(rules, obj.GetNamespace())
		for _, verb := range []string{"escalate", "bind"} {
			out = append(out, grant{NewRight(verb, rbacv1.GroupName, resource, obj.GetNamespace()), held})
		}
	}
	return out
}
