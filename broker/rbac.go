package broker

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
)

// Members share one Role per clusterset. It lets them write; the admission
// policy says what. There is nothing in it about Secrets.
func memberRole(ns string) *rbacv1.Role {
	return &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: MemberRoleName, Namespace: ns},
		Rules:      memberRules(),
	}
}

func memberRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{
			APIGroups: []string{submarinerv1.GroupVersion.Group}, Resources: []string{"clusters", "endpoints", "cablepolicies"},
			Verbs: []string{"create", "get", "list", "watch", "patch", "update", "delete", "deletecollection"},
		},
		{
			APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"brokers"},
			Verbs: []string{"get", "list"},
		},
	}
}

// selfRole lets a member delete its own identity, with which goes all it has.
func selfRole(ns, clusterID string) *rbacv1.Role {
	return &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: MemberName(clusterID), Namespace: ns},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"serviceaccounts"},
			ResourceNames: []string{MemberName(clusterID)}, Verbs: []string{"get", "delete"},
		}},
	}
}

// joinerRole is what the token of a join file can do in a clusterset's
// namespace: give a cluster an identity, and look who is there. base is the
// namespace the identities are in.
//
// It may not give away what it does not have, hence the right to delete service
// accounts; the admission policy of the joiner keeps it from using that.
//
// It may get Secrets, to read the token it has made, and not list or watch them:
// those of members have names that cannot be guessed. What is left is that it may
// make another token for a member that exists, and so act as that member: joining
// again takes the same request, and an admission policy sees the Secret only, not
// whose service account it is for. A UID in the Secret would prove nothing, as the
// joiner reads that on the account.
func joinerRole(ns, base string) *rbacv1.Role {
	rules := []rbacv1.PolicyRule{
		{
			APIGroups: []string{submarinerv1.GroupVersion.Group}, Resources: []string{"clusters", "endpoints", "cablepolicies", "brokers"},
			Verbs: []string{"get", "list", "watch"},
		},
		{
			APIGroups: []string{rbacv1.GroupName}, Resources: []string{"rolebindings"}, Verbs: []string{"create", "get"},
		},
		{
			APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles"},
			ResourceNames: []string{MemberRoleName}, Verbs: []string{"bind"},
		},
	}
	if ns == base {
		rules = append(rules,
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"create", "get", "delete"}},
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create", "get"}},
			rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles"}, Verbs: []string{"create", "get"}},
		)
	}
	return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: JoinerName, Namespace: ns}, Rules: rules}
}

func joinerBinding(ns, base string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: JoinerName, Namespace: ns},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: JoinerName},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: JoinerName, Namespace: base}},
	}
}
