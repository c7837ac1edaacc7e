package cluster

import (
	"context"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// grant is what it takes to hand rules on, besides writing objects: the API server
// lets only those do it who hold the rules themselves, or may exceed them.
type grant struct {
	exceed Right
	rules  []Right
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
		held := held(rules, obj.GetNamespace())
		for _, verb := range []string{"escalate", "bind"} {
			out = append(out, grant{Right{verb, rbacv1.GroupName, resource, obj.GetNamespace()}, held})
		}
	}
	return out
}

// held returns rules as single rights.
func held(rules []rbacv1.PolicyRule, namespace string) []Right {
	var out []Right
	for _, r := range rules {
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, verb := range r.Verbs {
					out = append(out, Right{verb, group, resource, namespace})
				}
			}
		}
	}
	return out
}

// deniedGrants returns the rights to exceed one's own that the user needs and
// does not have, sorted.
func deniedGrants(ctx context.Context, c client.Client, grants []grant) ([]Right, error) {
	var exceed []Right
	for _, g := range grants {
		exceed = append(exceed, g.exceed)
	}
	exceed, err := denied(ctx, c, exceed)
	if err != nil || len(exceed) == 0 {
		return nil, err
	}
	var rules []Right
	for _, g := range grants {
		rules = append(rules, g.rules...)
	}
	if rules, err = denied(ctx, c, rules); err != nil || len(rules) == 0 {
		return nil, err
	}
	var out []Right
	for _, missing := range exceed {
		for _, g := range grants {
			if g.exceed == missing && slices.ContainsFunc(g.rules, func(r Right) bool { return slices.Contains(rules, r) }) {
				out = append(out, missing)
				break
			}
		}
	}
	return out, nil
}
