package report

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/mesh/members"
	"subctl/agent/role"
	"subctl/api/submariner/v1alpha1"
)

// The speaker reports networks with which the cluster has not joined, and the command that takes
// them over.
func TestNetworksThatTheClusterHasGot(t *testing.T) {
	nets := func(from string, list ...string) role.FoundNetworks {
		f := role.FoundNetworks{From: from}
		for _, text := range list {
			f.CIDRs = append(f.CIDRs, netip.MustParsePrefix(text))
		}
		return f
	}
	node := func(name, podCIDR string) role.Object {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDR: podCIDR}}
	}
	for _, test := range []struct {
		name       string
		discovered string
		plugin     string
		standby    bool
		pods       role.FoundNetworks
		services   role.FoundNetworks
		nodes      []role.Object
		want       string // the message; empty: no condition
	}{
		{name: "nothing new", discovered: "clusterCIDR,serviceCIDR", services: nets("the API", "10.101.0.0/16")},
		{name: "part of what is known", services: nets("the API", "10.101.3.0/24")},
		{
			name: "a second Service range", discovered: "clusterCIDR,serviceCIDR",
			services: nets("the API", "10.101.0.0/16", "10.203.0.0/24"),
			want: "this cluster has the Service network 10.203.0.0/24 (the API), with which it has not joined, so " +
				"that other clusters do not reach it: run \"subctl join JOIN-FILE\", with the file of the broker",
		},
		{
			name: "a second Service range, and the user chose the first", discovered: "clusterCIDR",
			services: nets("the API", "10.101.0.0/16", "10.203.0.0/24"),
			want: "this cluster has the Service network 10.203.0.0/24 (the API), with which it has not joined, so " +
				"that other clusters do not reach it: run \"subctl join JOIN-FILE --servicecidr " +
				"10.101.0.0/16,10.203.0.0/24\", with the file of the broker",
		},
		{name: "another gateway speaks for the cluster", standby: true, services: nets("the API", "10.203.0.0/24")},
		{
			name: "both", discovered: "clusterCIDR,serviceCIDR", services: nets("the API", "10.203.0.0/24"),
			pods: nets("Calico's IPPools", "10.70.0.0/16"),
			want: "this cluster has the pod network 10.70.0.0/16 (Calico's IPPools), and the Service network " +
				"10.203.0.0/24 (the API), with which",
		},
		{
			name: "nodes in a later range", discovered: "clusterCIDR",
			nodes: []role.Object{node("a", "10.111.0.0/24"), node("b", "10.70.1.0/24")},
			want:  "this cluster has the pod network 10.70.1.0/24 (podCIDR of nodes), with which",
		},
		{name: "the network plugin does not use the networks of nodes", nodes: []role.Object{
			node("a", "10.71.0.0/24"), node("b", "10.70.1.0/24"),
		}},
		{name: "Calico does not use them either", plugin: v1alpha1.Calico, nodes: []role.Object{
			node("a", "10.111.0.0/24"), node("b", "10.70.1.0/24"),
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			sub := &v1alpha1.Submariner{
				Spec: v1alpha1.SubmarinerSpec{ClusterCIDR: "10.111.0.0/16", ServiceCIDR: "10.101.0.0/16"},
			}
			sub.Annotations = map[string]string{v1alpha1.DiscoveredAnnotation: test.discovered}
			sub.Status.NetworkPlugin = test.plugin
			s := role.NewSnapshot("a", test.nodes...)
			s.Standing.Speaker = !test.standby
			s.FoundPods = test.pods
			s.FoundServices = test.services
			own, err := role.OwnNetworks(sub.Spec)
			require.NoError(t, err)
			got := networksCondition(s, members.Membership{Submariner: sub, Own: own}, nil, time.Unix(0, 0))
			if test.want == "" {
				require.Empty(t, got)
				return
			}
			require.Len(t, got, 1)
			require.Contains(t, got[0].Message, test.want)
			require.True(t, role.Wrong(got[0]))
		})
	}
}
