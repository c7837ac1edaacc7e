package broker

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"subctl/api/submariner/v1alpha1"
	"subctl/broker/exchange"
)

// memberRole returns the Role that the members of a clusterset share. It lets them write
// the kinds that are exchanged; the admission policy decides which objects. It gives no
// right to Secrets.
func memberRole(ns string, kinds exchange.Table) *rbacv1.Role {
	return &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: MemberRoleName, Namespace: ns},
		Rules: append(kinds.MemberRules(), rbacv1.PolicyRule{
			APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"brokers"}, Verbs: []string{"get", "list"},
		}),
	}
}

// selfRole returns the Role that lets a member delete its own identity, which deletes
// everything that the member has.
func selfRole(ns, clusterID string) *rbacv1.Role {
	return &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: MemberName(clusterID), Namespace: ns},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"serviceaccounts"},
			ResourceNames: []string{MemberName(clusterID)}, Verbs: []string{"get", "delete"},
		}},
	}
}

// joinerRole returns the rights of the token of a join file in a clusterset's namespace:
// to give a cluster an identity, and to read who is a member. base is the namespace of
// the identities.
//
// It gives no right to read Secrets. The joiner reads the token that it has made by a Role for
// that Secret alone, which it makes, too. The API server lets a user make Roles with rights
// that the user does not have only with the verbs escalate and bind. The admission policy of
// the joiner restricts them to these Roles, and is in force before the joiner has a right:
// without it, the joiner could give itself any right in the namespace.
//
// What remains is that the holder of a general file may make another token for an existing
// member, and so act as that member: joining again takes the same request, and an admission
// policy sees the Secret only, not whose service account it is for. A UID in the Secret would
// prove nothing, as the joiner can read it on the account.
func joinerRole(ns, base string, kinds exchange.Table) *rbacv1.Role {
	brokers, read := schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "brokers"}, []string{"get", "list", "watch"}
	rules := kinds.Rules(read, brokers)
	rules = append(rules, rbacv1.PolicyRule{
		APIGroups: []string{rbacv1.GroupName}, Resources: []string{"rolebindings"}, Verbs: []string{"create", "get"},
	})
	if ns == base {
		rules = append(rules, kinds.Rules([]string{"create"})...) // empty objects: see joinerPolicy
		rules = append(rules,
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"create", "get"}},
			rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create"}},
			rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles"}, Verbs: []string{"create", "get", "escalate", "bind"}},
		)
	} else {
		rules = append(rules, rbacv1.PolicyRule{
			APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles"},
			ResourceNames: []string{MemberRoleName}, Verbs: []string{"bind"},
		})
	}
	return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: JoinerName, Namespace: ns}, Rules: rules}
}

// tokenRole returns the Role that lets who makes a token read it, under the token's name.
func tokenRole(ns, token string) *rbacv1.Role {
	return &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: token, Namespace: ns},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{token}, Verbs: []string{"get"}}},
	}
}

// joinerBinding gives the rights of a joiner to a service account of the base namespace:
// JoinerName, or an invitee.
func joinerBinding(ns, base, account string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account, Namespace: ns},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: JoinerName},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: base}},
	}
}
