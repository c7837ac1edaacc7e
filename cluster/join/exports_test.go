package join_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/api/submariner/v1alpha1"
	"subctl/broker/brokertest"
	"subctl/broker/trust"
)

// The namespaces from which a cluster may export are in its grant and in its Submariner, and stay
// when it joins again without the flag.
func TestExportNamespaces(t *testing.T) {
	s := normal()
	p, err := s.plan()
	require.NoError(t, err)
	require.Empty(t, p.Grant.ExportNamespaces)
	require.Empty(t, p.Submariner.Spec.ServiceDiscovery.ExportNamespaces)

	s.ExportNamespaces = []string{"team-*", "shop", "shop"}
	s.Specified = []string{"export-namespaces"}
	p, err = s.plan()
	require.NoError(t, err)
	require.Equal(t, []string{"shop", "team-*"}, p.Grant.ExportNamespaces)
	require.Equal(t, []string{"shop", "team-*"}, p.Submariner.Spec.ServiceDiscovery.ExportNamespaces)

	again := normal()
	again.f.Submariner = joined("west", "hub:6443")
	again.f.Submariner.Spec.ServiceDiscovery = &v1alpha1.ServiceDiscoverySpec{
		ClusterNames:     true,
		ExportNamespaces: []string{"shop"},
	}
	p, err = again.plan()
	require.NoError(t, err)
	require.Equal(t, []string{"shop"}, p.Grant.ExportNamespaces)
	require.Equal(t, []string{"shop"}, p.Submariner.Spec.ServiceDiscovery.ExportNamespaces)
	require.True(t, p.Submariner.Spec.ServiceDiscovery.ClusterNames)

	again.Specified = []string{"export-namespaces"} // --export-namespaces ""
	p, err = again.plan()
	require.NoError(t, err)
	require.Empty(t, p.Grant.ExportNamespaces)
	require.Empty(t, p.Submariner.Spec.ServiceDiscovery.ExportNamespaces)

	wrong := normal()
	wrong.ExportNamespaces = []string{"Shop", "a.b"}
	_, err = wrong.plan()
	require.ErrorContains(t, err, `--export-namespaces: "Shop" is neither the name of a namespace`)
	require.ErrorContains(t, err, `--export-namespaces: "a.b" is neither the name of a namespace`)

	invited := normal()
	invite(t, invited.file, trust.Invitation{
		Key: brokertest.Key("invitee").Public(), Cluster: "west", Gateways: 2, Sets: []string{"default"},
		ExportNamespaces: []string{"shop"}, Serial: 1, Expires: time.Now().Add(time.Hour).UnixMilli(),
	})
	p, err = invited.plan()
	require.NoError(t, err)
	require.Equal(t, []string{"shop"}, p.Grant.ExportNamespaces, "those of the invitation, where nobody specifies "+
		"others")
	require.Equal(t, []string{"shop"}, p.Submariner.Spec.ServiceDiscovery.ExportNamespaces)
}
