package mesh_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "subctl/agent/mesh"
	"subctl/agent/mesh/report"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
)

// atGateway returns the snapshot of a gateway with its report about the cables of its plan, and
// that report.
func atGateway(t *testing.T, s role.Snapshot) (role.Snapshot, *submarinerv1.Gateway) {
	t.Helper()
	s.Now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	p, err := PlanGateway(s)
	require.NoError(t, err)
	g := &submarinerv1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: s.Node, Namespace: submarinerv1.OperatorNamespace}}
	g.Status.Connections = report.Connections(p, role.Outcome{Now: s.Now, Health: s.Health})
	return with(s, g), g
}

// Where it cannot be Decided which cable a pair should have, as the policies have not been read
// from the broker, a pair keeps its cable also if the node of the only gateway boots, its agent
// restarts after that, and the node does not hold the cable at first. The cable must answer first.
func TestBootsBeforeItIsDecided(t *testing.T) {
	s, g := atGateway(t, withoutEndpoint(standbys(t, "gw2"), "gw"))
	role.Find[*submarinerv1.Cluster](s, "east").Annotations = nil
	s.Health, s.Memory = nil, RecallGateway("gw2", true, []*submarinerv1.Gateway{g}, s.Now)
	next := func(o role.Outcome) Plan {
		p, err := PlanGateway(s)
		require.NoError(t, err)
		require.Len(t, p.Installed, 2)
		s.Memory = Remember(s.Memory, p, o)
		s, g = atGateway(t, s)
		return p
	}
	for range 3 { // the report of the first plan has no cable that carries traffic
		require.Empty(t, next(role.Outcome{}).Using)
		require.Len(t, s.Memory.Former, 2)
		s.Memory = RecallGateway("gw2", false, []*submarinerv1.Gateway{g}, s.Now)
	}
	s.Health = answering(s)
	refused := errors.New("refused")
	require.Len(t, next(role.Outcome{Broken: map[string]error{westCable: refused, west2Cable: refused}}).Using, 2)
	require.Empty(t, s.Memory.Using)
	s.Health = nil
	require.Empty(t, next(role.Outcome{}).Using)
	s.Health = answering(s)
	require.Len(t, next(role.Outcome{}).Using, 2)
	require.Empty(t, s.Memory.Former)
}

// A gateway agent that starts while another gateway is down does not use that gateway before its
// probes find that it is up, as the kernel does not. It reports what its predecessor has found, and
// its prober goes on with that. Echoes find nothing if the other gateway has gone back to a version
// that may be older than echoes: then pings decide.
func TestRecallOfACableThatIsDown(t *testing.T) {
	for by, siblings := range map[string]map[string]string{
		"echo": {submarinerv1.BackendSiblings: "true"},
		"ping": nil,
	} {
		t.Run(by, func(t *testing.T) { testRecallOfACableThatIsDown(t, siblings, by) })
	}
}

func testRecallOfACableThatIsDown(t *testing.T, announced map[string]string, by string) {
	const over = westCable + " over vxlan-tunnel"
	s := standbys(t, "gw")
	for _, e := range role.List[*submarinerv1.Endpoint](s) {
		if e.Spec.CableName == westCable {
			e.Spec.BackendConfig = announced
		}
	}
	before, err := PlanGateway(s)
	require.NoError(t, err)
	s.Memory.Using = before.Using
	found := time.Date(2026, 3, 1, 11, 59, 0, 0, time.UTC)
	s.Health[over] = role.Health{Status: submarinerv1.ConnectionError, Message: "lost", Since: found, By: "echo"}
	s, g := atGateway(t, s)
	s.Memory = RecallGateway("gw", false, []*submarinerv1.Gateway{g}, s.Now)
	for _, step := range []struct {
		name string
		own  submarinerv1.ConnectionStatus // what the new agent has found; empty: it has not pinged yet
		down bool
	}{
		{"not pinged yet", "", true},
		{"pinged", submarinerv1.Connecting, true},
		{"is up", submarinerv1.Connected, false},
		{"is pinged anew", submarinerv1.Connecting, false},
	} {
		s.Health = role.Healths{}
		if step.own != "" {
			s.Health[over] = role.Health{Status: step.own}
		}
		p, err := PlanGateway(s)
		require.NoError(t, err)
		require.Equal(t, step.down, !slices.Contains(carriers(p), westCable), step.name)
		gw, _ := reported(t, s)
		c := gw.Status.Connections[0]
		require.Equal(t, westCable, c.Endpoint.CableName)
		if step.down {
			require.Equal(t, []any{submarinerv1.ConnectionError, "lost", by, found},
				[]any{c.Status, c.StatusMessage, c.DetectedBy, c.DetectedAt.UTC()}, step.name)
		}
		require.Equal(t, step.down, c.DetectedBy != "", step.name)
		require.Equal(t, step.down, p.Probes.Known[over].By == by, step.name)
		s.Memory.Using = p.Using
		s.Memory.Down = p.Probes.Known
	}
}
