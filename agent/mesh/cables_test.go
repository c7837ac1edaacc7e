package mesh_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "subctl/agent/mesh"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/internal/kubetest"
	"subctl/policy"
)

// A policy can give each of many pairs a VNI of its own: only so many become devices, and
// what is on other devices is not affected.
func TestDevicesOfPolicies(t *testing.T) {
	objects, err := txtar.ParseFile("../../testdata/scenarios/two-clusters.txtar")
	require.NoError(t, err)
	objs := kubetest.Decode(t, objects)
	p := &v1alpha1.CablePolicies{ObjectMeta: metav1.ObjectMeta{
		Name: "many", Namespace: submarinerv1.OperatorNamespace,
		Labels: map[string]string{submarinerv1.ClusterIDLabel: "c00", submarinerv1.ClusterSetLabel: "default"},
	}}
	for i := range 20 {
		id := fmt.Sprintf("c%02d", i)
		ip := fmt.Sprintf("10.89.3.%d", i+1)
		cable := fmt.Sprintf("submariner-cable-%s-10-89-3-%d", id, i+1)
		labels := map[string]string{submarinerv1.ClusterIDLabel: id}
		objs = append(objs, &submarinerv1.Cluster{
			ObjectMeta: metav1.ObjectMeta{
				Name:        id,
				Namespace:   p.Namespace,
				Labels:      labels,
				Annotations: map[string]string{submarinerv1.ClusterSetsAnnotation: submarinerv1.DefaultClusterSet},
			}, Spec: submarinerv1.ClusterSpec{ClusterID: id},
		})
		objs = append(objs, &submarinerv1.Endpoint{
			ObjectMeta: metav1.ObjectMeta{Name: id + "-" + cable, Namespace: p.Namespace, Labels: labels},
			Spec: submarinerv1.EndpointSpec{
				ClusterID: id,
				CableName: cable,
				Hostname:  "gw",
				PrivateIP: ip,
				Backend:   "vxlan",
				Subnets:   []string{fmt.Sprintf("10.%d.0.0/16", 200+i)},
			},
		})
		if i == 19 {
			continue // it has no VNI of its own
		}
		p.ConnectionPolicies = append(p.ConnectionPolicies, v1alpha1.CablePolicySpec{
			LeftClusterSelector: v1alpha1.ClusterSelector{MatchLabels: labels}, CableDriver: "vxlan",
			CableOptions: &v1alpha1.CableOptions{
				Data: map[string]string{v1alpha1.CableCustomConfig: fmt.Sprintf("vxlanID: %d", 2000+i)},
			},
		})
	}
	s, err := FromReports("gw", append(objs, p)...)
	require.NoError(t, err)
	s.PoliciesDigest = policy.Digest([]*v1alpha1.CablePolicies{p})
	m, err := Of(s)
	require.NoError(t, err)
	var connected, refused []string
	for _, peer := range m.Cables.Wanted {
		connected = append(connected, peer.Cluster)
	}
	for _, r := range m.Cables.Refused {
		refused = append(refused, r.Spec.ClusterID)
		require.ErrorContains(t, r.Err, "requires a separate device, subvx-20")
		require.ErrorContains(t, r.Err, "policies can make a gateway create at most 16 devices")
	}
	require.Equal(t, []string{"c16", "c17", "c18"}, refused)
	require.Contains(t, connected, "c15")
	require.Contains(t, connected, "c19")
	require.Contains(t, connected, "west", "which no policy is about")
}
