package controller

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"subctl/sdewan"
)

// Rules returns what the controller may do in all namespaces. It reads the Secrets that the labels
// of CNFs' pods name, and cannot list any.
func Rules() []rbacv1.PolicyRule {
	watch := []string{"get", "list", "watch"}
	out := []rbacv1.PolicyRule{
		{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: watch},
		{APIGroups: []string{""}, Resources: []string{"pods", "services"}, Verbs: watch},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}},
		{APIGroups: []string{"events.k8s.io", ""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	}
	groups := map[string][2][]string{}
	var order []string
	for _, k := range sdewan.Kinds() {
		g, seen := groups[k.GVK.Group]
		if !seen {
			order = append(order, k.GVK.Group)
		}
		groups[k.GVK.Group] = [2][]string{append(g[0], k.Resource), append(g[1], k.Resource+"/status")}
	}
	for _, g := range order {
		out = append(
			out,
			// finalizers
			rbacv1.PolicyRule{
				APIGroups: []string{g},
				Resources: groups[g][0],
				Verbs:     append([]string{"patch"}, watch...),
			},
			rbacv1.PolicyRule{APIGroups: []string{g}, Resources: groups[g][1], Verbs: []string{"patch"}},
		)
	}
	return append(
		out,
		// of Services
		rbacv1.PolicyRule{
			APIGroups: []string{order[0]},
			Resources: []string{"firewalldnats"},
			Verbs:     []string{"create", "delete"},
		},
		rbacv1.PolicyRule{
			APIGroups: []string{order[0]},
			Resources: []string{"cnfstatuses"},
			Verbs:     append([]string{"create", "patch"}, watch...),
		},
		rbacv1.PolicyRule{
			APIGroups: []string{order[0]},
			Resources: []string{"cnfstatuses/status"},
			Verbs:     []string{"patch"},
		},
	)
}
