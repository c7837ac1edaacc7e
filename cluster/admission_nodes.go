package cluster

import (
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/kube"
)

// NodesName is the name of the policy that protects the choice of gateway nodes.
const NodesName = "submariner-nodes"

// nodePolicy returns the policy that keeps nodes from becoming gateway nodes by themselves. The
// gateway's DaemonSet selects nodes by a label, and a kubelet gets the Secrets of the pods on its
// node. The API server lets a kubelet change all labels and annotations of its Node that are not
// Kubernetes' own; and many network plugins may write the statuses of all nodes, with which labels
// and annotations change, too.
//
// A kubelet may still register with any labels (--node-labels), which are the configuration of the
// administrator. It cannot delete its Node to register again. Distributions that change the labels
// of a registered Node with the credentials of its kubelet are refused if that changes these: the
// message says what to do, and join warns.
//
// The keys are compared one by one: an expression that looks at each label would fail if a node has
// very many, and nobody could write the node's status any more.
func nodePolicy() []client.Object {
	verbs := map[string]string{"label": "label", "annotation": "annotate"} // of kubectl
	var validations []admissionv1.Validation
	for _, key := range submarinerv1.GatewayNodeKeys() {
		for _, field := range []string{"label", "annotation"} {
			validations = append(validations, admissionv1.Validation{
				Expression: fmt.Sprintf("object.metadata.?%[1]ss[?'%[2]s'] == oldObject.metadata.?%[1]ss[?'%[2]s']",
					field, key),
				Message: fmt.Sprintf(
					"a kubelet, or a change of a Node's status, may not change the %[1]s %[2]s: "+
						"set it with kubectl %[3]s node, and not in the configuration of the node",
					field,
					key,
					verbs[field],
				),
			})
		}
	}
	objs := kube.AdmissionPolicy(NodesName, &admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{
			kube.AdmissionRule("", []admissionv1.OperationType{admissionv1.Update}, "nodes", "nodes/status"),
		}},
		MatchConditions: []admissionv1.MatchCondition{{
			Name:       "a-kubelet-or-a-status",
			Expression: "request.?subResource.orValue('') == 'status' || 'system:nodes' in request.userInfo.?groups.orValue([])",
		}},
		Validations: validations,
	})
	for _, o := range objs {
		o.SetLabels(ours(""))
	}
	return objs
}
