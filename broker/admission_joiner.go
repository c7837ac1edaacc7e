package broker

import (
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/exchange"
	"subctl/globalnet"
)

// joinerPolicy returns the policy that restricts the holder of a join file to joining: to making
// new members, each with the rights of a member, and to reading the token of the member that it
// makes. The holder of a file for one cluster can make only that member, and one object of each
// name that this takes, so that it cannot store many. No holder can make itself a token that
// outlives the token of the file, or remove a member. A holder may change only one thing of a
// member that exists, the global networks that the member may announce; the holder of a file for
// one cluster may choose only networks that the invitation reserves. The holder of a general file
// cannot be kept from making a token of an existing member: see joinerRole. The objects that a
// member is going to exchange can be made empty only, one in each slot of the member.
func joinerPolicy(base string, kinds exchange.Table) []client.Object {
	user := "system:serviceaccount:" + base + ":"
	unless := func(resource, expression string) string {
		return fmt.Sprintf("object == null || variables.resource != '%s' || (%s)", resource, expression)
	}
	return policy(base+"-joiner", &admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: append(kindRules(kinds),
			rule("", writes(), "serviceaccounts", "secrets", "configmaps"),
			rule("rbac.authorization.k8s.io", writes(), "roles", "rolebindings"),
		)},
		MatchConditions: []admissionv1.MatchCondition{{
			Name: "the-joiner",
			Expression: fmt.Sprintf("request.userInfo.username == '%s' || request.userInfo.username.startsWith('%s')",
				user+JoinerName, user+inviteePrefix),
		}},
		Variables: []admissionv1.Variable{
			{Name: "resource", Expression: "request.resource.resource"},
			{Name: "name", Expression: "object != null ? object.metadata.name : ''"},
			{Name: "user", Expression: fmt.Sprintf("request.userInfo.username.substring(%d)", len(user))},
			{Name: "home", Expression: fmt.Sprintf("request.namespace == '%s'", base)},
			// Who owns what a cluster gets: its service account, or its Role in another
			// clusterset's namespace.
			{
				Name:       "owner",
				Expression: "variables.home ? ['v1', 'ServiceAccount'] : ['rbac.authorization.k8s.io/v1', 'Role']",
			},
			{
				Name:       "owners",
				Expression: "object != null && has(object.metadata.ownerReferences) ? object.metadata.ownerReferences : []",
			},
			// The account that the holder of a file for one cluster may make; empty: any.
			{
				Name: "only",
				Expression: fmt.Sprintf("variables.user.startsWith('%s') ? '%s' + variables.user.substring(%d) : ''",
					inviteePrefix, memberPrefix, len(inviteePrefix)),
			},
			// Of the objects that members exchange.
			annotationsVariable(),
			{Name: "empty", Expression: kinds.EmptyExpression()},
			{Name: "slot", Expression: "variables.name"},
			{Name: "id", Expression: labelOf("object", submarinerv1.ClusterIDLabel)},
		},
		Validations: append(emptyValidations(kinds), []admissionv1.Validation{
			identityBound(),
			{
				Expression: "object == null || !has(object.metadata.finalizers) || size(object.metadata.finalizers) == 0",
				Message:    "who joins may make no objects with finalizers, which could keep them for ever",
			},
			{
				// So that everything is deleted with the account, or with the Role, such as by
				// subctl revoke.
				Expression: "object == null || variables.resource in ['serviceaccounts', 'configmaps'] || !variables.home && variables.resource == 'roles' && size(variables.owners) == 0 || " +
					"size(variables.owners) == 1 && [variables.owners[0].apiVersion, variables.owners[0].kind] == variables.owner && " + isMember(
					"variables.owners[0].name"),
				Message: "who joins may make objects only that the service account of a cluster owns, or, in other clustersets than default, the Role of a cluster",
			},
			{
				Expression: "request.operation == 'CREATE' || request.operation == 'UPDATE' && (variables.resource == 'configmaps' || " +
					"variables.resource == 'roles' && variables.home && " + isMember(
					"variables.name") + " && object.metadata.?labels == oldObject.metadata.?labels && " +
					"object.metadata.?annotations == oldObject.metadata.?annotations && object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences)",
				Message: "who joins may create members, and change only which global networks they may announce",
			},
			{
				Expression: unless(
					"roles",
					fmt.Sprintf(
						"!has(object.rules) || size(object.rules) < 2 || size(object.rules) == 2 && variables.home && %s && "+
							"has(object.rules[1].apiGroups) && object.rules[1].apiGroups == ['%s'] && has(object.rules[1].resources) && object.rules[1].resources == ['%s'] && object.rules[1].verbs == ['%s'] && "+
							"has(object.rules[1].resourceNames) && size(object.rules[1].resourceNames) >= 1 && size(object.rules[1].resourceNames) <= %d && object.rules[1].resourceNames.all(n, %s)",
						isMember("variables.name"),
						submarinerv1.GroupVersion.Group,
						announcedResource,
						announceVerb,
						globalnet.MaxNetworks,
						mayAnnounce(base, "n"),
					),
				),
				Message: "who joins may let clusters announce only global networks, and those only that an invitation reserves",
			},
			{
				Expression: unless(
					"configmaps",
					fmt.Sprintf(
						"variables.only == '' && variables.name == '%s' && oldObject != null && has(object.data) && has(oldObject.data) && "+
							"object.data.all(k, k == '%[2]s' || k in oldObject.data && oldObject.data[k] == object.data[k]) && oldObject.data.all(k, k in object.data) && "+
							"!has(object.binaryData) && !has(object.immutable) && object.metadata.?labels == oldObject.metadata.?labels && "+
							"object.metadata.?annotations == oldObject.metadata.?annotations && object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences",
						globalnet.ConfigMapName,
						globalnet.ClusterInfoKey,
					),
				),
				Message: "who joins may record a global network, and change no setting of globalnet",
			},
			{
				Expression: unless("serviceaccounts", isMember("variables.name")),
				MessageExpression: "'who joins may make service accounts of clusters only: ' + (variables.only == '' ? '" +
					memberPrefix + "<cluster ID>' : variables.only)",
			},
			{
				Expression: unless("secrets", "object.type == 'kubernetes.io/service-account-token' && "+
					"has(object.metadata.annotations) && 'kubernetes.io/service-account.name' in object.metadata.annotations && "+
					isMember("object.metadata.annotations['kubernetes.io/service-account.name']")+" && "+
					isToken("variables.name",
						"object.metadata.annotations['kubernetes.io/service-account.name']")+
					" && !has(object.data) && !has(object.immutable)"),
				MessageExpression: "'who joins may make tokens of clusters only, without data: ' + (variables.only == '' ? " +
					"'" + memberPrefix + "<cluster ID>-token-<32 random hexadecimal digits>' : variables.only + '" +
					invitedTokenSuffix + "')",
			},
			{
				Expression: unless(
					"roles",
					"has(object.rules) && size(object.rules) >= 1 && has(object.rules[0].apiGroups) && object.rules[0].apiGroups == [variables.home ? '' : 'rbac.authorization.k8s.io'] && "+
						"has(object.rules[0].resourceNames) && object.rules[0].resourceNames == [variables.name] && has(object.rules[0].resources) && ("+
						"variables.home && "+isMember("variables.name")+
						" && object.rules[0].resources == ['serviceaccounts'] && object.rules[0].verbs.all(v, v in ['get', 'list', 'watch', 'delete']) || "+
						"!variables.home && "+isMember("variables.name")+
						" && object.rules[0].resources == ['roles'] && object.rules[0].verbs.all(v, v in ['get', 'delete']) || "+
						"variables.home && "+isAnyToken(
						"variables.name")+
						" && object.rules[0].resources == ['secrets'] && object.rules[0].verbs == ['get'])",
				),
				Message: "who joins may make Roles only that let a cluster follow and delete its own service account, or leave a clusterset, or that let who joins read the token",
			},
			{
				Expression: unless(
					"rolebindings",
					"has(object.subjects) && size(object.subjects) == 1 && object.subjects[0].kind == 'ServiceAccount' && "+
						"object.subjects[0].namespace == '"+base+"' && object.roleRef.kind == 'Role' && ("+
						isMember("object.subjects[0].name")+
						" && (object.roleRef.name == object.subjects[0].name && variables.name == object.roleRef.name || "+
						"object.roleRef.name == '"+MemberRoleName+"' && variables.name == object.subjects[0].name + '"+
						memberBindingSuffix+"') || "+
						"variables.home && object.subjects[0].name == variables.user && variables.name == object.roleRef.name && "+isAnyToken(
						"object.roleRef.name")+")",
				),
				Message: "who joins may bind clusters only, to the Role " + MemberRoleName +
					" or their own, and itself to the Role that reads a token which it has made, each under one name",
			},
		}...),
	})
}

// emptyValidations returns what restricts the objects of the kinds that members exchange to empty
// ones, in the slots of the member that owns them.
func emptyValidations(kinds exchange.Table) []admissionv1.Validation {
	var out []admissionv1.Validation
	for _, k := range kinds {
		slot := "variables.name == variables.id"
		if k.Slotted() {
			slot = k.SlotExpression()
		}
		out = append(out, admissionv1.Validation{
			Expression: fmt.Sprintf(
				"object == null || variables.resource != '%s' || (variables.empty && has(object.metadata.labels) && size(object.metadata.labels) == 1 && "+
					isMember("('"+memberPrefix+"' + variables.id)")+" && has(object.metadata.ownerReferences) && "+
					"object.metadata.ownerReferences.all(o, o.name == '"+memberPrefix+"' + variables.id) && %s)",
				k.Resource,
				slot,
			),
			Message: fmt.Sprintf(
				"who joins may make empty %s only, which the service account of their cluster owns, under its names",
				k.Resource),
		})
	}
	return out
}

const (
	memberPattern = memberPrefix + "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
	tokenPattern  = "-token-[0-9a-f]{32}"
)

// isMember returns a CEL expression for whether a name is of the service account of a cluster
// that who asks may make. It is the same as submarinerv1.CheckClusterID.
func isMember(name string) string {
	return fmt.Sprintf(
		"(variables.only == '' ? %[1]s.matches('^%[2]s$') && !%[1]s.matches('^%[3]s.+%[4]s') : %[1]s == variables.only)",
		name, memberPattern, memberPrefix, submarinerv1.ReservedIDs)
}

// isToken returns a CEL expression for whether a name is of a token of a service account that who
// asks may make: see tokenName.
func isToken(name, account string) string {
	return fmt.Sprintf(
		"(variables.only == '' ? %[1]s.startsWith(%[2]s) && %[1]s.substring(size(%[2]s)).matches('^%[3]s$') : %[1]s == %[2]s + '%[4]s')",
		name, account, tokenPattern, invitedTokenSuffix)
}

// isAnyToken returns a CEL expression for whether a name is of a token of a cluster that who asks
// may make.
func isAnyToken(name string) string {
	return fmt.Sprintf("(variables.only == '' ? %[1]s.matches('^%[2]s%[3]s$') : %[1]s == variables.only + '%[4]s')",
		name, memberPattern, tokenPattern, invitedTokenSuffix)
}
