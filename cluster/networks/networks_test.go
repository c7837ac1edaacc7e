package networks_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/cluster/clustertest"
	"subctl/cluster/networks"
)

func configMap(namespace, name, key, value string) client.Object {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:       map[string]string{key: value},
	}
}

func component(label, name string, command ...string) client.Object {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, Labels: map[string]string{label: name}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: name, Command: command}}},
	}
}

func withPods(name string, cidrs ...string) client.Object {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: cidrs}}
}

// using returns a pool of Calico's with allowed uses.
func using(pool client.Object, uses ...string) client.Object {
	u := pool.(*unstructured.Unstructured)
	_ = unstructured.SetNestedStringSlice(u.Object, uses, "spec", "allowedUses")
	return u
}

func podAt(name, ip string) client.Object {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	if ip != "" {
		pod.Status.PodIPs = []corev1.PodIP{{IP: ip}}
	}
	return pod
}

func TestDiscover(t *testing.T) {
	kubeadm := configMap("kube-system", "kubeadm-config", "ClusterConfiguration",
		"networking: {podSubnet: 10.1.0.0/16, serviceSubnet: 10.2.0.0/16}")
	cilium := configMap("kube-system", "cilium-config", "ipam", "cluster-pool").(*corev1.ConfigMap)
	cilium.Data["cluster-pool-ipv4-cidr"] = "10.3.0.0/16 10.4.0.0/16"
	kindnet := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kindnet"}}
	kindnet.Spec.Template.Spec.Containers = []corev1.Container{
		{Env: []corev1.EnvVar{{Name: "POD_SUBNET", Value: "10.5.0.0/16"}}},
	}
	pool := func(name, cidr string, disabled bool) client.Object {
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "crd.projectcalico.org/v1", "kind": "IPPool", "metadata": map[string]any{"name": name},
			"spec": map[string]any{"cidr": cidr, "disabled": disabled},
		}}
		return u
	}
	api := &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.6.0.0/16", "fd00::/112"}},
	}
	const nothing = "[] from "
	for _, test := range []struct {
		name           string
		objs           []client.Object
		pods, services string
		plugin, guess  string
		warnings       []string
	}{
		{name: "nothing", pods: nothing, services: nothing},
		{
			name:     "kubeadm",
			objs:     []client.Object{kubeadm},
			pods:     "[10.1.0.0/16] from ConfigMap kube-system/kubeadm-config",
			services: "[10.2.0.0/16] from ConfigMap kube-system/kubeadm-config",
		},
		{
			name: "cilium",
			objs: []client.Object{
				kubeadm,
				cilium,
				&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cilium"}},
			},
			pods:     "[10.3.0.0/16 10.4.0.0/16] from ConfigMap kube-system/cilium-config",
			services: "[10.2.0.0/16] from ConfigMap kube-system/kubeadm-config",
			plugin:   "cilium",
		},
		{
			name:     "calico",
			objs:     []client.Object{pool("a", "10.7.0.0/16", false), pool("b", "10.8.0.0/16", true)},
			pods:     "[10.7.0.0/16] from Calico's IPPools",
			services: nothing,
		},
		{
			name: "calico: pools for load balancers and for tunnels only, pools that pods have left or not",
			objs: []client.Object{
				pool("a", "10.7.0.0/16", false), using(pool("lb", "198.51.100.0/24", false), "LoadBalancer"),
				using(pool("both", "10.13.0.0/16", false), "Workload", "Tunnel"),
				using(pool("tunnels", "10.14.0.0/24", false), "Tunnel"),
				pool("left", "10.15.0.0/16", true), pool("leaving", "10.16.0.0/16", true),
				using(pool("old-lb", "10.17.0.0/24", true), "LoadBalancer"),
				podAt("a", "10.7.1.1"), podAt("b", "10.16.3.4"), podAt("c", "10.17.0.4"), podAt("d", ""),
			},
			pods: "[10.7.0.0/16 10.13.0.0/16 10.14.0.0/24 10.16.0.0/16] from Calico's IPPools", services: nothing,
		},
		{
			name: "kubeadm, and a later range of nodes", objs: []client.Object{
				kubeadm, withPods("n1", "10.1.1.0/24"), withPods("n2", "10.20.0.0/24"), withPods("n3", "10.20.3.0/24"),
			},
			pods: "[10.1.0.0/16 10.20.0.0/22] from ConfigMap kube-system/kubeadm-config, and podCIDRs of nodes " +
				"(10.20.0.0/24,10.20.3.0/24)",
			services: "[10.2.0.0/16] from ConfigMap kube-system/kubeadm-config",
		},
		{
			name: "cilium, which does not use the networks of nodes",
			objs: []client.Object{cilium, withPods("n1", "10.244.1.0/24")},
			pods: "[10.3.0.0/16 10.4.0.0/16] from ConfigMap kube-system/cilium-config", services: nothing,
		},
		{
			name: "nodes of two ranges", services: nothing,
			objs: []client.Object{
				withPods("n1", "10.244.1.0/24"), withPods("n2", "10.1.2.0/24"), withPods("n3", "10.244.200.0/24"),
			},
			pods: "[10.1.2.0/24 10.244.0.0/16] from podCIDRs of the nodes (10.244.1.0/24,10.1.2.0/24,10.244.200.0/24)",
			guess: "the pod network is a guess, 10.1.2.0/24,10.244.0.0/16, from the podCIDRs of the nodes " +
				"(10.244.1.0/24,10.1.2.0/24,10.244.200.0/24): later nodes may be outside it; specify the network " +
				"with --clustercidr",
		},
		{
			name: "flannel",
			objs: []client.Object{
				configMap("kube-flannel", "kube-flannel-cfg", "net-conf.json", `{"Network":"10.9.0.0/16"}`),
			},
			pods:     "[10.9.0.0/16] from ConfigMap kube-flannel/kube-flannel-cfg",
			services: nothing,
		},
		{
			name:     "kindnet",
			objs:     []client.Object{kindnet, kubeadm},
			plugin:   "kindnet",
			pods:     "[10.5.0.0/16] from POD_SUBNET of DaemonSet kube-system/kindnet",
			services: "[10.2.0.0/16] from ConfigMap kube-system/kubeadm-config",
		},
		{
			name: "control plane pods",
			objs: []client.Object{
				component("component", "kube-controller-manager", "kube-controller-manager",
					"--cluster-cidr=10.10.0.0/16"),
				component("component", "kube-apiserver", "sh", "-c",
					"exec kube-apiserver --service-cluster-ip-range '10.11.0.0/16' --v=2"),
			},
			pods:     "[10.10.0.0/16] from --cluster-cidr of kube-controller-manager",
			services: "[10.11.0.0/16] from --service-cluster-ip-range of kube-apiserver",
		},
		{
			name: "kube-proxy",
			objs: []client.Object{
				configMap("kube-system", "kube-proxy", "config.conf", "clusterCIDR: 10.12.0.0/16"),
			},
			pods:     "[10.12.0.0/16] from ConfigMap kube-system/kube-proxy",
			services: nothing,
		},
		{
			name:     "dual-stack API",
			objs:     []client.Object{api},
			pods:     nothing,
			services: "[10.6.0.0/16] from the ServiceCIDR API",
			warnings: []string{
				"the IPv6 Service network fd00::/112 is not connected: this version connects IPv4 networks only",
			},
		},
		{
			name:     "nodes",
			objs:     []client.Object{withPods("n1", "10.111.1.0/24"), withPods("n2", "fd00::/64", "10.111.2.0/24")},
			services: nothing,
			pods:     "[10.111.0.0/22] from podCIDRs of the nodes (10.111.1.0/24,10.111.2.0/24)",
			guess: "the pod network is a guess, 10.111.0.0/22, from the podCIDRs of the nodes (10.111.1.0/24,10.111.2.0/24): " +
				"later nodes may be outside it; specify the network with --clustercidr",
		},
		{
			name:     "a node without",
			objs:     []client.Object{withPods("n1", "10.111.1.0/24"), withPods("n2")},
			pods:     nothing,
			services: nothing,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			n, err := networks.Discover(t.Context(), clustertest.Client(t, test.objs...))
			require.NoError(t, err)
			require.Equal(t, test.pods, fmt.Sprintf("%v from %s", n.Pods.CIDRs, n.Pods.From))
			require.Equal(t, test.services, fmt.Sprintf("%v from %s", n.Services.CIDRs, n.Services.From))
			require.Equal(t, test.warnings, n.Warnings)
			require.Equal(t, test.guess, n.Guess)
			if test.plugin == "" {
				test.plugin = "generic"
			}
			require.Equal(t, test.plugin, n.Plugin)
		})
	}
}
