package networks

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
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
	{v1alpha1.Flannel, []string{"kube-flannel-ds", "kube-flannel-ds-amd64", "kube-flannel", "flannel"}, "flannel.alpha.coreos.com/backend-type"},
}

// Evidence is the input of DetectPlugin. What does not exist, or is unknown, is empty.
type Evidence struct {
	DaemonSets []appsv1.DaemonSet
	Nodes      []corev1.Node
	// Cilium is the data of Cilium's ConfigMap, cilium-config.
	Cilium map[string]string
	// CalicoPools are Calico's IPPools, and CalicoSettings its FelixConfigurations.
	CalicoPools, CalicoSettings []unstructured.Unstructured
}

// Plugin is a network plugin.
type Plugin struct {
	Name string // a value of Submariner.status.networkPlugin
	// Warnings name settings of the plugin under which traffic between clusters is known to
	// fail, and what to change.
	Warnings []string
}

// DetectPlugin identifies the network plugin of a cluster. Its DaemonSet, by name, takes
// precedence over annotations of nodes, which may be left over from another plugin. It is a
// pure function.
func DetectPlugin(e Evidence) Plugin {
	p := Plugin{Name: fromTraces(e)}
	for _, w := range e.warnings(p.Name) {
		if w != "" {
			p.Warnings = append(p.Warnings, w+"; see docs/cni.md")
		}
	}
	return p
}

func fromTraces(e Evidence) string {
	for _, t := range traces {
		for _, ds := range e.DaemonSets {
			// The distribution RKE2 prefixes the names of its charts.
			if slices.Contains(t.daemonSets, strings.TrimPrefix(ds.Name, "rke2-")) && (t.plugin != v1alpha1.OpenShiftSDN || ds.Namespace == "openshift-sdn") {
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

// warnings returns the warnings about a plugin; empty strings are ignored.
func (e Evidence) warnings(plugin string) []string {
	switch plugin {
	case v1alpha1.Cilium:
		return []string{e.ciliumMasquerading(), e.ciliumRouting(), e.ciliumServices()}
	case v1alpha1.Canal:
		return []string{e.calicoBPF()}
	case v1alpha1.Calico:
		return []string{e.calicoBPF(), e.calicoEncapsulation()}
	case v1alpha1.OVNKubernetes:
		return []string{e.ovnGatewayMode()}
	}
	return nil
}

// replacesKubeProxy reports whether Cilium takes the place of kube-proxy.
func (e Evidence) replacesKubeProxy() bool {
	value := e.Cilium["kube-proxy-replacement"]
	return value == "true" || value == "strict" // the value before Cilium 1.14
}

// ciliumMasquerading warns if Cilium, beside kube-proxy, masquerades in BPF on all devices that it
// detects. Where it replaces kube-proxy, it translates the addresses of Services on the same devices.
func (e Evidence) ciliumMasquerading() string {
	if e.replacesKubeProxy() || e.Cilium["enable-bpf-masquerade"] != "true" || e.Cilium["enable-ipv4-masquerade"] == "false" || strings.TrimSpace(e.Cilium["devices"]) != "" {
		return ""
	}
	return "Cilium masquerades packets of pods in BPF on every device that it detects, which can be the devices of subctl: other clusters then see addresses of nodes instead of pods. " +
		`Set devices to the nodes' own devices, such as devices: "eth0", in ConfigMap cilium-config (Helm: devices={eth0}), and restart Cilium`
}

// ciliumRouting warns if Cilium forwards packets of pods past the kernel's firewall, which
// it does by default where it replaces kube-proxy and masquerades in BPF.
func (e Evidence) ciliumRouting() string {
	if !e.replacesKubeProxy() || e.Cilium["enable-bpf-masquerade"] != "true" || e.Cilium["enable-host-legacy-routing"] == "true" {
		return ""
	}
	return "Cilium routes packets of pods in BPF, past the rules of the node's kernel that keep source addresses and limit packet sizes: " +
		`set enable-host-legacy-routing: "true" in ConfigMap cilium-config (Helm: bpf.hostLegacyRouting=true), and restart Cilium`
}

// ciliumServices warns if Cilium takes the place of kube-proxy and translates addresses of
// Services only for packets of this cluster's own pods.
func (e Evidence) ciliumServices() string {
	if !e.replacesKubeProxy() || e.Cilium["bpf-lb-external-clusterip"] == "true" {
		return ""
	}
	return "Cilium replaces kube-proxy, and serves the addresses of Services to this cluster's own pods only: other clusters reach pods, but no Service. " +
		`Set bpf-lb-external-clusterip: "true" in ConfigMap cilium-config (Helm: bpf.lbExternalClusterIP=true), and restart Cilium`
}

// calicoBPF warns about Calico's eBPF dataplane.
func (e Evidence) calicoBPF() string {
	enabled := e.calicoEnv("FELIX_BPFENABLED", "true")
	for _, felix := range e.CalicoSettings {
		bpf, _, _ := unstructured.NestedBool(felix.Object, "spec", "bpfEnabled")
		enabled = enabled || bpf && felix.GetName() == "default"
	}
	if !enabled {
		return ""
	}
	return "Calico's eBPF dataplane replaces kube-proxy and routes packets past the rules of the node's kernel: other clusters reach no Service, and source addresses change. " +
		"Set bpfEnabled: false in FelixConfiguration default, and run kube-proxy"
}

// calicoEnv reports whether Calico's DaemonSet sets an environment variable, which takes
// precedence over Calico's configuration, to a value.
func (e Evidence) calicoEnv(name, value string) bool {
	for _, ds := range e.DaemonSets {
		for _, c := range ds.Spec.Template.Spec.Containers {
			if c.Name == "calico-node" && slices.Contains(c.Env, corev1.EnvVar{Name: name, Value: value}) {
				return true
			}
		}
	}
	return false
}

// calicoEncapsulation warns if Calico gives nodes no address in the pod network, which it
// does for the sake of its tunnels only.
func (e Evidence) calicoEncapsulation() string {
	var plain []string
	for _, pool := range e.CalicoPools {
		if !isForPods(pool) {
			continue
		}
		for _, field := range []string{"ipipMode", "vxlanMode"} {
			if mode, _, _ := unstructured.NestedString(pool.Object, "spec", field); mode != "" && mode != "Never" {
				return ""
			}
		}
		plain = append(plain, pool.GetName())
	}
	if len(plain) == 0 {
		return ""
	}
	return "Calico does not encapsulate (IPPool " + strings.Join(plain, ", ") + "), so nodes have no address in the pod network: host-network pods do not reach other clusters, " +
		"and connections have no health check. Set vxlanMode: CrossSubnet in the IPPool, which encapsulates between networks of nodes only"
}

// isForPods reports whether Calico gives pods addresses of a pool. Upstream's Submariner
// creates pools for the networks of other clusters, with a label.
func isForPods(pool unstructured.Unstructured) bool {
	disabled, _, _ := unstructured.NestedBool(pool.Object, "spec", "disabled")
	return !disabled && pool.GetLabels()["submariner.io/ippool"] == ""
}

// ovnGatewayMode warns about nodes whose packets leave OVN past the node's kernel.
func (e Evidence) ovnGatewayMode() string {
	var shared []string
	for _, n := range e.Nodes {
		var config map[string]struct{ Mode string }
		err := json.Unmarshal([]byte(n.Annotations["k8s.ovn.org/l3-gateway-config"]), &config)
		if err == nil && config["default"].Mode == "shared" {
			shared = append(shared, n.Name)
		}
	}
	if len(shared) == 0 {
		return ""
	}
	slices.Sort(shared)
	which := shared[0]
	if len(shared) > 1 {
		which = fmt.Sprintf("%s and %d other nodes", which, len(shared)-1)
	}
	return "OVN-Kubernetes is in gateway mode \"shared\" on " + which + ": packets of pods pass the node's routes, so that they do not find other clusters. " +
		"Change the gateway mode to \"local\" (OpenShift: routingViaHost: true and ipForwarding: Global in Network.operator.openshift.io cluster)"
}
