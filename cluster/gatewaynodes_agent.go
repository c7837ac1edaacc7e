package cluster

import (
	"fmt"
	"reflect"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/dataplane"
	"subctl/internal/kube"
)

// GatewayNodesMemory is the memory limit of the agent that replaces gateway nodes, in bytes. It
// holds less than 1 KiB of a node.
const GatewayNodesMemory = 128 << 20

// gatewayNodesReplicas is the number of its pods: one acts, and the other one takes over if it is
// on a node that fails.
const gatewayNodesReplicas = 2

// KeepsGateways reports whether the cluster has the agent that replaces gateway nodes.
func KeepsGateways(sub *v1alpha1.Submariner) bool {
	return sub.Spec.Gateways != nil && *sub.Spec.Gateways > 0
}

// gatewayNodes returns what a cluster holds in which gateway nodes are replaced.
func gatewayNodes(sub *v1alpha1.Submariner, p Platform) []client.Object {
	out := account(GatewayNodesName, append(gatewayNodesRules(), p.Use(SCCNonRoot)...), gatewayNodesClusterRules())
	out = append(out, gatewayLabelPolicy()...)
	return append(out, gatewayNodesAgent(sub))
}

// gatewayNodesRules returns the rights of the agent in Namespace: its lease, the condition of the
// Submariner and Events.
func gatewayNodesRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		rule([]string{"submariner.io"}, []string{"gateways", "submariners"}, read...),
		byName(rule([]string{"submariner.io"}, []string{"submariners/status"}, "update"), v1alpha1.SubmarinerName),
		byName(rule([]string{"coordination.k8s.io"}, []string{"leases"}, "get", "update"),
			submarinerv1.GatewayNodesLease),
		rule([]string{"coordination.k8s.io"}, []string{"leases"}, "create"),
		events,
	}
}

// gatewayNodesClusterRules returns its rights in the cluster: to label nodes. What it may change of
// a node is bounded by gatewayLabelPolicy.
func gatewayNodesClusterRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{rule([]string{""}, []string{"nodes"}, append([]string{"patch"}, read...)...)}
}

// gatewayLabelPolicy returns the policy of the agent that replaces gateway nodes: of a Node without
// the label of gateways it may add the label together with the annotation that tells who did it,
// and it may remove both where it, or join, has set them. So it neither marks what a person has
// labelled, and could then remove it, nor takes a node that a person has excluded. Of the
// Submariner it may change its condition, and of Leases its own.
func gatewayLabelPolicy() []client.Object {
	const label, by, ours = submarinerv1.GatewayNodeLabel, submarinerv1.LabelledByAnnotation, submarinerv1.ManagedBy
	entry := func(object, field, key string) string {
		return fmt.Sprintf("%s.metadata.?%s[?'%s']", object, field, key)
	}
	same := []string{sameEntries("metadata.?labels", label), sameEntries("metadata.?annotations", by)}
	for _, field := range []string{"metadata.?finalizers", "metadata.?ownerReferences", "?spec", "?status"} {
		same = append(same, fmt.Sprintf("object.%[1]s == oldObject.%[1]s", field))
	}
	var rest []string
	for f := range reflect.TypeFor[v1alpha1.SubmarinerStatus]().Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "conditions" {
			// An empty value is written, or omitted.
			none := map[reflect.Kind]string{reflect.String: "''", reflect.Bool: "false"}[f.Type.Kind()]
			value := fmt.Sprintf("?status.?%s.orValue(%s)", name, none)
			rest = append(rest, "object."+value+" == oldObject."+value)
		}
	}
	conditions := func(object string) string {
		return fmt.Sprintf("%s.?status.?conditions.orValue([]).filter(c, c.type != '%s')", object,
			v1alpha1.ConditionGateways)
	}
	rest = append(rest, conditions("object")+" == "+conditions("oldObject"))
	isNode := func(expression string) string { return "variables.resource != 'nodes' || (" + expression + ")" }
	objs := kube.AdmissionPolicy(GatewayNodesName, &admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{
			kube.AdmissionRule("", kube.AdmissionWrites(), "nodes", "nodes/status"),
			kube.AdmissionRule(submarinerv1.GroupVersion.Group, kube.AdmissionWrites(), "submariners",
				"submariners/status"),
			kube.AdmissionRule("coordination.k8s.io", kube.AdmissionWrites(), "leases"),
		}},
		MatchConditions: []admissionv1.MatchCondition{{
			Name: "the-agent",
			Expression: fmt.Sprintf("request.userInfo.username == '%s'",
				kube.ServiceAccountUser(Namespace, GatewayNodesName)),
		}},
		Variables: []admissionv1.Variable{{Name: "resource", Expression: "request.resource.resource"}},
		Validations: []admissionv1.Validation{
			{
				Expression: "request.operation == 'UPDATE' || variables.resource == 'leases'",
				Message:    "the agent that replaces gateway nodes makes and deletes nothing but its Lease",
			},
			// RBAC cannot restrict the names of what is created, and a gateway cannot take its
			// Lease from another holder.
			{
				Expression: "variables.resource != 'leases' || object != null && " +
					fmt.Sprintf("object.metadata.name == '%s'", submarinerv1.GatewayNodesLease),
				Message: "the agent that replaces gateway nodes may write no Lease but " +
					submarinerv1.GatewayNodesLease,
			},
			{
				Expression: isNode(strings.Join(same, " && ")),
				Message: fmt.Sprintf("the agent that replaces gateway nodes may change nothing of a Node but the "+
					"label %s and the annotation %s", label, by),
			},
			{
				Expression: isNode(fmt.Sprintf("(%[1]s == %[2]s && %[3]s == %[4]s) || "+
					"(!%[2]s.hasValue() && %[1]s == optional.of('true') && %[3]s == optional.of('%[5]s')) || "+
					"(!%[1]s.hasValue() && !%[3]s.hasValue() && %[4]s == optional.of('%[5]s'))",
					entry("object", "labels", label), entry("oldObject", "labels", label),
					entry("object", "annotations", by), entry("oldObject", "annotations", by), ours)),
				Message: fmt.Sprintf("the agent that replaces gateway nodes may set the label %[1]s=true with the "+
					"annotation %[2]s=%[3]s where a node has no such label, and remove both where the annotation is "+
					"set", label, by, ours),
			},
			{
				Expression: "variables.resource != 'submariners' || (" + strings.Join(rest, " && ") + ")",
				Message: "the agent that replaces gateway nodes may change nothing of the status of the " +
					"Submariner but the condition " + v1alpha1.ConditionGateways,
			},
		},
	})
	for _, o := range objs {
		o.SetLabels(map[string]string{ManagedByLabel: ManagedBy, "app": GatewayNodesName})
	}
	return objs
}

// gatewayNodesAgent returns the Deployment of the agent. Its pods need neither the network of their
// node nor any capability, and avoid gateway nodes and each other: what replaces a node should not
// be lost with it.
func gatewayNodesAgent(sub *v1alpha1.Submariner) *appsv1.Deployment {
	d := clusterAgent(sub, GatewayNodesName, gatewayNodesComponent, "gateway-nodes", dataplane.GatewayNodesMetricsPort,
		dataplane.GatewayNodesProbePort, GatewayNodesMemory)
	d.Spec.Replicas = new(int32(gatewayNodesReplicas))
	affinity := d.Spec.Template.Spec.Affinity.NodeAffinity
	affinity.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.PreferredSchedulingTerm{{
		Weight: 10,
		Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: submarinerv1.GatewayNodeLabel, Operator: corev1.NodeSelectorOpDoesNotExist},
		}},
	}}
	return d
}
