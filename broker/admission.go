package broker

import (
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
)

// RBAC cannot say "your own objects", so admission policies do (they are part of
// the API server, stable since Kubernetes 1.30; nothing of ours runs there).
//
// Whose an object is follows from its name, which cannot be changed:
//
//	Cluster   <id>
//	Endpoint  <id>-submariner-cable-<id>-<address>
//
// where the address is of hexadecimal digits and '-'. As no address holds
// "submariner-cable", a name reads as the name of one cluster only, also where
// one cluster ID starts with another ("a" and "a-b"). Label and spec must agree
// with the name, so that no reader can be told different things by different
// fields.
//
// Cable policies have the names that people give them. A label, which cannot be changed
// either, says whose a policy is; one without it is the broker's.
//
// The admission policies go by who asks, in every namespace and for every version of the
// API: an exception by label would be one that somebody can set.

// minKubernetes is the first minor version of Kubernetes 1 whose admission
// policies are stable.
const minKubernetes = 30

// memberPolicy keeps members to their own objects.
func memberPolicy(base string) []client.Object {
	label := submarinerv1.ClusterIDLabel
	return policy(base+"-member", &admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{
			rule(submarinerv1.GroupVersion.Group, writes(), "*"),
			rule("", writes(), "serviceaccounts"),
		}},
		MatchConditions: []admissionv1.MatchCondition{{
			Name:       "a-member",
			Expression: fmt.Sprintf("request.userInfo.username.startsWith('system:serviceaccount:%s:%s')", base, memberPrefix),
		}},
		Variables: append([]admissionv1.Variable{
			{Name: "id", Expression: fmt.Sprintf("request.userInfo.username.substring(%d)", len("system:serviceaccount::"+base+memberPrefix))},
			{Name: "resource", Expression: "request.resource.resource"},
			{Name: "name", Expression: "object != null ? object.metadata.name : oldObject != null ? oldObject.metadata.name : ''"},
			{Name: "spec", Expression: "object != null && has(object.spec) ? object.spec : {}"},
			{Name: "label", Expression: labelOf("object", label)},
			{Name: "oldLabel", Expression: labelOf("oldObject", label)},
		}, boundVariables()...),
		Validations: append([]admissionv1.Validation{
			{
				Expression:        "variables.resource in ['clusters', 'endpoints', 'cablepolicies'] || (variables.resource == 'serviceaccounts' && request.operation == 'DELETE')",
				MessageExpression: "'cluster ' + variables.id + ' may not write ' + variables.resource",
			},
			{
				Expression:        "variables.resource != 'clusters' || variables.name == variables.id",
				MessageExpression: "'cluster ' + variables.id + ' may not write the Cluster ' + variables.name + ', which is not its own'",
			},
			{
				Expression: "variables.resource != 'endpoints' || (variables.name.startsWith(variables.id + '-submariner-cable-' + variables.id + '-') && " +
					"variables.name.substring(size(variables.id) * 2 + size('-submariner-cable--')).matches('^[0-9a-f-]+$'))",
				MessageExpression: "'cluster ' + variables.id + ' may not write the Endpoint ' + variables.name + ': its own are named ' + " +
					"variables.id + '-submariner-cable-' + variables.id + '-<address>'",
			},
			{
				Expression: "variables.resource != 'cablepolicies' || oldObject == null || variables.oldLabel == variables.id",
				MessageExpression: "'cluster ' + variables.id + ' may not change the cable policy ' + variables.name + ', which ' + " +
					"(variables.oldLabel == '' ? 'the broker' : 'cluster ' + variables.oldLabel) + ' has made'",
			},
			{
				Expression:        "variables.resource != 'cablepolicies' || object == null || variables.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')",
				MessageExpression: "variables.name + ' cannot name a cable policy: use at most 63 lower case letters, digits and -'",
			},
			{
				Expression:        "variables.resource != 'serviceaccounts' || variables.name == '" + memberPrefix + "' + variables.id",
				MessageExpression: "'cluster ' + variables.id + ' may not delete the identity of another'",
			},
			{
				Expression:        "object == null || variables.label == variables.id",
				MessageExpression: fmt.Sprintf("'label %s is \"' + variables.label + '\", not ' + variables.id", label),
			},
			{
				Expression:        "object == null || variables.resource == 'cablepolicies' || ('cluster_id' in variables.spec && variables.spec.cluster_id == variables.id)",
				MessageExpression: "'spec.cluster_id is not ' + variables.id",
			},
			{
				Expression: "object == null || variables.resource != 'endpoints' || " +
					"('cable_name' in variables.spec && variables.name == variables.id + '-' + variables.spec.cable_name)",
				MessageExpression: "'the Endpoint ' + variables.name + ' is not named after its spec.cable_name'",
			},
		}, boundValidations()...),
	})
}

// joinerPolicy keeps the holder of a join file to what joining is: new members,
// each with the rights of one. So it cannot make itself a token of the joiner that
// outlives the file's, nor throw a member out. It cannot be kept from making a
// token of a member that exists: see joinerRole.
func joinerPolicy(base string) []client.Object {
	const sa = "^" + memberPrefix + "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
	return policy(base+"-joiner", &admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{
			rule("", writes(), "serviceaccounts", "secrets"),
			rule("rbac.authorization.k8s.io", writes(), "roles", "rolebindings"),
		}},
		MatchConditions: []admissionv1.MatchCondition{{
			Name:       "the-joiner",
			Expression: fmt.Sprintf("request.userInfo.username == 'system:serviceaccount:%s:%s'", base, JoinerName),
		}},
		Variables: []admissionv1.Variable{
			{Name: "resource", Expression: "request.resource.resource"},
			{Name: "name", Expression: "object != null ? object.metadata.name : ''"},
		},
		Validations: []admissionv1.Validation{
			{
				Expression: "request.operation == 'CREATE'",
				Message:    "who joins may make members, and change or delete nothing",
			},
			{
				Expression: "object == null || variables.resource != 'serviceaccounts' || variables.name.matches('" + sa + "')",
				Message:    "who joins may make service accounts of clusters only: " + memberPrefix + "<cluster ID>",
			},
			{
				Expression: "object == null || variables.resource != 'secrets' || (object.type == 'kubernetes.io/service-account-token' && " +
					"has(object.metadata.annotations) && 'kubernetes.io/service-account.name' in object.metadata.annotations && " +
					"object.metadata.annotations['kubernetes.io/service-account.name'].matches('" + sa + "') && " +
					"variables.name.startsWith(object.metadata.annotations['kubernetes.io/service-account.name'] + '-token-') && " +
					"variables.name.substring(size(object.metadata.annotations['kubernetes.io/service-account.name'] + '-token-')).matches('^[0-9a-f]{32}$'))",
				Message: "who joins may make tokens of clusters only: " + memberPrefix + "<cluster ID>-token-<32 random hexadecimal digits>",
			},
			{
				Expression: "object == null || variables.resource != 'roles' || (variables.name.matches('" + sa + "') && " +
					"has(object.rules) && object.rules.all(r, has(r.resources) && r.resources == ['serviceaccounts'] && " +
					"has(r.resourceNames) && r.resourceNames == [variables.name] && r.verbs.all(v, v in ['get', 'delete'])))",
				Message: "who joins may make Roles only that let a cluster delete its own service account",
			},
			{
				Expression: "object == null || variables.resource != 'rolebindings' || (" +
					"has(object.subjects) && size(object.subjects) == 1 && object.subjects[0].kind == 'ServiceAccount' && " +
					"object.subjects[0].namespace == '" + base + "' && object.subjects[0].name.matches('" + sa + "') && " +
					"object.roleRef.kind == 'Role' && (object.roleRef.name == object.subjects[0].name || object.roleRef.name == '" + MemberRoleName + "'))",
				Message: "who joins may bind clusters only, to the Role " + MemberRoleName + " or their own",
			},
		},
	})
}

// policy returns a policy that denies what it does not allow, and when it cannot
// be evaluated, and the binding that puts it in force.
func policy(name string, spec *admissionv1.ValidatingAdmissionPolicySpec) []client.Object {
	fail := admissionv1.Fail
	spec.FailurePolicy = &fail
	for i := range spec.Validations {
		forbidden := metav1.StatusReasonForbidden
		spec.Validations[i].Reason = &forbidden
	}
	return []client.Object{
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: *spec},
		&admissionv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName:        name,
				ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			},
		},
	}
}

// labelOf is the CEL expression for the value of a label of object or oldObject,
// empty without it.
func labelOf(object, label string) string {
	return fmt.Sprintf("%[1]s != null && has(%[1]s.metadata.labels) && '%[2]s' in %[1]s.metadata.labels ? %[1]s.metadata.labels['%[2]s'] : ''", object, label)
}

func writes() []admissionv1.OperationType {
	return []admissionv1.OperationType{admissionv1.Create, admissionv1.Update, admissionv1.Delete}
}

func rule(group string, ops []admissionv1.OperationType, resources ...string) admissionv1.NamedRuleWithOperations {
	scope := admissionv1.AllScopes
	return admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: ops,
		Rule: admissionv1.Rule{
			APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: resources, Scope: &scope,
		},
	}}
}

// cablePrefix starts the cable name of every Endpoint of a cluster.
func cablePrefix(clusterID string) string { return "submariner-cable-" + clusterID + "-" }

// owns says whether name is that of an object of a cluster, as the policy of
// members does. kind is Cluster or Endpoint.
func owns(clusterID, kind, name string) bool {
	if kind == "Cluster" {
		return name == clusterID
	}
	address, ok := strings.CutPrefix(name, clusterID+"-"+cablePrefix(clusterID))
	return ok && address != "" && strings.Trim(address, "0123456789abcdef-") == ""
}
