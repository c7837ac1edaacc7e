package networks_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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
		nodes = append(nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n" + string(rune('1'+i)), Annotations: map[string]string{annotation: v}}})
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
		{"unknown", networks.Evidence{DaemonSets: daemonSets("aws-node", "kube-proxy", "cilium-exporter", "sdn")}, "generic"},
		{"flannel", networks.Evidence{DaemonSets: daemonSets("kube-flannel-ds")}, "flannel"},
		{"k3s", networks.Evidence{Nodes: annotated("flannel.alpha.coreos.com/backend-type", "vxlan")}, "flannel"},
		{"canal has Calico's policies, and flannel's annotations", networks.Evidence{
			DaemonSets: daemonSets("rke2-canal"), Nodes: annotated("flannel.alpha.coreos.com/backend-type", "vxlan"),
		}, "canal-flannel"},
		{"what runs counts, not what has left annotations", networks.Evidence{
			DaemonSets: daemonSets("cilium"), Nodes: annotated("flannel.alpha.coreos.com/backend-type", "vxlan"),
		}, "cilium"},
		{"calico", networks.Evidence{DaemonSets: daemonSets("calico-node")}, "calico"},
		{"calico, DaemonSets are not readable", networks.Evidence{Nodes: annotated("projectcalico.org/IPv4Address", "10.0.0.1/24")}, "calico"},
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

func TestPluginWarnings(t *testing.T) {
	cilium := func(settings map[string]string) networks.Evidence {
		return networks.Evidence{DaemonSets: daemonSets("cilium"), Cilium: settings}
	}
	calicoBPF := daemonSets("calico-node")
	calicoBPF[0].Spec.Template.Spec.Containers = []corev1.Container{{Name: "calico-node", Env: []corev1.EnvVar{{Name: "FELIX_BPFENABLED", Value: "true"}}}}
	const gateway = "k8s.ovn.org/l3-gateway-config"
	ovn := func(modes ...string) networks.Evidence {
		return networks.Evidence{DaemonSets: daemonSets("ovnkube-node"), Nodes: annotated(gateway, modes...)}
	}
	for _, test := range []struct {
		name     string
		evidence networks.Evidence
		want     []string // what each warning contains
	}{
		{"cilium beside kube-proxy", cilium(map[string]string{"kube-proxy-replacement": "false"}), nil},
		{"cilium beside kube-proxy, masquerading in BPF", cilium(map[string]string{"kube-proxy-replacement": "false", "enable-bpf-masquerade": "true"}), []string{`devices: "eth0"`}},
		{"cilium beside kube-proxy, masquerading in BPF on its devices", cilium(map[string]string{"kube-proxy-replacement": "false", "enable-bpf-masquerade": "true", "devices": "eth0 eth1"}), nil},
		{"cilium beside kube-proxy, without masquerading", cilium(map[string]string{"enable-bpf-masquerade": "true", "enable-ipv4-masquerade": "false"}), nil},
		{"cilium, settings unknown", cilium(nil), nil},
		{"cilium for Services", cilium(map[string]string{"kube-proxy-replacement": "true"}), []string{`bpf-lb-external-clusterip: "true"`}},
		{
			"cilium for everything", cilium(map[string]string{"kube-proxy-replacement": "strict", "enable-bpf-masquerade": "true"}),
			[]string{`enable-host-legacy-routing: "true"`, `bpf-lb-external-clusterip: "true"`},
		},
		{"cilium, changed", cilium(map[string]string{
			"kube-proxy-replacement": "true", "enable-bpf-masquerade": "true", "enable-host-legacy-routing": "true", "bpf-lb-external-clusterip": "true",
		}), nil},
		{"another plugin, and Cilium's old settings", networks.Evidence{DaemonSets: daemonSets("kindnet"), Cilium: map[string]string{"kube-proxy-replacement": "true"}}, nil},
		{"calico", networks.Evidence{DaemonSets: daemonSets("calico-node")}, nil},
		{
			"calico, BPF",
			networks.Evidence{
				DaemonSets:     daemonSets("calico-node"),
				CalicoSettings: []unstructured.Unstructured{calicoObject("FelixConfiguration", "default", map[string]any{"bpfEnabled": true})},
			},
			[]string{"bpfEnabled: false in FelixConfiguration default"},
		},
		{
			"calico, tunnels between networks of nodes", networks.Evidence{
				DaemonSets:  daemonSets("calico-node"),
				CalicoPools: []unstructured.Unstructured{pool("a", "Never", "CrossSubnet")},
			}, nil,
		},
		{
			"calico, no tunnels",
			networks.Evidence{
				DaemonSets:  daemonSets("calico-node"),
				CalicoPools: []unstructured.Unstructured{pool("a", "Never", "Never"), pool("b", "", "")},
			},
			[]string{"(IPPool a, b), so nodes have no address in the pod network"},
		},
		{
			"calico, a disabled pool", networks.Evidence{
				DaemonSets:  daemonSets("calico-node"),
				CalicoPools: []unstructured.Unstructured{calicoObject("IPPool", "remote", map[string]any{"disabled": true})},
			}, nil,
		},
		{
			"canal has pools without tunnels, and flannel's devices", networks.Evidence{
				DaemonSets:  daemonSets("canal"),
				CalicoPools: []unstructured.Unstructured{pool("a", "Never", "Never")},
			}, nil,
		},
		{"calico, BPF in its DaemonSet", networks.Evidence{DaemonSets: calicoBPF}, []string{"bpfEnabled"}},
		{"ovn, local", ovn(`{"default":{"mode":"local"}}`), nil},
		{"ovn, mode unknown", ovn("x", ""), nil},
		{"ovn, shared", ovn(`{"default":{"mode":"local"}}`, `{"default":{"mode":"shared"}}`), []string{`gateway mode "shared" on n2: `}},
		{"ovn, shared everywhere", ovn(`{"default":{"mode":"shared"}}`, `{"default":{"mode":"shared"}}`), []string{`on n1 and 1 other nodes: `}},
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

// What DetectPlugin looks at is read from where the plugins keep it.
func TestDiscoverWarnsAboutPlugins(t *testing.T) {
	daemonSet := func(namespace, name string) *appsv1.DaemonSet {
		return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	felix := calicoObject("FelixConfiguration", "default", map[string]any{"bpfEnabled": true})
	pools := pool("a", "Never", "Never")
	n, err := networks.Discover(t.Context(), clustertest.Client(t, daemonSet("calico-system", "calico-node"), &felix, &pools))
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

	n, err = networks.Discover(t.Context(), clustertest.Client(t, daemonSet("cilium", "cilium"), configMap("cilium", "cilium-config", "kube-proxy-replacement", "true")))
	require.NoError(t, err)
	require.Equal(t, v1alpha1.Cilium, n.Plugin)
	require.Len(t, n.Warnings, 1)
	require.Contains(t, n.Warnings[0], "bpf-lb-external-clusterip")
}
