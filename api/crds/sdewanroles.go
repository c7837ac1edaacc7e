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

var (
	readable  = []string{"cnfservices", "firewalldnats", "firewallforwardings", "firewallrules", "firewallsnats", "firewallzones", "ipsecproposals", "mwan3policies", "mwan3rules"}
	secretive = []string{"ipsechosts", "ipsecsites"}
)

// SDEWANRoles returns the ClusterRoles that let the users of a cluster use SD-EWAN: who has view in a namespace reads its rules, except IpsecSites and
// IpsecHosts, which hold keys as Secrets do; who has edit reads and writes all rules. Nobody but the controller writes statuses.
func SDEWANRoles() []*rbacv1.ClusterRole {
	rules := slices.Concat(readable, secretive)
	return []*rbacv1.ClusterRole{
		sdewanRole("sdewan-view", aggregateToView, []string{"get", "list", "watch"}, append(slices.Clone(readable), "cnfstatuses"), []string{"ipsecproposals"}),
		sdewanRole("sdewan-edit", aggregateToEdit, []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}, rules, append(slices.Clone(secretive), "ipsecproposals")),
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
