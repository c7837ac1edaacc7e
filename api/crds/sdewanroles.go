package crds

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The groups of SD-EWAN, and their resources. Those in secretive hold keys.
const (
	sdewanGroup = "batch.sdewan.akraino.org"
	ipsecGroup  = "sdewan.akraino.org"
)

// Editors write rules of the types that the proposal names and rules without a type, but no rules
// of the platform ("basic").
const (
	bucketAnnotation = "sdewan-bucket-type-permission"
	editorsTypes     = `{"*": ["", "app-intent", "k8s-service"]}`
)

var (
	readable = []string{
		"cnfnats", "cnfrouterules", "cnfroutes", "cnfservices", "firewalldnats", "firewallforwardings", "firewallrules",
		"firewallsnats", "firewallzones", "ipsecproposals", "mwan3policies", "mwan3rules", "networkfirewallrules",
	}
	secretive = []string{"ipsechosts", "ipsecsites"}
)

// SDEWANRoles returns the ClusterRoles that let the users of a cluster use SD-EWAN: who has view in
// a namespace reads its rules, except IpsecSites and IpsecHosts, which hold keys as Secrets do; who
// has edit reads all rules, and writes rules of all other types than "basic". Nobody but the
// controller writes statuses.
func SDEWANRoles() []*rbacv1.ClusterRole {
	rules := slices.Concat(readable, secretive)
	edit := sdewanRole("sdewan-edit", aggregateToEdit,
		[]string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}, rules,
		append(slices.Clone(secretive), "ipsecproposals"))
	edit.Rules = append(
		edit.Rules,
		rbacv1.PolicyRule{
			APIGroups: []string{sdewanGroup},
			Resources: []string{"cnfstatuses"},
			Verbs:     []string{"get", "list", "watch"},
		},
	)
	edit.Annotations = map[string]string{bucketAnnotation: editorsTypes}
	return []*rbacv1.ClusterRole{
		sdewanRole("sdewan-view", aggregateToView, []string{"get", "list", "watch"},
			append(slices.Clone(readable), "cnfstatuses"), []string{"ipsecproposals"}),
		edit,
	}
}

func sdewanRole(name, label string, verbs, resources, ipsec []string) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{label: "true"}},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{sdewanGroup}, Resources: resources, Verbs: verbs},
			{APIGroups: []string{ipsecGroup}, Resources: ipsec, Verbs: verbs},
		},
	}
}
