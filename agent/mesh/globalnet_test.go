package mesh_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	. "subctl/agent/mesh"
	"subctl/agent/mesh/members"
	"subctl/agent/mesh/report"
	"subctl/agent/role"
	"subctl/agent/roles"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/internal/kubetest"
)

// withGlobalnet returns the snapshot of a gateway whose cluster has the global network
// 242.0.0.0/16, or none if own is empty. The other cluster has the same pod and Service networks
// and, unless theirs is empty, a global network.
func withGlobalnet(t *testing.T, own, theirs string) role.Snapshot {
	file, err := txtar.ParseFile("../../testdata/scenarios/two-clusters.txtar")
	require.NoError(t, err)
	objs := kubetest.Decode(t, file)
	for _, o := range objs {
		switch o := o.(type) {
		case *v1alpha1.Submariner:
			o.Spec.GlobalCIDR = own
		case *submarinerv1.Cluster:
			if submarinerv1.IsCopy(o) {
				o.Spec.ServiceCIDR = []string{"10.101.0.0/16"}
				o.Spec.ClusterCIDR = []string{"10.111.0.0/16"}
				o.Spec.GlobalCIDR = []string{}
				if theirs != "" {
					o.Spec.GlobalCIDR = []string{theirs}
				}
			}
		case *submarinerv1.Endpoint:
			if submarinerv1.IsCopy(o) {
				o.Spec.Subnets = []string{"10.101.0.0/16", "10.111.0.0/16"}
				o.Spec.HealthCheckIP = ""
				if theirs != "" {
					o.Spec.Subnets = []string{theirs}
				}
			}
		}
	}
	s, err := FromReports("gw", objs...)
	require.NoError(t, err)
	s.Health = answering(s)
	s.Standing = role.Standing{Active: true, Speaker: true, Gateways: []string{"gw"}}
	return s
}

// A cluster with a global network announces nothing else, so that clusters with the same pod and
// Service networks are connected.
func TestOnlyTheGlobalNetworkIsAnnounced(t *testing.T) {
	s := withGlobalnet(t, "242.0.0.0/16", "242.1.0.0/16")
	p, err := PlanGateway(s)
	require.NoError(t, err)
	var cluster *submarinerv1.Cluster
	var endpoint *submarinerv1.Endpoint
	for _, o := range report.Gateway(s, p, role.Outcome{Now: s.Now}).Apply {
		switch o := o.(type) {
		case *submarinerv1.Cluster:
			cluster = o
		case *submarinerv1.Endpoint:
			endpoint = o
		}
	}
	require.NotNil(t, endpoint)
	require.Equal(t, []string{"242.0.0.0/16"}, endpoint.Spec.Subnets)
	require.NotContains(t, endpoint.Spec.HealthCheckIP, "10.111.", "nobody else can reach the pod network")
	require.NotNil(t, cluster)
	require.Equal(t, []string{"242.0.0.0/16"}, cluster.Spec.GlobalCIDR)
	require.Equal(t, []string{"10.101.0.0/16"}, cluster.Spec.ServiceCIDR)
	require.Equal(t, []string{"10.111.0.0/16"}, cluster.Spec.ClusterCIDR)

	state, err := roles.PlanNode(s)
	require.NoError(t, err)
	require.Contains(t, fate(state, "cali123", netip.MustParseAddr("242.1.7.7")), "group")
	for _, ip := range []string{"10.101.0.1", "10.111.2.7", "242.0.7.7"} {
		require.Equal(t, "main", fate(state, "cali123", netip.MustParseAddr(ip)), ip)
	}
}

// A cluster is not connected to one that announces what it uses itself, globally or locally, or the
// other way round.
func TestGlobalnetConflicts(t *testing.T) {
	for name, test := range map[string]struct{ own, theirs, err string }{
		"the same global network": {
			"242.0.0.0/16",
			"242.0.0.0/16",
			"subnet 242.0.0.0/16 overlaps this cluster's global network 242.0.0.0/16",
		},
		"part of the global network": {
			"242.0.0.0/16",
			"242.0.7.0/24",
			"subnet 242.0.7.0/24 overlaps this cluster's global network 242.0.0.0/16",
		},
		"own networks there, global here": {
			"242.0.0.0/16",
			"",
			"subnet 10.101.0.0/16 overlaps this cluster's Service network 10.101.0.0/16\nsubnet 10.111.0.0/16 overlaps this cluster's pod network 10.111.0.0/16",
		},
		"global there is a pod network here": {
			"242.0.0.0/16",
			"10.111.7.0/24",
			"subnet 10.111.7.0/24 overlaps this cluster's pod network 10.111.0.0/16",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := withGlobalnet(t, test.own, test.theirs)
			m, err := members.Read(s)
			require.NoError(t, err)
			a := Accept(s, m)
			require.Empty(t, a.Peers)
			require.Len(t, a.Refused, 1)
			require.EqualError(t, a.Refused[0].Err, test.err)
		})
	}
}
