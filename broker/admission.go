package broker

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/exchange"
	"subctl/globalnet"
	"subctl/internal/kube"
)

// RBAC cannot restrict a cluster to its own objects, so admission policies do. They are
// part of the API server, stable since Kubernetes 1.30; nothing of ours runs there.
//
// The name of an object identifies its owner or, if people choose the name, its label does:
// see exchange.Named and exchange.Free. Neither can be changed. Label, name and spec must
// agree, so that no reader can be told different owners by different fields.
//
// The admission policies go by who asks, in every namespace and for every version of the
// API: an exception by label would be an exception that somebody can set.

// minKubernetes is the first minor version of Kubernetes 1 whose admission policies are
// stable.
const minKubernetes = 30

// memberPolicy returns the policy that restricts members to their own objects.
func memberPolicy(base string, kinds exchange.Table) []client.Object {
	label := submarinerv1.ClusterIDLabel
	return policy(base+"-member", &admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{
			ResourceRules: append(kindRules(kinds), rule("", writes(), "serviceaccounts"),
				rule("rbac.authorization.k8s.io", writes(), "roles")),
		},
		MatchConditions: []admissionv1.MatchCondition{{
			Name: "a-member",
			Expression: fmt.Sprintf("request.userInfo.username.startsWith('system:serviceaccount:%s:%s')", base,
				memberPrefix),
		}},
		Variables: append([]admissionv1.Variable{
			{
				Name: "id",
				Expression: fmt.Sprintf("request.userInfo.username.substring(%d)",
					len("system:serviceaccount::"+base+memberPrefix)),
			},
			{Name: "resource", Expression: "request.resource.resource"},
			{
				Name:       "slot",
				Expression: "object != null ? object.metadata.name : oldObject != null ? oldObject.metadata.name : ''",
			},
			{Name: "nameInClusters", Expression: fmt.Sprintf("object != null ? (%s) : (%s)",
				annotationOf("object", submarinerv1.NameAnnotation),
				annotationOf("oldObject", submarinerv1.NameAnnotation))},
			{
				Name: "name",
				Expression: "variables.resource in " + quoted(
					slotted(kinds)) + " && variables.nameInClusters != '' ? variables.nameInClusters : variables.slot",
			},
			annotationsVariable(),
			{Name: "empty", Expression: kinds.EmptyExpression()},
			{Name: "leaving", Expression: kinds.LeavingExpression()},
			{Name: "spec", Expression: "object != null && has(object.spec) ? object.spec : {}"},
			{Name: "label", Expression: labelOf("object", label)},
			{Name: "oldLabel", Expression: labelOf("oldObject", label)},
		}, sizeVariables(kinds)...),
		Validations: slices.Concat(
			[]admissionv1.Validation{{
				Expression: "variables.resource in " + quoted(resources(kinds)) +
					" || (variables.resource in ['serviceaccounts', 'roles'] && request.operation == 'DELETE')",
				MessageExpression: "'cluster ' + variables.id + ' may not write ' + variables.resource",
			}},
			ownerValidations(kinds),
			slotValidations(kinds),
			[]admissionv1.Validation{{
				Expression: "!(variables.resource in ['serviceaccounts', 'roles']) || variables.name == '" +
					memberPrefix + "' + variables.id",
				MessageExpression: "'cluster ' + variables.id + ' may not delete the identity of another'",
			}, {
				// Or nobody could join with its ID: what is left has names that its successor
				// needs.
				Expression: "request.operation != 'DELETE' || request.options == null || !(has(request.options.propagationPolicy) && request.options.propagationPolicy == 'Orphan' || " +
					"has(request.options.orphanDependents) && request.options.orphanDependents)",
				MessageExpression: "'cluster ' + variables.id + ' may not leave what belongs to ' + variables.name + ' without an owner'",
			}, {
				Expression:        "object == null || variables.label == variables.id",
				MessageExpression: fmt.Sprintf("'label %s is \"' + variables.label + '\", not ' + variables.id", label),
			}},
			specValidations(kinds),
			proofValidations(),
			boundValidations(kinds),
		),
	})
}

// labelPolicy returns the policy that restricts the labels of objects in the namespaces of
// the broker, whoever writes them: an object whose label names another cluster than its spec
// is ignored by all clusters, and agents decide by the other reserved labels.
func labelPolicy(base string, kinds exchange.Table) []client.Object {
	id := submarinerv1.ClusterIDLabel
	labels := "(has(object.metadata.labels) ? object.metadata.labels : {})"
	var reserved []string
	for _, prefix := range submarinerv1.ReservedLabels {
		reserved = append(reserved, fmt.Sprintf("k.startsWith('%s')", prefix))
	}
	return policy(base+"-labels", &admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: submarinerv1.ClusterSetLabel, Operator: metav1.LabelSelectorOpExists},
			}},
			ResourceRules: kinds.OwnedRules(admissionv1.Create, admissionv1.Update),
		},
		Variables: []admissionv1.Variable{
			{Name: "labels", Expression: labels},
			{Name: "label", Expression: labelOf("object", id)},
			{Name: "owner", Expression: ownerOf(kinds)},
			{
				Name: "reserved",
				Expression: fmt.Sprintf("variables.labels.filter(k, (%s) && k != '%s')", strings.Join(reserved, " || "),
					id),
			},
		},
		Validations: []admissionv1.Validation{{
			Expression:        "size(variables.reserved) == 0",
			MessageExpression: "'reserved labels: ' + variables.reserved.join(', ') + ': choose other names'",
		}, {
			Expression: "variables.label == '' || variables.label == variables.owner",
			MessageExpression: fmt.Sprintf(
				"'label %s is \"' + variables.label + '\", not ' + variables.owner + ', the ID in the spec: it says whose the object is'",
				id),
		}},
	})
}

// ownerOf returns a CEL expression for the ID of the cluster in the spec of object, of a kind that
// has it.
func ownerOf(kinds exchange.Table) string {
	expression := ""
	for _, k := range kinds {
		if k.Named != nil && k.Named.ClusterID != nil {
			expression += fmt.Sprintf("request.resource.resource == '%s' ? object.spec.%s : ", k.Resource,
				k.Named.IDField)
		}
	}
	return expression + "''"
}

// kindRules selects every resource of the kinds' API groups.
func kindRules(kinds exchange.Table) []admissionv1.NamedRuleWithOperations {
	var groups []string
	var rules []admissionv1.NamedRuleWithOperations
	for _, k := range kinds {
		if !slices.Contains(groups, k.GroupVersion.Group) {
			groups = append(groups, k.GroupVersion.Group)
			rules = append(rules, rule(k.GroupVersion.Group, writes(), "*"))
		}
	}
	return rules
}

func resources(kinds exchange.Table) []string {
	var out []string
	for _, k := range kinds {
		out = append(out, k.Resource)
	}
	return out
}

// ownerValidations returns what makes an object, by name or label, the member's own.
func ownerValidations(kinds exchange.Table) []admissionv1.Validation {
	var out []admissionv1.Validation
	for _, k := range kinds {
		unless := fmt.Sprintf("variables.resource != '%s' || ", k.Resource)
		if k.Named != nil {
			message := fmt.Sprintf(
				"'cluster ' + variables.id + ' may not write the %s ' + variables.name + ', which is not its own'",
				k.Noun)
			if k.Named.Names.Rest != nil {
				message = fmt.Sprintf(
					"'cluster ' + variables.id + ' may not write the %s ' + variables.name + ': its own are named ' + %s",
					k.Noun, k.Named.Names.Form())
			}
			if k.Slotted() { // the slot is the member's own, whatever is in it
				unless += "variables.empty || object == null && variables.slot.startsWith(variables.id + '.') || "
			}
			out = append(out,
				admissionv1.Validation{Expression: unless + k.Named.Names.Expression(), MessageExpression: message})
			continue
		}
		if k.Free.BrokerOnly { // deleting is leaving, or obeying
			out = append(out, admissionv1.Validation{
				Expression: unless + "object == null || variables.empty",
				MessageExpression: fmt.Sprintf(
					"'this broker accepts no %s of a cluster: create ' + variables.name + ' on the broker (subctl cable-policy add --context)'",
					k.Noun),
			})
		}
		out = append(out, admissionv1.Validation{
			Expression: unless +
				"oldObject == null || variables.oldLabel == variables.id || variables.slot.startsWith(variables.id + '.')",
			MessageExpression: fmt.Sprintf(
				"'cluster ' + variables.id + ' may not change the %s ' + variables.name + ', which ' + "+
					"(variables.oldLabel == '' ? 'the broker' : 'cluster ' + variables.oldLabel) + ' has made'",
				k.Noun,
			),
		}, admissionv1.Validation{
			Expression: unless +
				"object == null || variables.empty || variables.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",
			MessageExpression: fmt.Sprintf(
				"variables.name + ' cannot name a %s: use at most 63 lower case letters, digits and -'", k.Noun),
		})
	}
	return out
}

// slotValidations returns what bounds the objects of each member: the names under which the
// objects of a member are stored.
func slotValidations(kinds exchange.Table) []admissionv1.Validation {
	var out []admissionv1.Validation
	for _, k := range kinds {
		if k.Slotted() {
			out = append(out, admissionv1.Validation{
				Expression: fmt.Sprintf("object == null || variables.resource != '%s' || %s", k.Resource,
					k.SlotExpression()),
				MessageExpression: fmt.Sprintf(
					"'cluster ' + variables.id + ' may not write the %s ' + variables.slot + ': it has the names ' + variables.id + '.0 to ' + variables.id + '.%d, "+
						"and the name in clusters is in annotation %s'",
					k.Noun,
					k.PerCluster-1,
					submarinerv1.NameAnnotation,
				),
			})
		}
	}
	return out
}

// slotted returns the resources of the kinds whose objects are in slots.
func slotted(kinds exchange.Table) []string {
	return resources(slices.DeleteFunc(slices.Clone(kinds), func(k exchange.Kind) bool { return !k.Slotted() }))
}

// specValidations returns what the specs of members' objects must agree with.
func specValidations(kinds exchange.Table) []admissionv1.Validation {
	var ids, rules []admissionv1.Validation
	for _, k := range kinds {
		if k.Named == nil {
			continue
		}
		other := fmt.Sprintf("object == null || variables.resource != '%s' || ", k.Resource)
		if field := k.Named.IDField; k.Named.ClusterID != nil {
			ids = append(ids, admissionv1.Validation{
				Expression: fmt.Sprintf("%s('%[2]s' in variables.spec && variables.spec.%[2]s == variables.id)", other,
					field),
				MessageExpression: fmt.Sprintf("'spec.%s is not ' + variables.id", field),
			})
		}
		for _, r := range k.Named.Rules {
			r.Expression = fmt.Sprintf("object == null || variables.empty || variables.resource != '%s' || %s",
				k.Resource, r.Expression)
			rules = append(rules, r)
		}
	}
	return append(ids, rules...)
}

// proofValidations returns what members' objects must carry. The API server cannot verify
// signatures; the members do.
func proofValidations() []admissionv1.Validation {
	return []admissionv1.Validation{{
		Expression: fmt.Sprintf(
			"object == null || variables.empty || variables.leaving || (has(object.metadata.annotations) && '%s' in object.metadata.annotations)",
			submarinerv1.SignatureAnnotation),
		MessageExpression: fmt.Sprintf("variables.name + ' has no annotation %s: all other clusters would refuse it'",
			submarinerv1.SignatureAnnotation),
	}}
}

// policy returns a policy that denies what it does not allow, and denies everything when it
// cannot be evaluated, and the binding that puts it in force.
func policy(name string, spec *admissionv1.ValidatingAdmissionPolicySpec) []client.Object {
	return kube.AdmissionPolicy(name, spec)
}

// labelOf returns a CEL expression for the value of a label of object or oldObject; it is
// empty without the label.
func labelOf(object, label string) string { return entryOf(object, "labels", label) }

// annotationOf is like labelOf, for an annotation.
func annotationOf(object, annotation string) string {
	return entryOf(object, "annotations", annotation)
}

func entryOf(object, field, key string) string {
	return fmt.Sprintf(
		"%[1]s != null && has(%[1]s.metadata.%[2]s) && '%[3]s' in %[1]s.metadata.%[2]s ? %[1]s.metadata.%[2]s['%[3]s'] : ''",
		object, field, key)
}

func writes() []admissionv1.OperationType { return kube.AdmissionWrites() }

func rule(group string, ops []admissionv1.OperationType, resources ...string) admissionv1.NamedRuleWithOperations {
	return kube.AdmissionRule(group, ops, resources...)
}

// A member may announce the global networks to which its own Role gives it the verb announceVerb.
// RBAC authorizes nothing else with that verb, and no API has the resource announcedResource: only
// the admission policies here ask for it. See docs/adr/0030-global-networks.md.
const (
	announceVerb      = "announce"
	announcedResource = "globalnetworks"
)

// announceRule returns the right to announce global networks; to announce any without names.
func announceRule(names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{
			submarinerv1.GroupVersion.Group,
		}, Resources: []string{announcedResource}, Verbs: []string{announceVerb}, ResourceNames: names,
	}
}

// mayAnnounce returns a CEL expression that reports whether the requesting user may announce a
// global network. The API server accepts no more than two authorization checks in an expression of
// a policy: see globalnet.MaxNetworks.
func mayAnnounce(base, network string) string {
	return fmt.Sprintf("authorizer.group('%s').resource('%s').namespace('%s').name(%s).check('%s').allowed()",
		submarinerv1.GroupVersion.Group, announcedResource, base, network, announceVerb)
}

// globalnetPolicy returns the policy that restricts the global networks, and the addresses in them,
// that members announce, to those for which they have the right. within is the range of the broker;
// the zero Prefix: none.
//
// Kubernetes 1.30 has no functions for networks in policies, so this one calculates with numbers.
func globalnetPolicy(base string, within netip.Prefix, kinds exchange.Table) []client.Object {
	prefix := "system:serviceaccount:" + base + ":" + memberPrefix
	field := func(name string) string {
		return fmt.Sprintf("object != null && has(object.spec) && has(object.spec.%[1]s) ? object.spec.%[1]s : []",
			name)
	}
	const network = ipv4Pattern + "/([12]?[0-9]|3[0-2])$"
	// The first address of a network n, and the number of its addresses.
	bounds := "[n].map(n, [" + numberOf(
		"n.split('/')[0]") + ", variables.sizes[int(n.split('/')[1])]]).map(r, [r[0] - r[0] % r[1], r[1]])"
	inRange := "[]"
	if within.IsValid() {
		first := uint64(binary.BigEndian.Uint32(within.Addr().AsSlice()))
		inRange = fmt.Sprintf(
			"variables.subnets.filter(n, n.matches('%s') && %s.all(r, r[0] < %d && %d < r[0] + r[1]))", network, bounds,
			first+uint64(1)<<(32-within.Bits()), first)
	}
	own := func(list string) string {
		return fmt.Sprintf("size(%[1]s) <= %[2]d && %[1]s.all(n, %[3]s)", list, globalnet.MaxNetworks,
			mayAnnounce(base, "n"))
	}
	refused := func(what, list string) string {
		return fmt.Sprintf(
			"'cluster ' + variables.id + ' may not announce the %s ' + %s.join(', ') + ', which the broker has not given to it: run subctl join with the version of the broker, or let the administrator of the broker run subctl deploy-broker again'",
			what, list)
	}
	return policy(base+"-globalnet", &admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{
			ResourceRules: kinds.NetworkRules(admissionv1.Create, admissionv1.Update),
		},
		MatchConditions: []admissionv1.MatchCondition{{
			Name: "a-member", Expression: fmt.Sprintf("request.userInfo.username.startsWith('%s')", prefix),
		}},
		Variables: []admissionv1.Variable{
			{Name: "id", Expression: fmt.Sprintf("request.userInfo.username.substring(%d)", len(prefix))},
			{Name: "sizes", Expression: sizesOfNetworks()},
			{Name: "networks", Expression: field("global_cidr")},
			{Name: "subnets", Expression: field("subnets")},
			{Name: "addresses", Expression: field("allocated_ips")},
			{Name: "inRange", Expression: inRange},
		},
		Validations: []admissionv1.Validation{{
			Expression: own("variables.networks"), MessageExpression: refused("global networks", "variables.networks"),
		}, {
			Expression: own(
				"variables.inRange"),
			MessageExpression: refused("networks in the range of global networks,", "variables.inRange"),
		}, {
			Expression: fmt.Sprintf(
				"size(variables.addresses) == 0 || size(variables.addresses) <= %[1]d && %[2]s && variables.subnets.all(n, n.matches('%[3]s')) && "+
					"variables.addresses.all(a, a.matches('%[4]s$') && variables.subnets.exists(n, %[5]s.all(r, r[0] <= %[6]s && %[6]s < r[0] + r[1])))",
				submarinerv1.MaxAllocatedIPs,
				own("variables.subnets"),
				network,
				ipv4Pattern,
				bounds,
				numberOf("a"),
			),
			MessageExpression: refused(fmt.Sprintf("allocated addresses (at most %d)", submarinerv1.MaxAllocatedIPs),
				"variables.addresses"),
		}},
	})
}

// ipv4Pattern is the start of a regular expression for an IPv4 address.
const ipv4Pattern = `^[0-9]{1,3}([.][0-9]{1,3}){3}`

// numberOf returns a CEL expression for an IPv4 address as a number.
func numberOf(address string) string {
	return fmt.Sprintf(
		"[%s.split('.')].map(o, int(o[0]) * 16777216 + int(o[1]) * 65536 + int(o[2]) * 256 + int(o[3]))[0]", address)
}

// sizesOfNetworks returns a CEL list: the number of addresses of an IPv4 network, by its prefix
// length.
func sizesOfNetworks() string {
	var sizes []string
	for bits := range 33 {
		sizes = append(sizes, fmt.Sprint(uint64(1)<<(32-bits)))
	}
	return "[" + strings.Join(sizes, ", ") + "]"
}

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
