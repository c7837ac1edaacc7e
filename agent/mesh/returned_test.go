package mesh_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/mesh/members"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
)

// A gateway that was taken over gets no answers to addresses of the others, nor to what is outside
// the global network.
func TestReturnedAddresses(t *testing.T) {
	endpoint := func(node string, ips ...string) *submarinerv1.Endpoint {
		return &submarinerv1.Endpoint{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: submarinerv1.EndpointSpec{
			ClusterID: "east", Hostname: node, Subnets: []string{"242.1.0.0/16", "10.0.0.0/8"}, AllocatedIPs: ips,
		}}
	}
	m := members.Membership{
		Submariner: &v1alpha1.Submariner{Spec: v1alpha1.SubmarinerSpec{ClusterID: "east"}},
		Own:        cable.Networks{Global: []netip.Prefix{netip.MustParsePrefix("242.1.0.0/16")}},
	}
	m.ReadClusters(role.NewSnapshot("a",
		endpoint("a", "242.1.0.2", "242.1.0.1"),
		endpoint("b", "242.1.0.1", "242.1.0.3"),
		endpoint("c", "242.1.0.4", "10.0.0.1"),
		endpoint("d"),
	))
	require.Equal(t, map[string][]netip.Addr{
		"a": {
			netip.MustParseAddr("242.1.0.1"),
			netip.MustParseAddr("242.1.0.2"),
		}, "b": {netip.MustParseAddr("242.1.0.3")},
	}, m.Returned())
}
