package networks

import (
	"slices"
	"strings"

	"subctl/api/submariner/v1alpha1"
	"subctl/internal/words"
)

// Basis is what an expectation is based on.
type Basis string

const (
	Run  Basis = "run"  // tests run it
	Read Basis = "read" // concluded from documentation and source text, and not tried
)

// Sign is one row of what is known about a network plugin or a proxy for Services: what to look for
// in a cluster, what to expect of traffic between clusters, and which setting helps. docs/cni.md
// has the table.
type Sign struct {
	Product string
	// Plugins are the plugins that it concerns, as DetectPlugin names them; empty: all.
	Plugins []string
	// Section is the heading in docs/cni.md with more about it, as in a link.
	Section string
	// When are the clues that must all be there.
	When []clue
	// Expect is the expectation, for the table.
	Expect string
	// Why is the reason why traffic fails, for the warning; empty: no warning.
	Why string
	// Help is what to configure.
	Help string
	// Managed reports that the provider of the cluster configures the plugin: the signs after it do
	// not count.
	Managed bool
	Basis   Basis
}

// strict: before Cilium 1.14
var replacesKubeProxy = option{
	configMap: ciliumConfig, path: "kube-proxy-replacement", values: []string{"true", "strict"},
}

var calicoEBPF = anyOf{
	field{"FelixConfiguration", "default", "bpfEnabled", true},
	field{"Installation", "default", "calicoNetwork.linuxDataplane", "BPF"},
	env{"calico-node", "FELIX_BPFENABLED", "true"}, // takes precedence over Calico's objects
}

var ipvs = anyOf{
	option{"kube-proxy", "config.conf", "mode", []string{"ipvs"}},
	option{"kube-proxy-config", "config", "mode", []string{"ipvs"}}, // EKS
	flag{"kube-proxy", "--proxy-mode", "ipvs"},
	proxyFlag{"proxy-mode", "ipvs"},
	flag{"kube-router", "--run-service-proxy", "true"},
}

var customNetworking = env{"aws-node", "AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG", "true"}

// signs is the table. Managed plugins come first.
var signs = []Sign{
	{
		Product: "flannel, k3s", Plugins: only(v1alpha1.Flannel), Section: "flannel",
		Expect: "works", Help: "nothing", Basis: Run,
	},
	{
		Product: "`ptp` with host routes, as kindnet's", Plugins: only(v1alpha1.GenericNetwork), Section: "kindnet",
		Expect: "works", Help: "nothing", Basis: Run,
	},
	{
		Product: "kindnet", Plugins: only(v1alpha1.Kindnet), Section: "kindnet",
		Expect: "works", Help: "nothing", Basis: Read,
	},
	{
		Product: "GKE Dataplane V2", Section: "managed-cilium", When: []clue{runs("anetd")}, Managed: true,
		Expect: "fails for Services; uncertain for pods",
		Why: "Google's Cilium replaces kube-proxy and forwards packets in BPF: other clusters reach no Service, " +
			"and possibly no pod",
		Help: "No setting changes this: use a cluster without Dataplane V2 (gcloud container clusters create, " +
			"without --enable-dataplane-v2)",
		Basis: Read,
	},
	{
		Product: "Azure CNI powered by Cilium", Section: "managed-cilium",
		When: []clue{label{"kubernetes.azure.com/ebpf-dataplane", "cilium"}}, Managed: true,
		Expect: "fails for Services; uncertain for pods",
		Why: "Azure's Cilium replaces kube-proxy and forwards packets in BPF: other clusters reach no Service, " +
			"and possibly no pod",
		Help: "No setting changes this: use a cluster with Azure CNI Overlay and kube-proxy (az aks create " +
			"--network-plugin-mode overlay --network-dataplane azure)",
		Basis: Read,
	},
	{
		Product: "Calico, Canal, with iptables or nftables", Plugins: only(v1alpha1.Calico, v1alpha1.Canal),
		Section: "calico",
		When:    []clue{not{calicoEBPF}}, Expect: "works", Help: "nothing", Basis: Read,
	},
	{
		Product: "Calico with eBPF", Plugins: only(v1alpha1.Calico, v1alpha1.Canal), Section: "calico",
		When:   []clue{calicoEBPF},
		Expect: "fails for Services; uncertain for pods",
		Why: "it replaces kube-proxy and routes packets past the rules of the node's kernel: other clusters reach " +
			"no Service, and source addresses change",
		Help: "Set bpfEnabled: false in FelixConfiguration default (with Calico's operator: linuxDataplane: Iptables " +
			"in Installation default), and run kube-proxy",
		Basis: Read,
	},
	{
		Product: "Calico without encapsulation", Plugins: only(v1alpha1.Calico), Section: "calico",
		When:   []clue{unencapsulated{}},
		Expect: "works for pods; host-network pods and the health check fail",
		Why: "nodes have no address in the pod network, so host-network pods do not reach other clusters, and " +
			"connections have no health check",
		Help:  "Set vxlanMode: CrossSubnet in the IPPool, which encapsulates between networks of nodes only",
		Basis: Read,
	},
	{
		Product: "Cilium beside kube-proxy", Plugins: only(v1alpha1.Cilium), Section: "cilium",
		When:   []clue{not{replacesKubeProxy}},
		Expect: "works", Help: "nothing", Basis: Read,
	},
	{
		Product: "Cilium beside kube-proxy, masquerading in BPF on all devices", Plugins: only(v1alpha1.Cilium),
		Section: "cilium",
		When: []clue{
			not{replacesKubeProxy},
			option{configMap: ciliumConfig, path: "enable-bpf-masquerade", values: []string{"true"}},
			not{option{configMap: ciliumConfig, path: "enable-ipv4-masquerade", values: []string{"false"}}},
			option{configMap: ciliumConfig, path: "devices", values: []string{""}},
		},
		Expect: "works, with changed source addresses",
		Why: "it masquerades packets of pods on every device that it detects, which can be the devices of subctl: " +
			"other clusters then see addresses of nodes instead of pods",
		Help: "Set devices to the nodes' own devices, such as devices: \"eth0\", in ConfigMap cilium-config (Helm: " +
			"devices={eth0}), and restart Cilium",
		Basis: Read,
	},
	{
		Product: "Cilium with BPF host routing", Plugins: only(v1alpha1.Cilium), Section: "cilium",
		When: []clue{
			replacesKubeProxy,
			option{configMap: ciliumConfig, path: "enable-bpf-masquerade", values: []string{"true"}},
			not{option{configMap: ciliumConfig, path: "enable-host-legacy-routing", values: []string{"true"}}},
		},
		Expect: "fails",
		Why: "it routes packets of pods in BPF, past the rules of the node's kernel that keep source addresses " +
			"and limit packet sizes",
		Help: "Set enable-host-legacy-routing: \"true\" in ConfigMap cilium-config (Helm: " +
			"bpf.hostLegacyRouting=true), and restart Cilium",
		Basis: Read,
	},
	{
		Product: "Cilium as replacement of kube-proxy", Plugins: only(v1alpha1.Cilium), Section: "cilium",
		When: []clue{
			replacesKubeProxy,
			not{option{configMap: ciliumConfig, path: "bpf-lb-external-clusterip", values: []string{"true"}}},
		},
		Expect: "works for pods; fails for Services",
		Why: "it serves the addresses of Services to this cluster's own pods only: other clusters reach pods, but " +
			"no Service",
		Help: "Set bpf-lb-external-clusterip: \"true\" in ConfigMap cilium-config (Helm: " +
			"bpf.lbExternalClusterIP=true), and restart Cilium",
		Basis: Read,
	},
	{
		Product: "OVN-Kubernetes, gateway mode `local`", Plugins: only(v1alpha1.OVNKubernetes),
		Section: "ovn-kubernetes",
		When:    []clue{gatewayMode("local")}, Expect: "uncertain", Help: "nothing known", Basis: Read,
	},
	{
		Product: "OVN-Kubernetes, gateway mode `shared`", Plugins: only(v1alpha1.OVNKubernetes),
		Section: "ovn-kubernetes",
		When:    []clue{gatewayMode("shared")}, Expect: "fails",
		Why: "packets of pods pass by the node's routes, so that they do not find other clusters",
		Help: "Change the gateway mode to \"local\" (OpenShift: routingViaHost: true and ipForwarding: Global in " +
			"Network.operator.openshift.io cluster)",
		Basis: Read,
	},
	{
		Product: "Antrea", Plugins: only(v1alpha1.Antrea), Section: "antrea",
		Expect: "works", Help: "nothing; with Egress, `egress.exceptCIDRs`", Basis: Read,
	},
	{
		Product: "Antrea with `proxyAll`", Plugins: only(v1alpha1.Antrea), Section: "antrea",
		When:   []clue{option{"antrea-config", "antrea-agent.conf", "antreaProxy.proxyAll", []string{"true"}}},
		Expect: "works for pods; uncertain for Services",
		Why:    "it replaces kube-proxy: whether other clusters reach Services is not known",
		Help:   "Set antreaProxy.proxyAll: false in ConfigMap antrea-config, and run kube-proxy",
		Basis:  Read,
	},
	{
		Product: "Weave", Plugins: only(v1alpha1.WeaveNet), Section: "other-plugins",
		Expect: "works", Help: "nothing", Basis: Read,
	},
	{
		Product: "kube-proxy in mode `ipvs`, kube-router as proxy", Section: "kube-proxy-in-mode-ipvs",
		When:   []clue{ipvs},
		Expect: "works for pods; fails for Services whose pods are not on the gateway",
		Why: "IPVS chooses the pod of a Service after routing: other clusters do not reach a Service whose pods " +
			"are on other nodes than the gateway",
		Help: "Set mode: \"nftables\" or \"iptables\" in the configuration of kube-proxy, and restart it; " +
			"kube-router: --run-service-proxy=false, with kube-proxy",
		Basis: Read,
	},
	{
		Product: "Amazon VPC CNI", Section: "pods-in-the-network-of-the-nodes",
		When:   []clue{runs("aws-node"), not{customNetworking}},
		Expect: "`join` refuses",
		Why:    "pods have addresses in the networks of the nodes, which join refuses",
		Help: "Give pods networks of their own (custom networking: AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG=true in " +
			"DaemonSet aws-node, and ENIConfigs), specify these with --clustercidr, and switch off the " +
			"source/destination check of the nodes",
		Basis: Read,
	},
	{
		Product: "Amazon VPC CNI with custom networking", Section: "pods-in-the-network-of-the-nodes",
		When:   []clue{customNetworking},
		Expect: "works, if the VPC forwards packets with addresses of other clusters",
		Why:    "the VPC drops packets with addresses of other clusters between nodes",
		Help: "Specify the networks of the pods with --clustercidr, switch off the source/destination check of the " +
			"nodes, and allow the networks of other clusters in their security groups",
		Basis: Read,
	},
	{
		Product: "Azure CNI, node subnet", Section: "pods-in-the-network-of-the-nodes",
		When: []clue{
			label{name: "kubernetes.azure.com/cluster"},
			noPodCIDR{},
			not{label{name: "kubernetes.azure.com/podnetwork-type"}},
			not{runs("cilium")},
			not{runs("calico-node")},
		},
		Expect: "`join` refuses",
		Why:    "pods have addresses in the networks of the nodes, which join refuses",
		Help:   "Use a cluster with Azure CNI Overlay (az aks update --network-plugin-mode overlay)",
		Basis:  Read,
	},
}

// Signs returns the table of signs.
func Signs() []Sign { return slices.Clone(signs) }

// Clues returns what s looks for, in Markdown; empty if the plugin suffices.
func (s Sign) Clues() string { return joined(s.When, "; ") }

// Warns reports whether join warns where it finds s.
func (s Sign) Warns() bool { return s.Why != "" }

// warning returns the warning about s where it was found.
func (s Sign) warning(where []string) string {
	text := strings.ReplaceAll(s.Product, "`", `"`)
	if len(where) > 0 {
		text += " (" + strings.Join(where, ", ") + ")"
	}
	return text + ": " + s.Why + ". " + s.Help + "; see docs/cni.md#" + s.Section
}

func only(plugins ...string) []string { return plugins }

// concerns reports whether s may be about a cluster with a plugin.
func (s Sign) concerns(plugin string) bool {
	return len(s.Plugins) == 0 || slices.Contains(s.Plugins, plugin)
}

// find looks for all clues of s, and returns where they were found, or what the user may not read.
func (s Sign) find(e Evidence) (state, []string) {
	var where, hidden []string
	for _, c := range s.When {
		switch f := c.find(e); {
		case f.state == absent:
			return absent, nil
		case f.state == unread:
			hidden = append(hidden, f.text)
		case f.text != "":
			where = append(where, f.text)
		}
	}
	if len(hidden) > 0 {
		return unread, words.Distinct(hidden)
	}
	return present, words.Distinct(where)
}

// warnings returns the warnings about a cluster with a plugin.
func (e Evidence) warnings(plugin string) []string {
	var out, hidden, unknown []string
	for _, s := range signs {
		if !s.Warns() || !s.concerns(plugin) {
			continue
		}
		found, where := s.find(e)
		switch found {
		case present:
			out = append(out, s.warning(where))
		case unread:
			hidden = append(hidden, where...)
			unknown = append(unknown, strings.ReplaceAll(s.Product, "`", `"`))
		case absent:
		}
		if s.Managed && found == present {
			break
		}
	}
	if len(unknown) > 0 {
		out = append(out, "whether these settings, which traffic between clusters depends on, are in use is not "+
			"known: "+strings.Join(unknown, "; ")+". This user has no right to read "+
			strings.Join(words.Distinct(hidden), ", ")+": ask for the right to read them, or see docs/cni.md")
	}
	return out
}
