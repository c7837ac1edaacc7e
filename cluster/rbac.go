package cluster

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/api/submariner/v1alpha1"
	"subctl/broker/exchange"
)

// read lists the verbs that a cache needs.
var read = []string{"get", "list", "watch"}

// gatewayRules returns the rights of the gateway in Namespace: to write what it exchanges
// with the broker, to report, and to hold the lease. Server-side apply is a patch, and a
// create where there is nothing yet. The gateway has no right to pods, its own included: whoever
// may patch a pod may change its image, and the route agents of every node run here.
func gatewayRules() []rbacv1.PolicyRule {
	return slices.Concat(
		[]rbacv1.PolicyRule{
			rule([]string{""}, []string{"configmaps"}, read...), // settings of cable drivers
			// Whether these agents run.
			byName(rule([]string{"apps"}, []string{"daemonsets"}, "get"), RouteAgentName),
			byName(rule([]string{"apps"}, []string{"deployments"}, "get"), GlobalnetName),
			events,
		},
		exchanged(exchange.Kinds(), []string{"create", "delete", "get", "list", "patch", "update", "watch"},
			"gateways"),
		exchange.Kinds().ReportRules(),
		exchange.MemoryRules(),
		[]rbacv1.PolicyRule{
			rule([]string{"submariner.io"}, []string{"routeagents", "submariners"}, read...),
			byName(rule([]string{"submariner.io"}, []string{"submariners/status"}, "patch"), v1alpha1.SubmarinerName),
			// One Lease has the name of the node, which a Role cannot express: see leaseName.
			rule([]string{"coordination.k8s.io"}, []string{"leases"}, "create", "get", "list", "update"),
		},
	)
}

// routeAgentRules returns the rights of the route agent in Namespace: to read what the
// gateways found, and to report. No plan of a node depends on exported Services.
func routeAgentRules() []rbacv1.PolicyRule {
	planned := slices.DeleteFunc(exchange.Kinds(), func(k exchange.Kind) bool {
		_, ok := k.Object.(*v1alpha1.ExportedServices)
		return ok
	})
	return append(exchanged(planned, read, "submariners"),
		rule([]string{"submariner.io"}, []string{"gateways"}, "list"), // once: what they are connected to
		rule([]string{"submariner.io"}, []string{"routeagents"}, "create", "get", "list", "patch", "update", "watch"),
		events,
	)
}

// exchanged returns rights to kinds that clusters exchange, and to more of our own.
func exchanged(kinds exchange.Table, verbs []string, more ...string) []rbacv1.PolicyRule {
	var resources []schema.GroupResource
	for _, r := range more {
		resources = append(resources, schema.GroupResource{Group: "submariner.io", Resource: r})
	}
	rules := kinds.Rules(verbs, resources...)
	for _, r := range rules {
		slices.Sort(r.Resources)
	}
	return rules
}

// events is the right to report problems as events.
var events = rule([]string{"events.k8s.io"}, []string{"events"}, "create", "patch")

// nodeRules are the cluster-wide rights of both agents: to read nodes, which have the
// node addresses, the pod networks and the gateway label; and to read the addresses of the
// API servers, which no cable may carry.
var nodeRules = []rbacv1.PolicyRule{
	rule([]string{""}, []string{"nodes"}, read...),
	byName(rule([]string{"discovery.k8s.io"}, []string{"endpointslices"}, "get"), "kubernetes"),
}

// networkRules are cluster-wide rights of gateways in addition to nodeRules: to notice networks
// that the cluster gets after it has joined, as Service networks and as pools of Calico, in either
// of its groups.
var networkRules = []rbacv1.PolicyRule{
	rule([]string{"networking.k8s.io"}, []string{"servicecidrs"}, "list"),
	rule([]string{"crd.projectcalico.org", "projectcalico.org"}, []string{"ippools"}, "list"),
}

// translationRules are the cluster-wide rights of gateways of a cluster with global networks, in
// addition to nodeRules: to read what they translate by. EndpointSlices and Pods contain addresses,
// and no secrets.
var translationRules = []rbacv1.PolicyRule{
	rule([]string{"submariner.io"}, []string{"clusterglobalegressips", "globalegressips", "globalingressips"}, read...),
	rule([]string{""}, []string{"pods", "services"}, read...),
	rule([]string{"discovery.k8s.io"}, []string{"endpointslices"}, read...),
}

func rule(groups, resources []string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: groups, Resources: resources, Verbs: verbs}
}

// byName limits a rule to the objects with the given names.
func byName(r rbacv1.PolicyRule, names ...string) rbacv1.PolicyRule {
	r.ResourceNames = names
	return r
}

// account returns the ServiceAccount of a component and its rights in Namespace and in the cluster.
// Only pods that ask for the token mount it, not every pod of the account.
func account(name string, rules, global []rbacv1.PolicyRule) []client.Object {
	noToken := false
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: Namespace}}
	local := metav1.ObjectMeta{Name: name, Namespace: Namespace, Labels: ours(name)}
	clusterWide := metav1.ObjectMeta{Name: name, Labels: ours(name)}
	return []client.Object{
		&corev1.ServiceAccount{ObjectMeta: local, AutomountServiceAccountToken: &noToken},
		&rbacv1.Role{ObjectMeta: local, Rules: rules},
		&rbacv1.RoleBinding{
			ObjectMeta: local, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		},
		&rbacv1.ClusterRole{ObjectMeta: clusterWide, Rules: global},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: clusterWide, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		},
	}
}
