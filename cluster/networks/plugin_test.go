package networks_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"subctl/api/submariner/v1alpha1"
	"subctl/cluster/clustertest"
	"subctl/cluster/networks"
)

func daemonSets(names ...string) (list []appsv1.DaemonSet) {
	for _, name := range names {
		list = append(list, appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}})
	}
	return list
}

func annotated(annotation string, values ...string) (nodes []corev1.Node) {
	for i, v := range values {
		nodes = append(
			nodes,
			corev1.Node{
				ObjectMeta: metav1.ObjectMeta{
					Name:        "n" + string(rune('1'+i)),
					Annotations: map[string]string{annotation: v},
				},
			},
		)
	}
	return nodes
}

func calicoObject(kind, name string, spec map[string]any) unstructured.Unstructured {
	return unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "crd.projectcalico.org/v1", "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec,
	}}
}

func pool(name, ipip, vxlan string) unstructured.Unstructured {
	return calicoObject("IPPool", name, map[string]any{"cidr": "10.7.0.0/16", "ipipMode": ipip, "vxlanMode": vxlan})
}

func TestDetectPlugin(t *testing.T) {
	openshift := daemonSets("sdn")
	openshift[0].Namespace = "openshift-sdn"
	for _, test := range []struct {
		name     string
		evidence networks.Evidence
		want     string
	}{
		{"nothing", networks.Evidence{}, "generic"},
		{
			"unknown",
			networks.Evidence{DaemonSets: daemonSets("aws-node", "kube-proxy", "cilium-exporter", "sdn")},
			"generic",
		},
		{"flannel", networks.Evidence{DaemonSets: daemonSets("kube-flannel-ds")}, "flannel"},
		{"k3s", networks.Evidence{Nodes: annotated("flannel.alpha.coreos.com/backend-type", "vxlan")}, "flannel"},
		{"canal has Calico's policies, and flannel's annotations", networks.Evidence{
			DaemonSets: daemonSets("rke2-canal"), Nodes: annotated("flannel.alpha.coreos.com/backend-type", "vxlan"),
		}, "canal-flannel"},
		{"what runs counts, not what has left annotations", networks.Evidence{
			DaemonSets: daemonSets("cilium"), Nodes: annotated("flannel.alpha.coreos.com/backend-type", "vxlan"),
		}, "cilium"},
		{"calico", networks.Evidence{DaemonSets: daemonSets("calico-node")}, "calico"},
		{
			"calico, DaemonSets are not readable",
			networks.Evidence{Nodes: annotated("projectcalico.org/IPv4Address", "10.0.0.1/24")},
			"calico",
		},
		{"kindnet", networks.Evidence{DaemonSets: daemonSets("kindnet")}, "kindnet"},
		{"weave", networks.Evidence{DaemonSets: daemonSets("weave-net")}, "weave-net"},
		{"antrea", networks.Evidence{DaemonSets: daemonSets("antrea-agent")}, "antrea"},
		{"ovn", networks.Evidence{DaemonSets: daemonSets("ovnkube-node")}, "OVNKubernetes"},
		{"openshift", networks.Evidence{DaemonSets: openshift}, "OpenShiftSDN"},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, networks.DetectPlugin(test.evidence).Name)
		})
	}
}

// settings returns the ConfigMap with which a plugin, or kube-proxy, is installed.
func settings(name string, data map[string]string) map[string]corev1.ConfigMap {
	cm := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}, Data: data}
	return map[string]corev1.ConfigMap{name: cm}
}

// calicoObjects returns objects by kind.
func calicoObjects(list ...unstructured.Unstructured) map[string][]unstructured.Unstructured {
	out := map[string][]unstructured.Unstructured{}
	for _, o := range list {
		out[o.GetKind()] = append(out[o.GetKind()], o)
	}
	return out
}

// withContainer returns a DaemonSet whose pods have one container.
func withContainer(name string, c corev1.Container) []appsv1.DaemonSet {
	list := daemonSets(name)
	list[0].Spec.Template.Spec.Containers = []corev1.Container{c}
	return list
}

func labelled(labels map[string]string, podCIDRs ...string) []corev1.Node {
	return []corev1.Node{
		{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: labels}, Spec: corev1.NodeSpec{PodCIDRs: podCIDRs}},
	}
}

// TestSigns has the objects as the products install them.
func TestSigns(t *testing.T) {
	cilium := func(data map[string]string) networks.Evidence {
		return networks.Evidence{DaemonSets: daemonSets("cilium"), ConfigMaps: settings("cilium-config", data)}
	}
	calico := func(objects ...unstructured.Unstructured) networks.Evidence {
		return networks.Evidence{DaemonSets: daemonSets("calico-node"), Objects: calicoObjects(objects...)}
	}
	proxy := func(data map[string]string, name string) networks.Evidence {
		return networks.Evidence{
			DaemonSets: daemonSets("kube-flannel-ds", "kube-proxy"), ConfigMaps: settings(name, data),
		}
	}
	kubeRouter := func(args ...string) networks.Evidence {
		return networks.Evidence{DaemonSets: withContainer("kube-router", corev1.Container{Args: args})}
	}
	antrea := func(config string) networks.Evidence {
		return networks.Evidence{
			DaemonSets: daemonSets("antrea-agent"),
			ConfigMaps: settings("antrea-config", map[string]string{"antrea-agent.conf": config}),
		}
	}
	ovn := func(modes ...string) networks.Evidence {
		return networks.Evidence{
			DaemonSets: daemonSets("ovnkube-node"), Nodes: annotated("k8s.ovn.org/l3-gateway-config", modes...),
		}
	}
	kpr := map[string]string{"kube-proxy-replacement": "true"}
	all := map[string]string{"kube-proxy-replacement": "strict", "enable-bpf-masquerade": "true"}
	ipvs := corev1.Container{Name: "kube-proxy", Command: []string{"kube-proxy", "--proxy-mode=IPVS", "--v=3"}}
	custom := corev1.Container{
		Name: "aws-node", Env: []corev1.EnvVar{{Name: "AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG", Value: "true"}},
	}
	staticProxy := component("component", "kube-proxy", "kube-proxy", "--cluster-cidr=10.42.0.0/16",
		"--proxy-mode=ipvs").(*corev1.Pod)
	installation := unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "operator.tigera.io/v1", "kind": "Installation", "metadata": map[string]any{"name": "default"},
		"spec": map[string]any{"calicoNetwork": map[string]any{"linuxDataplane": "BPF"}},
	}}
	azure := map[string]string{"kubernetes.azure.com/cluster": "MC_group"}
	for _, test := range []struct {
		name     string
		evidence networks.Evidence
		want     []string // what each warning contains
	}{
		{
			"flannel beside kube-proxy in mode iptables",
			proxy(map[string]string{"config.conf": "mode: iptables"}, "kube-proxy"), nil,
		},
		{
			"kube-proxy in the default mode",
			proxy(map[string]string{"config.conf": "clusterCIDR: 10.1.0.0/16"}, "kube-proxy"), nil,
		},
		{
			"kubeadm, kube-proxy in mode ipvs", proxy(map[string]string{"config.conf": "mode: ipvs"}, "kube-proxy"),
			[]string{`(mode: "ipvs" in ConfigMap kube-system/kube-proxy): IPVS chooses`},
		},
		{
			"EKS, kube-proxy in mode ipvs", proxy(map[string]string{"config": "mode: \"ipvs\""}, "kube-proxy-config"),
			[]string{"in ConfigMap kube-system/kube-proxy-config"},
		},
		{"AKS, kube-proxy in mode ipvs", networks.Evidence{DaemonSets: withContainer("kube-proxy", ipvs)}, []string{
			"--proxy-mode=ipvs in DaemonSet kube-system/kube-proxy",
		}},
		{
			"RKE2, kube-proxy in mode ipvs",
			networks.Evidence{DaemonSets: daemonSets("rke2-canal"), Proxies: []corev1.Pod{*staticProxy}},
			[]string{"pod kube-system/kube-proxy"},
		},
		{
			"k3s, kube-proxy in mode ipvs",
			networks.Evidence{Nodes: annotated("k3s.io/node-args", `["server","--kube-proxy-arg","proxy-mode=ipvs"]`)},
			[]string{"(node n1): IPVS"},
		},
		{"an invalid configuration of kube-proxy", proxy(map[string]string{"config.conf": ": ["}, "kube-proxy"), nil},
		{
			"kube-router as proxy", kubeRouter("--run-router=true", "--run-service-proxy=true"),
			[]string{"--run-service-proxy=true in DaemonSet"},
		},
		{"kube-router beside kube-proxy", kubeRouter("--run-service-proxy=false"), nil},

		{"cilium beside kube-proxy", cilium(map[string]string{"kube-proxy-replacement": "false"}), nil},
		{
			"cilium beside kube-proxy, masquerading in BPF",
			cilium(map[string]string{"kube-proxy-replacement": "false", "enable-bpf-masquerade": "true"}),
			[]string{`devices: "eth0"`},
		},
		{
			"cilium beside kube-proxy, masquerading in BPF on its devices",
			cilium(map[string]string{
				"kube-proxy-replacement": "false",
				"enable-bpf-masquerade":  "true",
				"devices":                "eth0 eth1",
			}),
			nil,
		},
		{
			"cilium beside kube-proxy, without masquerading",
			cilium(map[string]string{"enable-bpf-masquerade": "true", "enable-ipv4-masquerade": "false"}),
			nil,
		},
		{"cilium without its ConfigMap", networks.Evidence{DaemonSets: daemonSets("cilium")}, nil},
		{"cilium for Services", cilium(kpr), []string{`bpf-lb-external-clusterip: "true"`}},
		{"cilium for everything", cilium(all), []string{
			`enable-host-legacy-routing: "true"`, `bpf-lb-external-clusterip: "true"`,
		}},
		{"cilium and kube-proxy's old ConfigMap in mode ipvs", networks.Evidence{
			DaemonSets: daemonSets("cilium", "kube-proxy"),
			ConfigMaps: settings("kube-proxy", map[string]string{"config.conf": "mode: ipvs"}),
		}, []string{"IPVS"}},
		{"cilium, changed", cilium(map[string]string{
			"kube-proxy-replacement":     "true",
			"enable-bpf-masquerade":      "true",
			"enable-host-legacy-routing": "true",
			"bpf-lb-external-clusterip":  "true",
		}), nil},
		{
			"another plugin, and Cilium's old settings",
			networks.Evidence{DaemonSets: daemonSets("kindnet"), ConfigMaps: settings("cilium-config", kpr)},
			nil,
		},
		{"GKE Dataplane V2", networks.Evidence{
			DaemonSets: daemonSets("anetd", "netd"), ConfigMaps: settings("cilium-config", kpr),
			Nodes: labelled(map[string]string{"cloud.google.com/gke-nodepool": "p"}, "10.1.0.0/24"),
		}, []string{"GKE Dataplane V2 (DaemonSet kube-system/anetd)"}},
		{"Azure CNI powered by Cilium: Helm's settings are no help", networks.Evidence{
			DaemonSets: daemonSets("cilium", "azure-cns", "kube-proxy"), ConfigMaps: settings("cilium-config", all),
			Nodes: labelled(map[string]string{
				"kubernetes.azure.com/cluster": "x", "kubernetes.azure.com/ebpf-dataplane": "cilium",
				"kubernetes.azure.com/podnetwork-type": "overlay",
			}),
		}, []string{"Azure CNI powered by Cilium (node n1)"}},
		{"Azure CNI Overlay", networks.Evidence{
			DaemonSets: daemonSets("azure-cns", "kube-proxy"),
			Nodes: labelled(map[string]string{
				"kubernetes.azure.com/cluster": "x", "kubernetes.azure.com/podnetwork-type": "overlay",
			}),
		}, nil},
		{
			"Azure CNI, node subnet",
			networks.Evidence{DaemonSets: daemonSets("azure-cns", "kube-proxy"), Nodes: labelled(azure)},
			[]string{"Azure CNI, node subnet (node n1)"},
		},
		{
			"AKS with kubenet",
			networks.Evidence{DaemonSets: daemonSets("kube-proxy"), Nodes: labelled(azure, "10.244.0.0/24")},
			nil,
		},
		{
			"AKS with a plugin of one's own",
			networks.Evidence{DaemonSets: daemonSets("cilium"), Nodes: labelled(azure)},
			nil,
		},
		{"EKS", networks.Evidence{DaemonSets: daemonSets("aws-node", "kube-proxy")}, []string{
			"Amazon VPC CNI (DaemonSet kube-system/aws-node)",
		}},
		{"EKS with custom networking", networks.Evidence{DaemonSets: withContainer("aws-node", custom)}, []string{
			"Amazon VPC CNI with custom networking",
		}},

		{"calico", calico(), nil},
		{
			"calico, BPF", calico(calicoObject("FelixConfiguration", "default", map[string]any{"bpfEnabled": true})),
			[]string{"bpfEnabled: false in FelixConfiguration default"},
		},
		{
			"calico, BPF on one node",
			calico(calicoObject("FelixConfiguration", "node.n1", map[string]any{"bpfEnabled": true})), nil,
		},
		{"calico, BPF by its operator", calico(installation), []string{
			"calicoNetwork.linuxDataplane: BPF in Installation default",
		}},
		{
			"canal, BPF",
			networks.Evidence{DaemonSets: daemonSets("canal"), Objects: calicoObjects(installation)},
			[]string{"Calico with eBPF"},
		},
		{"calico, tunnels between networks of nodes", calico(pool("a", "Never", "CrossSubnet")), nil},
		{"calico, no tunnels", calico(pool("a", "Never", "Never"), pool("b", "", "")), []string{
			"(IPPool a, b): nodes have no address in the pod network",
		}},
		{"calico, a disabled pool", calico(calicoObject("IPPool", "remote", map[string]any{"disabled": true})), nil},
		{"calico, tunnels, and a pool for load balancers", calico(
			pool("a", "Always", "Never"), calicoObject("IPPool", "lb", map[string]any{
				"allowedUses": []any{"LoadBalancer"}, "ipipMode": "Never",
			}),
		), nil},
		{"canal has pools without tunnels, and flannel's devices", networks.Evidence{
			DaemonSets: daemonSets("canal"), Objects: calicoObjects(pool("a", "Never", "Never")),
		}, nil},
		{"calico, BPF in its DaemonSet", networks.Evidence{
			DaemonSets: withContainer("calico-node", corev1.Container{
				Name: "calico-node", Env: []corev1.EnvVar{{Name: "FELIX_BPFENABLED", Value: "true"}},
			}),
		}, []string{"FELIX_BPFENABLED=true in DaemonSet kube-system/calico-node"}},

		{"antrea", antrea("antreaProxy:\n  proxyAll: false\n"), nil},
		{
			"antrea for Services", antrea("antreaProxy:\n  proxyAll: true\n"),
			[]string{"antreaProxy.proxyAll: false"},
		},

		{"ovn, local", ovn(`{"default":{"mode":"local"}}`), nil},
		{"ovn, mode unknown", ovn("x", ""), nil},
		{"ovn, shared", ovn(`{"default":{"mode":"local"}}`, `{"default":{"mode":"shared"}}`), []string{
			"gateway mode \"shared\" (node n2): ",
		}},
		{"ovn, shared everywhere", ovn(`{"default":{"mode":"shared"}}`, `{"default":{"mode":"shared"}}`), []string{
			"(node n1 and 1 more): ",
		}},
		{"ovn shared, and kube-proxy in mode ipvs", networks.Evidence{
			DaemonSets: append(daemonSets("ovnkube-node"), withContainer("kube-proxy", ipvs)...),
			Nodes:      annotated("k8s.ovn.org/l3-gateway-config", `{"default":{"mode":"shared"}}`),
		}, []string{"gateway mode", "IPVS"}},

		{"cilium, whose ConfigMap this user may not read", networks.Evidence{
			DaemonSets: daemonSets("cilium"), Unread: map[string]bool{"cilium-config": true},
		}, []string{"This user has no right to read ConfigMap cilium-config"}},
		{
			"nothing may be read",
			networks.Evidence{Unread: map[string]bool{"DaemonSets": true, "kube-proxy": true}},
			[]string{"is not known: GKE Dataplane V2; kube-proxy in mode"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			warnings := networks.DetectPlugin(test.evidence).Warnings
			require.Len(t, warnings, len(test.want), warnings)
			for i, want := range test.want {
				require.Contains(t, warnings[i], want)
			}
		})
	}
}

// Every sign that warns has a test above, and states what helps.
func TestSignsAreComplete(t *testing.T) {
	for _, s := range networks.Signs() {
		require.NotEmpty(t, s.Product)
		require.NotEmpty(t, s.Expect, s.Product)
		require.NotEmpty(t, s.Help, s.Product)
		require.Contains(t, []networks.Basis{networks.Run, networks.Read}, s.Basis, s.Product)
		require.True(t, !s.Warns() || s.Clues() != "", "%s: a warning needs clues", s.Product)
	}
}

// What DetectPlugin looks at is read from where the plugins keep it.
func TestDiscoverWarnsAboutPlugins(t *testing.T) {
	daemonSet := func(namespace, name string) *appsv1.DaemonSet {
		ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		ds.Spec.Template.Spec.HostNetwork = true
		ds.Status.CurrentNumberScheduled = 1
		return ds
	}
	felix := calicoObject("FelixConfiguration", "default", map[string]any{"bpfEnabled": true})
	pools := pool("a", "Never", "Never")
	n, err := networks.Discover(t.Context(),
		clustertest.Client(t, daemonSet("calico-system", "calico-node"), &felix, &pools))
	require.NoError(t, err)
	require.Equal(t, v1alpha1.Calico, n.Plugin)
	require.Len(t, n.Warnings, 2)
	require.Contains(t, n.Warnings[0], "bpfEnabled")
	require.Contains(t, n.Warnings[1], "vxlanMode")
	require.Equal(t, "10.7.0.0/16", n.Pods.CIDRs[0].String())

	// Calico's newer group
	pools.SetAPIVersion("projectcalico.org/v3")
	n, err = networks.Discover(t.Context(), clustertest.Client(t, daemonSet("calico-system", "calico-node"), &pools))
	require.NoError(t, err)
	require.Len(t, n.Warnings, 1)
	require.Equal(t, "10.7.0.0/16", n.Pods.CIDRs[0].String())

	n, err = networks.Discover(
		t.Context(),
		clustertest.Client(t, daemonSet("cilium", "cilium"),
			configMap("cilium", "cilium-config", "kube-proxy-replacement", "true")),
	)
	require.NoError(t, err)
	require.Equal(t, v1alpha1.Cilium, n.Plugin)
	require.Len(t, n.Warnings, 1)
	require.Contains(t, n.Warnings[0], "bpf-lb-external-clusterip")
}

// A user of a namespace chooses neither the plugin nor the pod networks of the cluster, by a
// DaemonSet with the name of a plugin and a ConfigMap beside it. He can have it use the network of
// nodes, but has no right to run its pods, or the right to run others.
func TestHostileDaemonSetOfAPlugin(t *testing.T) {
	for name, change := range map[string]func(*appsv1.DaemonSet){
		"pods":                     func(ds *appsv1.DaemonSet) { ds.Status.CurrentNumberScheduled = 3 },
		"the network of the nodes": func(ds *appsv1.DaemonSet) { ds.Spec.Template.Spec.HostNetwork = true },
	} {
		for _, plugin := range []string{"cilium", "calico-node", "ovnkube-node", "rke2-canal"} {
			ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: plugin}}
			change(ds)
			config := configMap("tenant", "cilium-config", "ipam", "cluster-pool").(*corev1.ConfigMap)
			config.Data["cluster-pool-ipv4-cidr"] = "203.0.113.0/24"
			config.Data["kube-proxy-replacement"] = "true"
			n, err := networks.Discover(t.Context(), clustertest.Client(t, ds, config,
				configMap("kube-flannel", "kube-flannel-cfg", "net-conf.json", `{"Network":"10.9.0.0/16"}`)))
			require.NoError(t, err)
			require.Equal(t, "[10.9.0.0/16] from ConfigMap kube-flannel/kube-flannel-cfg",
				fmt.Sprintf("%v from %s", n.Pods.CIDRs, n.Pods.From), "%s, %s", plugin, name)
			require.Equal(t, v1alpha1.GenericNetwork, n.Plugin, "%s, %s", plugin, name)
			require.Empty(t, n.Warnings, "%s, %s", plugin, name)
		}
	}
}

// A user who may not read where plugins keep their settings is told so, and joins.
func TestDiscoverWithoutRights(t *testing.T) {
	cilium := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cilium"}}
	c := interceptor.NewClient(clustertest.Client(t, cilium), interceptor.Funcs{
		Get: func(
			ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption,
		) error {
			if _, ok := o.(*corev1.ConfigMap); ok {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, key.Name, nil)
			}
			return w.Get(ctx, key, o, opts...)
		},
	})
	n, err := networks.Discover(t.Context(), c)
	require.NoError(t, err)
	require.Len(t, n.Warnings, 1)
	require.Contains(t, n.Warnings[0], "This user has no right to read ConfigMap cilium-config, ConfigMap kube-proxy")
	require.Contains(t, n.Warnings[0], "Cilium with BPF host routing")
}
