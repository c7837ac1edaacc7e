package install

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/sdewan"
)

// The group of CNFStatus, and verbs that a cache needs.
const statusGroup = "batch.sdewan.akraino.org"

var read = []string{"get", "list", "watch"}

// account returns the ServiceAccount of the controller and its rights, in Namespace and in the cluster. Only pods that ask for the
// token mount it.
func account() []client.Object {
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: Name, Namespace: Namespace}}
	local := metav1.ObjectMeta{Name: Name, Namespace: Namespace}
	global := metav1.ObjectMeta{Name: Name}
	return []client.Object{
		&corev1.ServiceAccount{ObjectMeta: local, AutomountServiceAccountToken: new(false)},
		&rbacv1.Role{ObjectMeta: local, Rules: localRules()},
		&rbacv1.RoleBinding{
			ObjectMeta: local, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: Name},
		},
		&rbacv1.ClusterRole{ObjectMeta: global, Rules: globalRules()},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: global, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: Name},
		},
	}
}

// localRules returns the rights in Namespace: to the Lease that elects the controller which works, and to the certificate of the webhooks.
// Nobody can create an object by name only.
func localRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		rule("coordination.k8s.io", []string{"leases"}, "create"),
		named(rule("coordination.k8s.io", []string{"leases"}, "get", "update"), Name),
		rule("", []string{"secrets"}, "create"),
		named(rule("", []string{"secrets"}, "get", "update", "patch"), WebhookName),
	}
}

// globalRules returns the rights in the cluster: to read CNFs and what gives access to them, and users' rights, by which the webhooks decide; to
// write the finalizers and statuses of rules, and the objects that the controller itself makes. It changes neither pods nor Deployments.
// Secrets can be read by name, which the pods of a CNF tell: the accounts of CNFs, which are in the namespaces of users.
func globalRules() []rbacv1.PolicyRule {
	byGroup := map[string][]string{}
	for _, k := range sdewan.Kinds() {
		byGroup[k.GVK.Group] = append(byGroup[k.GVK.Group], k.Resource)
	}
	var out []rbacv1.PolicyRule
	for _, group := range slices.Sorted(maps.Keys(byGroup)) {
		rules := byGroup[group]
		out = append(out,
			rule(group, rules, "get", "list", "watch", "update", "patch"),
			rule(group, suffixed(rules, "/status"), "update", "patch"),
			rule(group, suffixed(rules, "/finalizers"), "update"),
		)
	}
	return append(out,
		rule(statusGroup, []string{"firewalldnats"}, "create", "delete"), // for Services with an annotation
		rule(statusGroup, []string{"cnfstatuses"}, "get", "list", "watch", "create", "update", "patch", "delete"),
		rule(statusGroup, []string{"cnfstatuses/status"}, "update", "patch"),
		rule("apps", []string{"deployments"}, read...),
		rule("", []string{"pods", "services"}, read...),
		rule("", []string{"secrets"}, "get"),
		rule(rbacv1.GroupName, []string{"clusterrolebindings", "clusterroles", "rolebindings", "roles"}, read...),
		named(rule("admissionregistration.k8s.io", []string{"validatingwebhookconfigurations"}, "get", "list", "watch", "update", "patch"), WebhookName),
		rule("events.k8s.io", []string{"events"}, "create", "patch"),
	)
}

func suffixed(names []string, suffix string) []string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = name + suffix
	}
	return out
}

func rule(group string, resources []string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
}

// named limits a rule to one object.
func named(r rbacv1.PolicyRule, name string) rbacv1.PolicyRule {
	r.ResourceNames = []string{name}
	return r
}
