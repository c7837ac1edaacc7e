package broker

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/api/submariner/v1alpha1"
	"subctl/broker/exchange"
	"subctl/globalnet"
)

// memberRole returns the Role that the members of a clusterset share. It lets them write
// the kinds that are exchanged; the admission policy decides which objects. It gives no
// right to Secrets.
func memberRole(ns string, kinds exchange.Table) *rbacv1.Role {
	return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: MemberRoleName, Namespace: ns}, Rules: kinds.MemberRules()}
}

// selfRole returns the Role that lets a member follow its own identity, in which it finds its grant
// when the administrator has renewed it, and delete it, which deletes everything that the member
// has in the base namespace. It lets the member announce its global networks.
func selfRole(ns, clusterID string, global ...string) *rbacv1.Role {
	rules := []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"serviceaccounts"},
		ResourceNames: []string{MemberName(clusterID)}, Verbs: []string{"get", "list", "watch", "delete"},
	}}
	if len(global) > 0 {
		rules = append(rules, announceRule(global...))
	}
	return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: MemberName(clusterID), Namespace: ns}, Rules: rules}
}

// placeRole returns the Role that lets a member delete this very Role, which deletes everything
// that the member has in the namespace of a clusterset. It stands for the service account there:
// the owner of an object is in the namespace of the object. uid is the UID of the cluster.
func placeRole(ns, clusterID, uid string) *rbacv1.Role {
	return &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{
			Name:        MemberName(clusterID),
			Namespace:   ns,
			Annotations: map[string]string{ClusterUIDAnnotation: uid},
		},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles"},
			ResourceNames: []string{MemberName(clusterID)}, Verbs: []string{"get", "delete"},
		}},
	}
}

// joinerRole returns the rights of the token of a join file in a clusterset's namespace: to read
// who is a member, and to give a cluster its place. base is the namespace of the identities, where
// identityRole has the latter.
func joinerRole(ns, base string, kinds exchange.Table) *rbacv1.Role {
	rules := kinds.Rules([]string{"get", "list", "watch"})
	rules = append(rules, kinds.Rules([]string{"create"})...) // empty objects: see joinerPolicy
	if ns != base {
		rules = append(rules, placeRules()...)
	} else { // who is invited to other clustersets only has identityRole, and may not make a member of this one
		rules = append(rules, rbacv1.PolicyRule{
			APIGroups:     []string{rbacv1.GroupName},
			Resources:     []string{"roles"},
			ResourceNames: []string{MemberRoleName},
			Verbs:         []string{"bind"},
		})
	}
	return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: JoinerName, Namespace: ns}, Rules: rules}
}

// placeRules returns the rights to make Roles and to bind them. names restricts which of them can
// be read, and which Roles can be bound.
//
// The API server lets a user make Roles with rights that the user does not have only with the verbs
// escalate and bind. The admission policy of the joiner restricts which Roles, and is in force
// before the joiner has a right: without it, the joiner could give itself any right in the
// namespace.
func placeRules(names ...string) []rbacv1.PolicyRule {
	group := []string{rbacv1.GroupName}
	return []rbacv1.PolicyRule{
		{APIGroups: group, Resources: []string{"roles", "rolebindings"}, Verbs: []string{"create"}},
		{APIGroups: group, Resources: []string{"roles", "rolebindings"}, Verbs: []string{"get"}, ResourceNames: names},
		{APIGroups: group, Resources: []string{"roles"}, Verbs: []string{"escalate"}},
		{APIGroups: group, Resources: []string{"roles"}, Verbs: []string{"bind"}, ResourceNames: names},
	}
}

// identityRole returns the rights of the token of a join file in the base namespace: to read the
// Broker, and to give a cluster an identity. joinerRole has the rights in the clusterset "default",
// which has the same namespace. clusterID is the only cluster that may join; empty: any. It gets no
// global network but global, which was recorded with the invitation.
//
// It gives no right to read Secrets. The joiner reads the token that it has made by a Role for that
// Secret alone, which it makes, too. Identities name their clusters, and have their grants: who may
// join only one cluster can read no other.
//
// What remains is that the holder of a general file may make another token for an existing
// member, and so act as that member: joining again takes the same request, and an admission
// policy sees the Secret only, not whose service account it is for. A UID in the Secret would
// prove nothing, as the joiner can read it on the account.
func identityRole(ns, clusterID string, global ...string) *rbacv1.Role {
	role := IdentityRoleName
	accounts := []string(nil)
	places := []string(nil)
	if clusterID != "" {
		role = InviteeName(clusterID)
		accounts = []string{MemberName(clusterID)}
		places = []string{
			MemberName(clusterID),
			memberBindingName(clusterID),
			tokenName(InviteeName(clusterID), clusterID),
		}
	}
	rules := append(placeRules(places...), []rbacv1.PolicyRule{
		{
			APIGroups: []string{v1alpha1.GroupVersion.Group},
			Resources: []string{"brokers"},
			Verbs:     []string{"get", "list", "watch"},
		},
		{APIGroups: []string{""}, Resources: []string{"serviceaccounts", "secrets"}, Verbs: []string{"create"}},
		{
			APIGroups:     []string{""},
			Resources:     []string{"serviceaccounts"},
			Verbs:         []string{"get"},
			ResourceNames: accounts,
		},
		// The Roles of members alone, and which global networks they name: see joinerPolicy.
		{
			APIGroups:     []string{rbacv1.GroupName},
			Resources:     []string{"roles"},
			Verbs:         []string{"patch"},
			ResourceNames: accounts,
		},
	}...)
	if clusterID == "" || len(global) > 0 {
		rules = append(rules, announceRule(global...))
	}
	if clusterID == "" { // the record of global networks, and who is there to have one
		rules = append(rules, []rbacv1.PolicyRule{
			{
				APIGroups:     []string{""},
				Resources:     []string{"configmaps"},
				Verbs:         []string{"get", "update"},
				ResourceNames: []string{globalnet.ConfigMapName},
			},
			{APIGroups: []string{""}, Resources: []string{"serviceaccounts"}, Verbs: []string{"list"}},
		}...)
	}
	return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: role, Namespace: ns}, Rules: rules}
}

// tokenRole returns the Role that lets who makes a token read it, under the token's name.
func tokenRole(ns, token string) *rbacv1.Role {
	return &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: token, Namespace: ns},
		Rules: []rbacv1.PolicyRule{
			{
				APIGroups:     []string{""},
				Resources:     []string{"secrets"},
				ResourceNames: []string{token},
				Verbs:         []string{"get"},
			},
		},
	}
}

// joinerBinding gives the rights of a joiner in a clusterset to a service account of the base
// namespace: JoinerName, or an invitee.
func joinerBinding(ns, base, account string) *rbacv1.RoleBinding {
	return bindingOf(metav1.ObjectMeta{Name: account, Namespace: ns}, JoinerName, account, base)
}

// identityBinding gives the rights of identityRole to the same accounts.
func identityBinding(base, account, role string) *rbacv1.RoleBinding {
	return bindingOf(metav1.ObjectMeta{Name: account + identityBindingSuffix, Namespace: base}, role, account, base)
}

// bindingOf binds a service account of the base namespace to a Role.
func bindingOf(meta metav1.ObjectMeta, role, account, base string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: base}},
	}
}
