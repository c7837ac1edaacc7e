package networks

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"subctl/api/submariner/v1alpha1"
)

// traces lists the traces of network plugins: the names of its DaemonSet, and an annotation
// that it writes on nodes. A plugin that may run on top of another comes first.
var traces = []struct {
	plugin     string
	daemonSets []string
	annotation string
}{
	{v1alpha1.OVNKubernetes, []string{"ovnkube-node"}, "k8s.ovn.org/node-subnets"},
	{v1alpha1.OpenShiftSDN, []string{"sdn"}, ""},
	{v1alpha1.Canal, []string{"canal"}, ""},
	{v1alpha1.Calico, []string{"calico-node"}, "projectcalico.org/IPv4Address"},
	{v1alpha1.Cilium, []string{"cilium"}, "network.cilium.io/ipv4-cilium-host"},
	{v1alpha1.Antrea, []string{"antrea-agent"}, "node.antrea.io/mac-address"},
	{v1alpha1.WeaveNet, []string{"weave-net"}, ""},
	{v1alpha1.Kindnet, []string{"kindnet", "kindnetd"}, ""},
	// k3s has no DaemonSet: flannel is inside its agent.
	{
		v1alpha1.Flannel,
		[]string{"kube-flannel-ds", "kube-flannel-ds-amd64", "kube-flannel", "flannel"},
		"flannel.alpha.coreos.com/backend-type",
	},
}

// Plugin is a network plugin.
type Plugin struct {
	Name string // a value of Submariner.status.networkPlugin
	// Warnings name what was found of the signs that traffic between clusters fails, and what to
	// change.
	Warnings []string
}

// DetectPlugin identifies the network plugin of a cluster. Its DaemonSet, by name, takes
// precedence over annotations of nodes, which may be left over from another plugin. It is a
// pure function.
func DetectPlugin(e Evidence) Plugin {
	name := fromTraces(e)
	return Plugin{Name: name, Warnings: e.warnings(name)}
}

func fromTraces(e Evidence) string {
	for _, t := range traces {
		for _, ds := range e.DaemonSets {
			// The distribution RKE2 prefixes the names of its charts.
			if slices.Contains(t.daemonSets, strings.TrimPrefix(ds.Name, "rke2-")) &&
				(t.plugin != v1alpha1.OpenShiftSDN || ds.Namespace == "openshift-sdn") {
				return t.plugin
			}
		}
	}
	for _, t := range traces {
		if slices.ContainsFunc(e.Nodes, func(n corev1.Node) bool { return n.Annotations[t.annotation] != "" }) {
			return t.plugin
		}
	}
	return v1alpha1.GenericNetwork
}

// isForPods reports whether Calico gives pods addresses of a pool. Upstream's Submariner creates
// pools for the networks of other clusters, with a label. Pools can be for load balancers only; the
// addresses of nodes' tunnels are those of host-network pods.
func isForPods(pool unstructured.Unstructured) bool {
	disabled, _, _ := unstructured.NestedBool(pool.Object, "spec", "disabled")
	return !disabled && mayHavePods(pool)
}

// isLeftByPods reports whether Calico gives pods no more addresses of a pool. Pods that have one
// keep it: this is how people move pods to another pool.
func isLeftByPods(pool unstructured.Unstructured) bool {
	disabled, _, _ := unstructured.NestedBool(pool.Object, "spec", "disabled")
	return disabled && mayHavePods(pool)
}

func mayHavePods(pool unstructured.Unstructured) bool {
	uses, _, _ := unstructured.NestedStringSlice(pool.Object, "spec", "allowedUses")
	return pool.GetLabels()["submariner.io/ippool"] == "" &&
		(len(uses) == 0 || slices.Contains(uses, "Workload") || slices.Contains(uses, "Tunnel"))
}
