package cluster

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/exchange"
	"subctl/internal/kube"
)

// RBAC cannot tell the pods of one service account apart, so admission policies do: the token
// of a pod names the node of the pod, and the API server vouches for it. The kubelet of a node
// gets tokens only for the pods of that node. So whoever has taken over a node, or an agent on
// it, writes about that node and about no other.
//
// The API server adds the name since Kubernetes 1.30, unless the feature gate
// ServiceAccountTokenPodNodeInfo is off, which 1.32 no longer allows. Admission policies are
// stable since 1.30, too. A token without the name may write nothing.

// nodeNameKey is the key of the node's name among the extra fields of a user.
const nodeNameKey = "authentication.kubernetes.io/node-name"

// agentPolicies returns the admission policies that restrict agents to their own nodes.
// clusterID is the ID of this cluster.
func agentPolicies(clusterID string) []client.Object {
	ours := submarinerv1.GroupVersion.Group
	return slices.Concat(
		agentPolicy(RouteAgentName,
			[]admissionv1.NamedRuleWithOperations{kube.AdmissionRule(ours, kube.AdmissionWrites(), "routeagents")},
			ownReport("routeagents", "RouteAgent", kube.AdmissionWrites()...), smallReport(),
			ownEvents("variables.regarding == 'RouteAgent/' + variables.node")),
		agentPolicy(
			GatewayName,
			[]admissionv1.NamedRuleWithOperations{
				kube.AdmissionRule(ours, kube.AdmissionWrites(), "gateways", "endpoints"),
				kube.AdmissionRule("coordination.k8s.io", kube.AdmissionWrites(), "leases"),
				kube.AdmissionRule(ours, []admissionv1.OperationType{admissionv1.Update}, "submariners/status"),
			},
			// The speaker deletes the reports and the Endpoints of gateways that are gone. If one
			// of them still runs, it writes its object again at once.
			ownReport("gateways", "Gateway", admissionv1.Create, admissionv1.Update),
			ownEndpoint(clusterID),
			leaseName(),
			leaseHolder(),
			detectedPlugin(),
			ownEvents(
				"variables.regarding == 'Gateway/' + variables.node || variables.regarding.startsWith('CablePolicies/')"),
		),
	)
}

// agentPolicy returns the policy of the agents that use the service account name. It applies
// to their writes that rules select, and to their Events.
func agentPolicy(
	name string,
	rules []admissionv1.NamedRuleWithOperations,
	validations ...admissionv1.Validation,
) []client.Object {
	objs := kube.AdmissionPolicy(name, &admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{
			ResourceRules: append(rules, kube.AdmissionRule("events.k8s.io", kube.AdmissionWrites(), "events")),
		},
		MatchConditions: []admissionv1.MatchCondition{{
			Name:       "an-agent",
			Expression: fmt.Sprintf("request.userInfo.username == '%s'", kube.ServiceAccountUser(Namespace, name)),
		}},
		Variables: []admissionv1.Variable{
			{
				Name: "node",
				Expression: fmt.Sprintf(
					"has(request.userInfo.extra) && '%[1]s' in request.userInfo.extra ? request.userInfo.extra['%[1]s'][0] : ''",
					nodeNameKey),
			},
			{Name: "resource", Expression: "request.resource.resource"},
			{
				Name:       "name",
				Expression: "object != null ? object.metadata.name : oldObject != null ? oldObject.metadata.name : ''",
			},
			{
				Name: "regarding",
				Expression: "object != null && has(object.regarding) && has(object.regarding.kind) && has(object.regarding.name) ? " +
					"object.regarding.kind + '/' + object.regarding.name : ''",
			},
		},
		Validations: append([]admissionv1.Validation{{
			Expression: "variables.node != ''",
			Message: "the token names no node: it must be the token of a pod, and the feature gate ServiceAccountTokenPodNodeInfo of the API server " +
				"must be on, as it is by default since Kubernetes 1.30",
		}}, validations...),
	})
	for _, o := range objs {
		o.SetLabels(ours(name))
	}
	return objs
}

// sameEntries returns a CEL expression, which is true if an update changes no other entry of a map
// of the object than the one with the key.
func sameEntries(field, key string) string {
	object := "object." + field + ".orValue({})"
	old := "oldObject." + field + ".orValue({})"
	all := func(in, as string) string { // an entry that only one of the maps has is found from its side
		return fmt.Sprintf("%[1]s.all(k, k == '%[3]s' || %[1]s[?k] == %[2]s[?k])", in, as, key)
	}
	return all(object, old) + " && " + all(old, object)
}

// LabelsName is the name of the policy that protects reserved labels.
const LabelsName = "submariner-labels"

// labelPolicy returns the policy that lets only the agents change the reserved labels of the
// objects that kinds identifies by the cluster ID in their spec, and the clustersets of a Cluster.
// The labels tell the objects of this cluster from copies. The clustersets are what the agents have
// found: the grant decides, and nobody who edits them is to believe that it has an effect. The
// broker has policies of its own.
func labelPolicy(kinds exchange.Table) []client.Object {
	var reserved []string
	for _, prefix := range submarinerv1.ReservedLabels {
		reserved = append(reserved, fmt.Sprintf("k.startsWith('%s')", prefix))
	}
	isReserved := "(" + strings.Join(reserved, " || ") + ")"
	labelsOf := func(object string) string {
		return fmt.Sprintf("has(%[1]s.metadata.labels) ? %[1]s.metadata.labels : {}", object)
	}
	objs := kube.AdmissionPolicy(LabelsName, &admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{corev1.LabelMetadataName: Namespace},
			},
			ResourceRules: kinds.OwnedRules(admissionv1.Update),
		},
		MatchConditions: []admissionv1.MatchCondition{{
			Name: "no-agent",
			Expression: fmt.Sprintf("request.userInfo.username != '%s'",
				kube.ServiceAccountUser(Namespace, GatewayName)),
		}},
		Variables: []admissionv1.Variable{
			{Name: "was", Expression: labelsOf("oldObject")},
			{Name: "will", Expression: labelsOf("object")},
			{
				Name: "changed",
				Expression: fmt.Sprintf(
					"variables.will.filter(k, %[1]s && !(k in variables.was && variables.was[k] == variables.will[k])) + "+
						"variables.was.filter(k, %[1]s && !(k in variables.will))",
					isReserved,
				),
			},
		},
		Validations: []admissionv1.Validation{{
			Expression: "size(variables.changed) == 0",
			MessageExpression: fmt.Sprintf(
				"'reserved labels: ' + variables.changed.join(', ') + ': only the agents set labels that begin with %s: choose another name'",
				strings.Join(submarinerv1.ReservedLabels, " or ")),
		}, {
			Expression: "request.resource.resource != 'clusters' || " +
				"object.spec.?cluster_sets == oldObject.spec.?cluster_sets",
			Message: "spec.cluster_sets tells in which clustersets the cluster is, and does not decide it: the " +
				"administrator of the broker changes them with subctl clusterset add or subctl clusterset remove",
		}},
	})
	for _, o := range objs {
		o.SetLabels(ours(""))
	}
	return objs
}

// ownReport restricts some operations of an agent to the report that has the name of its node.
func ownReport(resource, kind string, operations ...admissionv1.OperationType) admissionv1.Validation {
	var quoted []string
	for _, o := range operations {
		quoted = append(quoted, fmt.Sprintf("'%s'", o))
	}
	return admissionv1.Validation{
		Expression: fmt.Sprintf(
			"variables.resource != '%s' || variables.name == variables.node || !(request.operation in [%s])", resource,
			strings.Join(quoted, ", ")),
		MessageExpression: fmt.Sprintf(
			"'the agent of node ' + variables.node + ' may not write the %s of ' + variables.name", kind),
	}
}

// maxRouteAgent is the most bytes of a RouteAgent, which the agents of all nodes read. Route agents
// write less, however large the objects of other clusters are: at most 112 KiB about their
// gateways, and 50 KiB of conditions and of networks that the node needs.
const maxRouteAgent = 192 << 10

// smallReport bounds the RouteAgents that route agents write.
func smallReport() admissionv1.Validation {
	return admissionv1.Validation{
		Expression: fmt.Sprintf("variables.resource != 'routeagents' || object == null || %s <= %d",
			kube.AdmissionBytes("object"), maxRouteAgent),
		Message: fmt.Sprintf("a RouteAgent may have %d bytes at most", maxRouteAgent),
	}
}

// ownEvents restricts an agent to Events for which the condition about holds. The object of an
// Event never changes.
func ownEvents(about string) admissionv1.Validation {
	return admissionv1.Validation{
		Expression:        "variables.resource != 'events' || object == null || " + about,
		MessageExpression: "'the agent of node ' + variables.node + ' may not report about ' + variables.regarding",
	}
}

// ownEndpoint restricts a gateway to the Endpoint of its node, among the Endpoints of this cluster.
// It may make the Endpoint of another node its own, as a node does that has the address of a node
// that is gone; and it may announce that another gateway is a standby, as the speaker does when it
// has replaced it. Endpoints of other clusters are copies, which the speaker writes.
func ownEndpoint(clusterID string) admissionv1.Validation {
	return admissionv1.Validation{
		Expression: fmt.Sprintf(
			"variables.resource != 'endpoints' || object == null || object.spec.cluster_id != '%s' || object.spec.hostname == variables.node || "+
				"oldObject != null && %s",
			clusterID,
			becomesStandby(),
		),
		MessageExpression: "'the gateway of node ' + variables.node + ' may not write an Endpoint of this cluster for node ' + object.spec.hostname",
	}
}

// becomesStandby returns a CEL expression, which is true if an update makes an Endpoint of a
// gateway that is in service, or draining, announce a standby and changes nothing else.
func becomesStandby() string {
	const drain = submarinerv1.BackendDrain
	const is, was = "object.spec.?backend_config.orValue({})", "oldObject.spec.?backend_config.orValue({})"
	all := []string{
		fmt.Sprintf("%s[?'%s'] == optional.of('%s')", is, drain, submarinerv1.Standby),
		fmt.Sprintf("%s[?'%s'].orValue('%[3]s') == '%[3]s'", was, drain, submarinerv1.Draining),
		fmt.Sprintf("%[1]s.all(k, k == '%[3]s' || %[1]s[?k] == %[2]s[?k])", is, was, drain),
		fmt.Sprintf("%[2]s.all(k, k in %[1]s)", is, was),
	}
	same := []string{"metadata.?labels", "metadata.?annotations", "metadata.?finalizers", "metadata.?ownerReferences"}
	for f := range reflect.TypeFor[submarinerv1.EndpointSpec]().Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "backend_config" {
			same = append(same, "spec.?"+name)
		}
	}
	for _, field := range same {
		all = append(all, fmt.Sprintf("object.%[1]s == oldObject.%[1]s", field))
	}
	return "(" + strings.Join(all, " && ") + ")"
}

// detectedPlugin keeps a gateway from changing the network plugin in the status of the Submariner,
// which join has detected: plans depend on it.
func detectedPlugin() admissionv1.Validation {
	const format = "(has(%[1]s.status) && has(%[1]s.status.networkPlugin) ? %[1]s.status.networkPlugin : '')"
	return admissionv1.Validation{
		Expression: fmt.Sprintf("variables.resource != 'submariners' || %s == %s", fmt.Sprintf(format, "object"),
			fmt.Sprintf(format, "oldObject")),
		MessageExpression: "'the gateway of node ' + variables.node + ' may not change the network plugin of the Submariner'",
	}
}

// leaseName restricts a gateway to the Lease of the election and to the Lease of its node. An
// expression cannot compute the hash in the name of the Lease of a node with a very long name, so
// it compares the rest.
func leaseName() admissionv1.Validation {
	own := fmt.Sprintf(
		"(size(variables.node) <= %[1]d ? variables.name == '%[2]s' + variables.node : variables.name.startsWith('%[2]s' + variables.node.substring(0, %[3]d)))",
		submarinerv1.NodeLeaseMost, submarinerv1.NodeLeasePrefix, submarinerv1.NodeLeaseCut)
	return admissionv1.Validation{
		Expression: fmt.Sprintf("variables.resource != 'leases' || variables.name == '%s' || %s",
			submarinerv1.GatewayLease, own),
		MessageExpression: "'the gateway of node ' + variables.node + ' may not write the Lease ' + variables.name",
	}
}

// leaseHolder restricts a gateway to taking a Lease for itself and to releasing it. An admission
// policy cannot tell whether the previous holder of the Lease of the election has failed. Any other
// Lease stays with its holder.
func leaseHolder() admissionv1.Validation {
	const format = "(has(%[1]s.spec) && has(%[1]s.spec.holderIdentity) ? %[1]s.spec.holderIdentity : '')"
	is := fmt.Sprintf(format, "object")
	was := fmt.Sprintf(format, "oldObject")
	me := fmt.Sprintf("variables.node + '%s'", submarinerv1.LeaseHolder(""))
	return admissionv1.Validation{
		Expression: fmt.Sprintf("variables.resource != 'leases' || object == null || "+
			"(%[1]s == %[3]s && (oldObject == null || variables.name == '%[4]s' || %[2]s in ['', %[3]s])) || "+
			"(%[1]s == '' && oldObject != null && %[2]s in ['', %[3]s])", is, was, me, submarinerv1.GatewayLease),
		MessageExpression: "'the gateway of node ' + variables.node + ' may take the Lease ' + variables.name + ' for itself, and release its own'",
	}
}
