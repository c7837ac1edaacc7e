package mesh_test

import (
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

// A gateway is dead if its report stays the same while others change, whatever the clocks of the
// gateways say. An agent that has just started takes none for dead.
func TestOutdated(t *testing.T) {
	// compared with the one of this agent
	clocks := map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour, "right": 0}
	for dead := range clocks {
		now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		reports := map[string]*submarinerv1.Gateway{}
		var s role.Snapshot
		hear := func(before role.ReportTimes, reporting ...string) (outdated []string) {
			for _, node := range reporting {
				reports[node] = &submarinerv1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: node}}
				reports[node].SetReportedAt(now.Add(clocks[node]))
			}
			s = role.NewSnapshot("ahead", reports["ahead"], reports["behind"], reports["right"])
			s.Now = now
			s.NoteReports(before)
			for node := range clocks {
				if s.Outdated(node) {
					outdated = append(outdated, node)
				}
			}
			return outdated
		}
		all := []string{"ahead", "behind", "right"}
		others := slices.DeleteFunc(slices.Clone(all), func(node string) bool { return node == dead })
		for range 10 {
			require.Empty(t, hear(s.ReportTimes, all...))
			now = now.Add(role.Heartbeat)
		}
		for range 2 {
			require.Empty(t, hear(s.ReportTimes, others...), "not for long")
			now = now.Add(role.Heartbeat)
		}
		require.Equal(t, []string{dead}, hear(s.ReportTimes, others...))
		require.Equal(t, role.DeadAfter, s.ReportAge(dead))
		require.Zero(t, s.ReportAge(others[0]))

		now = now.Add(time.Hour)
		require.Equal(t, []string{dead}, hear(s.ReportTimes), "the API server cannot be reached")
		require.Empty(t, hear(nil), "another agent")
		now = now.Add(role.DeadAfter)
		require.Equal(t, []string{dead}, hear(s.ReportTimes, others...))
		require.Empty(t, hear(s.ReportTimes, all...), "it is back")
	}
}

// A gateway reports every few seconds, also if its clock was set back.
func TestHeartbeat(t *testing.T) {
	for since, want := range map[time.Duration]bool{
		0:                            false,
		role.Heartbeat - time.Second: false,
		role.Heartbeat:               true,
		-time.Second:                 true,
		-time.Hour:                   true,
	} {
		s := withoutEndpoints(t)
		s.Standing = role.Standing{Active: true}
		reports := func() *submarinerv1.Gateway {
			p, err := PlanGateway(s)
			require.NoError(t, err)
			s.Memory.First = p.First
			for _, o := range report.Gateway(s, p, role.Outcome{Now: s.Now}).Apply {
				if g, ok := o.(*submarinerv1.Gateway); ok {
					return g
				}
			}
			return nil
		}
		first := reports()
		require.NotNil(t, first)
		s = with(s, first)
		s.Now = s.Now.Add(since)
		require.Equal(t, want, reports() != nil, since.String())
	}
}
