package broker

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/exchange"
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
