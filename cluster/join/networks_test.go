package join_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/cluster/clustertest"
)

// rejoined is a cluster that has joined before with what was found then, and joins again.
func rejoined(pods, services, discovered string) *situation {
	s := normal()
	s.f.Submariner = joined("west", "hub:6443")
	s.f.Submariner.Spec.ClusterCIDR = pods
	s.f.Submariner.Spec.ServiceCIDR = services
	if discovered != "" {
		s.f.Submariner.Annotations = map[string]string{v1alpha1.DiscoveredAnnotation: discovered}
	}
	s.b.Holder = &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{broker.ClusterUIDAnnotation: "uid-west"}},
	}
	s.member("west", pods, services, "10.89.1.1")
	return s
}

// Networks that were discovered follow the cluster when joining again; networks that the user chose
// do not.
func TestJoiningAgainFollowsDiscoveredNetworks(t *testing.T) {
	const both = "clusterCIDR,serviceCIDR"
	for _, test := range []struct {
		name             string
		discovered       string // by the last join
		specified        []string
		pods, services   []string // found now
		wantPods         string
		wantServices     string
		wantDiscovered   string
		warning, granted string
	}{
		{
			name: "a second Service range", discovered: both, pods: []string{"10.111.0.0/16"},
			services: []string{"10.101.0.0/16", "10.203.0.0/24"},
			wantPods: "10.111.0.0/16", wantServices: "10.101.0.0/16,10.203.0.0/24", wantDiscovered: both,
			warning: "the Service network of this cluster now has 10.203.0.0/24 as well (the API)",
			granted: "10.203.0.0/24",
		},
		{
			name: "a new pod range", discovered: both, pods: []string{"10.111.0.0/16", "10.70.0.0/16"},
			services: []string{"10.101.0.0/16"},
			wantPods: "10.111.0.0/16,10.70.0.0/16", wantServices: "10.101.0.0/16", wantDiscovered: both,
			warning: "the pod network of this cluster now has 10.70.0.0/16 as well (the API)", granted: "10.70.0.0/16",
		},
		{
			name: "a range that contains the old one", discovered: both, pods: []string{"10.110.0.0/15"},
			services: []string{"10.101.0.0/16"},
			wantPods: "10.110.0.0/15", wantServices: "10.101.0.0/16", wantDiscovered: both,
			warning: "the pod network of this cluster now has 10.110.0.0/15 as well (the API)",
		},
		{
			name: "a range is not found any more, or this user may not see it", discovered: both,
			pods: []string{"10.111.0.0/16"}, services: []string{"10.203.0.0/24"},
			wantPods: "10.111.0.0/16", wantServices: "10.203.0.0/24,10.101.0.0/16", wantDiscovered: both,
			warning: "10.101.0.0/16 of the Service network is no longer found, and stays: specify --servicecidr to " +
				"give it up",
		},
		{
			name: "nothing is found any more", discovered: both,
			wantPods: "10.111.0.0/16", wantServices: "10.101.0.0/16", wantDiscovered: both,
		},
		{
			name: "the user chose the Service network", discovered: "clusterCIDR", pods: []string{"10.111.0.0/16"},
			services: []string{"10.101.0.0/16", "10.203.0.0/24"},
			wantPods: "10.111.0.0/16", wantServices: "10.101.0.0/16", wantDiscovered: "clusterCIDR",
			warning: "Submariner.spec.serviceCIDR 10.101.0.0/16 is used, although the Service network seems to be " +
				"10.101.0.0/16,10.203.0.0/24 (the API): specify --servicecidr to change it",
		},
		{
			name: "a version before the annotation has joined, and nothing has changed since",
			pods: []string{"10.111.0.0/16"}, services: []string{"10.101.0.0/16"},
			wantPods: "10.111.0.0/16", wantServices: "10.101.0.0/16", wantDiscovered: both,
		},
		{
			name: "a version before the annotation has joined, and it may have been the user's choice",
			pods: []string{"10.111.0.0/16"}, services: []string{"10.101.0.0/16", "10.203.0.0/24"},
			wantPods: "10.111.0.0/16", wantServices: "10.101.0.0/16", wantDiscovered: "clusterCIDR",
			warning: "specify --servicecidr to change it",
		},
		{
			name: "the user chooses now", discovered: both, specified: []string{"10.101.0.0/17"},
			pods: []string{"10.111.0.0/16"}, services: []string{"10.101.0.0/16"},
			wantPods: "10.111.0.0/16", wantServices: "10.101.0.0/17", wantDiscovered: "clusterCIDR",
			warning: "--servicecidr 10.101.0.0/17 is used, although",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := rejoined("10.111.0.0/16", "10.101.0.0/16", test.discovered)
			s.f.Network.Pods = found("the API", test.pods...)
			s.f.Network.Services = found("the API", test.services...)
			if test.specified != nil {
				s.Specified = []string{"servicecidr"}
				s.ServiceCIDRs = test.specified
			}
			p, err := s.plan()
			require.NoError(t, err)
			require.Equal(t, test.wantPods, p.Submariner.Spec.ClusterCIDR)
			require.Equal(t, test.wantServices, p.Submariner.Spec.ServiceCIDR)
			require.Equal(t, test.wantDiscovered, p.Submariner.Annotations[v1alpha1.DiscoveredAnnotation])
			if test.warning != "" {
				require.Contains(t, strings.Join(p.Warnings, "\n"), test.warning)
			}
			if test.granted != "" {
				require.Contains(t, p.Grant.Networks, netip.MustParsePrefix(test.granted))
			}
		})
	}
}

// All addresses of a node are compared, whichever comes last: the agents use the first that a
// device holds.
func TestAllAddressesOfANodeAreOutsideTheNetworks(t *testing.T) {
	for _, addresses := range [][]string{{"10.111.5.5", "10.100.3.11"}, {"10.100.3.11", "10.111.5.5"}} {
		s := normal()
		node := clustertest.Node("n1", addresses[0])
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{
			Type: corev1.NodeInternalIP, Address: addresses[1],
		})
		s.f.Nodes = []corev1.Node{node, clustertest.Node("n2", "10.89.1.2")}
		_, err := s.plan()
		require.ErrorContains(t, err,
			"10.111.5.5, the address of node n1, is in 10.111.0.0/16, the pod network of this cluster")
	}
}
