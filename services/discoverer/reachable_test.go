package discoverer

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/services"
)

// A cluster is unreachable after half a second without connection, and reachable at once when it is
// back. If that repeats, it must be back for longer.
func TestReach(t *testing.T) {
	now := time.Unix(10000, 0)
	var r Reach
	var again time.Duration
	look := func(connected bool) bool {
		g := reachesOf(now, map[string]bool{"east": connected})
		s := role.NewSnapshot("n1", g)
		s.Now = now
		s.ReportTimes = role.ReportTimes{"gw": {At: now}}
		r, again = r.next(s, []services.Member{{ID: "east"}})
		return !r["east"].unreachable
	}
	require.LessOrEqual(t, downAfter, 600*time.Millisecond, "with gateways and kube-proxy, two seconds")
	require.True(t, look(true))
	require.Zero(t, again)
	require.True(t, look(false))
	require.Equal(t, downAfter, again)
	now = now.Add(downAfter / 2)
	require.True(t, look(true), "it was gone for less")
	require.True(t, look(false))
	now = now.Add(downAfter)
	require.False(t, look(false))
	require.Zero(t, again)
	require.True(t, look(true), "at once")

	for _, damp := range []time.Duration{2, 4, 8, 16, 32, 60, 60} {
		look(false)
		now = now.Add(downAfter)
		require.False(t, look(false))
		require.False(t, look(true))
		require.Equal(t, damp*time.Second, again)
		now = now.Add(again - 1)
		require.False(t, look(true))
		now = now.Add(1)
		require.True(t, look(true), damp)
	}
	now = now.Add(flapTime)
	look(false)
	now = now.Add(downAfter)
	require.False(t, look(false))
	require.True(t, look(true), "that was long ago")
}

// What no gateway has reported of late is not known, and what is not known makes no cluster
// unreachable.
func TestReachIsUnknown(t *testing.T) {
	now := time.Unix(10000, 0)
	members := []services.Member{{ID: "east"}}
	unreachable := func(change func(*submarinerv1.Gateway), age time.Duration) bool {
		g := reachesOf(now, map[string]bool{"east": false})
		change(g)
		s := role.NewSnapshot("n1", g)
		s.Now = now
		s.ReportTimes = role.ReportTimes{"gw": {At: now.Add(-age)}}
		out, _ := Reach(nil).next(s, members)
		return out["east"].unreachable
	}
	require.True(t, unreachable(func(*submarinerv1.Gateway) {}, 0), "an agent that starts knows it at once")
	require.False(t, unreachable(func(*submarinerv1.Gateway) {}, role.DeadAfter))
	require.False(t, unreachable(func(g *submarinerv1.Gateway) { g.Status.HAStatus = submarinerv1.HAStatusPassive }, 0))
	require.True(t, unreachable(func(g *submarinerv1.Gateway) { g.Status.Connections = nil }, 0))
	require.False(t, unreachable(func(g *submarinerv1.Gateway) {
		g.Status.Connections = nil
		g.Status.ConnectionsOmitted = 5
	}, 0), "it may be among those that are left out")
}

// While no gateway reports, nobody knows who is reachable: a cluster that was unreachable stays so,
// and another one does not become it. An agent that has just started says so.
func TestReachStaysWhileNobodyReports(t *testing.T) {
	now := time.Unix(10000, 0)
	members := []services.Member{{ID: "east"}, {ID: "north"}}
	var r Reach
	look := func(connected map[string]bool, age time.Duration) (again time.Duration) {
		s := role.NewSnapshot("n1", reachesOf(now, connected))
		s.Now = now
		s.ReportTimes = role.ReportTimes{"gw": {At: now.Add(-age)}}
		r, again = r.next(s, members)
		return again
	}
	require.Zero(t, look(map[string]bool{"north": true}, role.DeadAfter))
	require.Empty(t, r, "it is not known")
	look(map[string]bool{"north": true}, 0)
	now = now.Add(time.Hour)
	for _, connected := range []bool{false, true} {
		require.Zero(t, look(map[string]bool{"east": connected, "north": !connected}, role.DeadAfter))
		require.True(t, r["east"].unreachable)
		require.False(t, r["north"].unreachable)
	}
	look(map[string]bool{"east": true, "north": true}, 0)
	require.False(t, r["east"].unreachable, "at once")
}

// What of a cluster is not known is not known in imports, either.
func TestServicesReachIsUnknown(t *testing.T) {
	s := role.NewSnapshot("n1", append(importing(1), reachesOf(time.Unix(1000, 0), map[string]bool{"east": false}))...)
	s.Now = time.Unix(1000, 0)
	for age, unreachable := range map[time.Duration]bool{0: true, role.DeadAfter: false} {
		s.ReportTimes = role.ReportTimes{"gw": {At: s.Now.Add(-age)}}
		p, err := planServices(s)
		require.NoError(t, err)
		require.Equal(t, unreachable, p.Decisions.(*ServicePlan).Memory.Reach["east"].unreachable)
		_, known := p.Decisions.(*ServicePlan).Memory.Reach["east"]
		require.Equal(t, unreachable, known)
	}
}

// reachesOf returns the slim report of a gateway with connections to clusters.
func reachesOf(now time.Time, connected map[string]bool) *submarinerv1.Gateway {
	g := &submarinerv1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: "gw"}}
	g.Status.HAStatus = submarinerv1.HAStatusActive
	g.SetReportedAt(now)
	for id, is := range connected {
		c := submarinerv1.Connection{
			Endpoint: submarinerv1.EndpointSpec{ClusterID: id},
			Status:   submarinerv1.Connecting,
		}
		if is {
			c.Status = submarinerv1.Connected
		}
		g.Status.Connections = append(g.Status.Connections, c)
	}
	return Role().Slim(g).(*submarinerv1.Gateway)
}
