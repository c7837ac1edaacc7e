package agent

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/mesh"
	"subctl/agent/mesh/members"
	"subctl/agent/role"
	"subctl/agent/roles"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
	"subctl/dataplane/kernel"
	"subctl/internal/nstest"
	"subctl/policy"
)

// gatewayOf returns the gateway agent of a side. A test runs its loop.
type gatewayOf struct {
	*side
	memory role.Memory
	health map[string]role.Health
	report *submarinerv1.Gateway
}

// pass runs the loop once, knowing another cluster, and then pings what the plan asks for. What
// does not answer has not answered for too long.
func (g *gatewayOf) pass(t *testing.T, other *side) submarinerv1.Connection {
	t.Helper()
	e := other.endpoint()
	e.Labels = map[string]string{submarinerv1.ClusterIDLabel: other.id}
	objs := append(
		g.objects(),
		e,
		&submarinerv1.Cluster{
			ObjectMeta: metav1.ObjectMeta{
				Name:        other.id,
				Labels:      e.Labels,
				Annotations: map[string]string{submarinerv1.ClusterSetsAnnotation: submarinerv1.DefaultClusterSet},
			},
			Spec: submarinerv1.ClusterSpec{ClusterID: other.id},
		},
	)
	gw := g.nodes["gw"]
	agentRole := roles.Gateway()
	snap := role.NewSnapshot("gw", objs...)
	var p role.Plan
	gw.Do(func() {
		k, err := kernel.ReadFacts()
		require.NoError(t, err)
		members.SetFacts(&snap, k)
		snap.Now = time.Now()
		snap.Standing = active("gw")
		snap.PodIPMissing = false
		snap.Memory = g.memory
		snap.Health = g.health
		snap.PoliciesDigest = policy.Digest(nil)
		p, err = agentRole.Plan(snap)
		require.NoError(t, err)
		syncNode(t, agentRole.Owner, p.State)
	})
	g.memory = role.Memory{Using: mesh.PlanOf(p).Using, First: mesh.PlanOf(p).First}
	g.health = map[string]role.Health{}
	for name, target := range p.Probes.Targets {
		h := role.Health{Status: submarinerv1.Connected}
		if _, err := gw.Try(fmt.Sprintf("ping -c1 -W1 -I %v %v", target.From, target.IP)); err != nil {
			h.Status = submarinerv1.ConnectionError
		}
		g.health[name] = h
	}
	for _, o := range agentRole.Report(snap, p, role.Outcome{Now: snap.Now, Health: g.health, Contained: true}).Apply {
		if report, ok := o.(*submarinerv1.Gateway); ok {
			g.report = report
		}
	}
	require.Len(t, g.report.Status.Connections, 1)
	return g.report.Status.Connections[0]
}

// One end drops the cable that carries the traffic, and the other end does not learn of it. The
// other end stops sending pods' packets, in clear text or in the cable, and goes on once the cable
// is back.
func TestOneEndDropsItsCable(t *testing.T) {
	fabric := newFabric(t)
	east := newSide(t, fabric, 1, "east")
	west := newSide(t, fabric, 2, "west")
	east.sync(t, west)
	west.sync(t, east)
	g := &gatewayOf{side: east}
	for range 3 { // the first cable, its answer, and the first health check
		g.pass(t, west)
	}
	require.Equal(t, submarinerv1.Connected, g.pass(t, west).Status)
	reach(t, east, "gw", west, "gw")

	west.nodes["gw"].Do(func() { syncNode(t, dataplane.GatewayOwner, dataplane.State{}) })
	for range 3 { // health checks fail, then the cable itself does
		g.pass(t, west)
	}
	c := g.pass(t, west)
	require.True(t, c.Silent)
	require.Equal(t, submarinerv1.ConnectionError, c.Status)
	require.Contains(t, c.StatusMessage,
		"no traffic is sent until the cable answers, as the other end may use another one")
	dst := west.podIP("gw")
	sight := fabric.Watch("br1")
	_, err := east.pods["gw"].Try(pings(dst))
	require.Error(t, err)
	g.pass(t, west)
	require.False(t, sight().Marker)

	west.sync(t, east)
	for range 2 {
		g.pass(t, west)
	}
	require.Equal(t, submarinerv1.Connected, g.pass(t, west).Status)
	sight = fabric.Watch("br1")
	east.pods["gw"].Run(pings(dst))
	require.True(t, sight().Marker, "the capture sees such packets")
}

// pings is a command that sends three packets with nstest.Marker.
func pings(dst string) string {
	return fmt.Sprintf("ping -c3 -i0.2 -W1 -s100 %s %s", nstest.Pattern, dst)
}
