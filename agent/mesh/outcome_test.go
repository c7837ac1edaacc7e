package mesh_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "subctl/agent/mesh"
	"subctl/agent/mesh/members"
	"subctl/agent/mesh/report"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/dataplane"
)

// A detour that the kernel refuses is reported. It is no failure of a cable, nor of the node.
func TestDetourRefused(t *testing.T) {
	detour := dataplane.Detour{Table: dataplane.CableTable, Dst: netip.MustParsePrefix("10.1.0.0/16"), Hop: 1}
	p := Plan{
		Plan:    role.Plan{State: dataplane.State{detour.Key(): detour}},
		Traffic: Traffic{Using: map[string]role.Using{"west": {}}},
	}
	why := &dataplane.Failure{Key: detour.Key(), Err: errors.New("refused")}
	o := p.Outcome(
		time.Now(),
		nil,
		&dataplane.DriftError{
			Failures: []*dataplane.Failure{why},
			Affected: map[dataplane.Key][]*dataplane.Failure{why.Key: {why}},
		},
	)
	require.True(t, o.Contained)
	require.Empty(t, o.Broken)
	cs := report.Conditions(nil, p, o)
	require.Equal(t, role.ConditionSynced, cs[0].Type)
	require.Equal(t, metav1.ConditionFalse, cs[0].Status)
	require.Equal(t, "no detour through another gateway: refused", cs[0].Message)
}

// What the nodes of a cluster find about each other is reported; what cables find is in the
// connections.
func TestUnreachableNodes(t *testing.T) {
	found := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	down := role.Health{Status: submarinerv1.ConnectionError, Message: "it forwards nothing", By: "echo", Since: found}
	p := Plan{Mesh: &Mesh{Membership: members.Membership{Submariner: &v1alpha1.Submariner{}}}}
	of := func(h role.Healths) *metav1.Condition {
		return meta.FindStatusCondition(report.Conditions(nil, p, role.Outcome{Health: h}),
			role.ConditionNodesReachable)
	}
	require.Nil(
		t,
		of(
			role.Healths{
				"gateway/gw1":                          {Status: submarinerv1.Connected},
				"submariner-cable-west-172-18-0-2":     down,
				role.ProbeName("west", "vxlan-tunnel"): down,
			},
		),
	)
	c := of(role.Healths{"worker/w1": down, "gateway/gw2": down, "gateway/gw1": {Status: submarinerv1.Connected}})
	require.NotNil(t, c)
	require.True(t, role.Wrong(*c))
	require.Equal(t,
		"gateway \"gw2\", found by echo at 2026-03-01T12:00:00Z: it forwards nothing\nworker \"w1\", found by echo at 2026-03-01T12:00:00Z: it forwards nothing",
		c.Message)
}
