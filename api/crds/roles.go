package crds

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The group of all our kinds, the group of ServiceExports, and labels of ClusterRoles whose rules
// Kubernetes adds to its own ClusterRoles view, edit and admin. The role edit has the rights of
// view, too, and the role admin the rights of edit.
const (
	group            = "submariner.io"
	servicesGroup    = "multicluster.x-k8s.io"
	aggregateToView  = rbacv1.GroupName + "/aggregate-to-view"
	aggregateToEdit  = rbacv1.GroupName + "/aggregate-to-edit"
	aggregateToAdmin = rbacv1.GroupName + "/aggregate-to-admin"
)

// UserRoles returns the ClusterRoles that let the users of a cluster use our kinds: who has view in
// a namespace reads all objects there, who has edit also writes cable policies, GlobalEgressIPs and
// ServiceExports, and who has admin also changes how the cluster is joined. Nobody but the agents
// and administrators of the cluster writes what the agents report, allocate, publish or import.
func UserRoles() []*rbacv1.ClusterRole {
	change := []string{"create", "delete", "patch", "update"}
	read := []string{"get", "list", "watch"}
	return []*rbacv1.ClusterRole{
		withServices(userRole("submariner-view", aggregateToView, read, "brokers", "cablepolicies",
			"clusterglobalegressips", "clusters", "endpoints", "exportedservices", "gateways", "globalegressips",
			"globalingressips", "routeagents", "submariners"), read, "serviceexports", "serviceimports"),
		withServices(userRole("submariner-edit", aggregateToEdit, change, "cablepolicies", "globalegressips"), change,
			"serviceexports"),
		userRole("submariner-admin", aggregateToAdmin, []string{"patch", "update"}, "brokers", "submariners"),
	}
}

func userRole(name, label string, verbs []string, resources ...string) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{label: "true"}},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: resources, Verbs: verbs}},
	}
}

// withServices returns a role with the right to verbs on kinds of the Multi-Cluster Services API. A
// cluster may not have them.
func withServices(role *rbacv1.ClusterRole, verbs []string, resources ...string) *rbacv1.ClusterRole {
	role.Rules = append(role.Rules,
		rbacv1.PolicyRule{APIGroups: []string{servicesGroup}, Resources: resources, Verbs: verbs})
	return role
}

// IsUserRole reports whether name is the name of one of UserRoles.
func IsUserRole(name string) bool {
	for _, role := range UserRoles() {
		if role.Name == name {
			return true
		}
	}
	return false
}
