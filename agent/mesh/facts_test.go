package mesh_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/mesh/members"
	"subctl/agent/role"
	"subctl/api/submariner/v1alpha1"
	"subctl/dataplane"
)

func TestNodeFacts(t *testing.T) {
	pods := []netip.Prefix{netip.MustParsePrefix("10.111.0.0/16")}
	eth := dataplane.HostAddr{Dev: "eth0", Prefix: netip.MustParsePrefix("10.89.1.11/24")}
	addr := func(dev, p string) dataplane.HostAddr {
		return dataplane.HostAddr{Dev: dev, Prefix: netip.MustParsePrefix(p)}
	}
	for name, tc := range map[string]struct {
		podCIDR string
		addrs   []dataplane.HostAddr
		want    string
		planned bool
	}{
		"no address of the CNI": {"10.111.1.0/24", nil, "10.111.1.1", true},
		"bridge": {
			"10.111.1.0/24",
			[]dataplane.HostAddr{addr("cni0", "10.111.1.1/24")},
			"10.111.1.1",
			false,
		},
		"a /32 on each pod's veth": {
			"10.111.1.0/24",
			[]dataplane.HostAddr{addr("veth1", "10.111.1.1/32"), addr("veth2", "10.111.1.1/32")},
			"10.111.1.1",
			true,
		},
		"tunnel device with its own address": {
			"10.111.1.0/24",
			[]dataplane.HostAddr{addr("tunl0", "10.111.1.77/32")},
			"10.111.1.77",
			false,
		},
		"prefers the node's own network": {
			"10.111.1.0/24",
			[]dataplane.HostAddr{addr("tunl0", "10.111.0.9/32"), addr("cni0", "10.111.1.1/24")},
			"10.111.1.1",
			false,
		},
		"CNI without podCIDR": {
			"",
			[]dataplane.HostAddr{addr("cilium_host", "10.111.7.3/32")},
			"10.111.7.3",
			false,
		},
		"nothing to go by": {"", nil, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			n := &corev1.Node{Spec: corev1.NodeSpec{PodCIDR: tc.podCIDR}}
			f := members.NodeFacts(
				dataplane.Facts{
					Device:    "eth0",
					MTU:       1500,
					PrivateIP: eth.Prefix.Addr(),
					Addrs:     append([]dataplane.HostAddr{eth}, tc.addrs...),
				},
				n,
				pods,
				members.PodCIDR(nil, n),
			)
			require.Equal(t, tc.want, f.PodIP)
			require.Equal(t, tc.planned, f.PodIPPlanned)
			require.Equal(t, "10.89.1.11", f.PrivateIP)
		})
	}
}

// A node with a network of its own for Kubernetes: the default route leads elsewhere.
func TestNodeFactsOfTheInternalIP(t *testing.T) {
	addrs := []dataplane.HostAddr{
		{Dev: "eth0", MTU: 1500, Prefix: netip.MustParsePrefix("192.0.2.7/24")},
		{Dev: "eth1", MTU: 9000, Prefix: netip.MustParsePrefix("10.89.1.11/24")},
	}
	n := &corev1.Node{
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.89.1.11"}},
		},
	}
	f := members.NodeFacts(
		dataplane.Facts{Device: "eth0", MTU: 1500, PrivateIP: netip.MustParseAddr("192.0.2.7"), Addrs: addrs}, n, nil,
		netip.Prefix{})
	require.Equal(t, "eth1", f.Device)
	require.Equal(t, 9000, f.MTU)
	require.Equal(t, "10.89.1.11", f.PrivateIP)
	require.Equal(t, "10.89.1.0/24", f.Network)
	n.Status.Addresses[0].Address = "203.0.113.1" // of a cloud's load balancer: no device holds it
	f = members.NodeFacts(
		dataplane.Facts{Device: "eth0", MTU: 1500, PrivateIP: netip.MustParseAddr("192.0.2.7"), Addrs: addrs}, n, nil,
		netip.Prefix{})
	require.Equal(t, "192.0.2.7", f.PrivateIP)
	require.Equal(t, "eth0", f.Device)
}

// Calico gives pods addresses outside the podCIDR of their node, and the addresses of the
// podCIDR to pods of any node: nothing is planned with it.
func TestPodCIDRIsIgnoredByCalico(t *testing.T) {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{PodCIDR: "10.111.1.0/24"},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.89.1.11"}},
		},
	}
	eth := dataplane.HostAddr{Dev: "eth0", MTU: 1500, Prefix: netip.MustParsePrefix("10.89.1.11/24")}
	tunnel := dataplane.HostAddr{Dev: "vxlan.calico", MTU: 1450, Prefix: netip.MustParsePrefix("10.111.1.64/32")}
	for name, tc := range map[string]struct {
		plugin string
		addrs  []dataplane.HostAddr
		podIP  string
		pods   string
	}{
		"flannel":                {v1alpha1.Flannel, nil, "10.111.1.1", "10.111.1.0/24"},
		"Calico without tunnels": {v1alpha1.Calico, nil, "", "invalid Prefix"},
		"Calico, a block that is in the podCIDR": {
			v1alpha1.Calico,
			[]dataplane.HostAddr{tunnel},
			"10.111.1.64",
			"invalid Prefix",
		},
		"joined before the plugin was in the status": {"", nil, "10.111.1.1", "10.111.1.0/24"},
	} {
		t.Run(name, func(t *testing.T) {
			sub := &v1alpha1.Submariner{
				Spec: v1alpha1.SubmarinerSpec{
					ClusterID:   "east",
					ClusterCIDR: "10.111.0.0/16",
					ServiceCIDR: "10.101.0.0/16",
				},
				Status: v1alpha1.SubmarinerStatus{NetworkPlugin: tc.plugin},
			}
			s := role.NewSnapshot[role.Object](node.Name, sub, node)
			members.SetFacts(&s,
				dataplane.Facts{
					Device:    "eth0",
					MTU:       1500,
					PrivateIP: eth.Prefix.Addr(),
					Addrs:     append([]dataplane.HostAddr{eth}, tc.addrs...),
				},
			)
			require.Equal(t, tc.podIP, s.Facts.PodIP)
			m, err := members.Read(s)
			require.NoError(t, err)
			require.Equal(t, tc.pods, m.Self.Pods.String())
		})
	}
}
