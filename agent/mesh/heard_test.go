package mesh

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
		var s Snapshot
		hear := func(before Heard, reporting ...string) (outdated []string) {
			for _, node := range reporting {
				reports[node] = &submarinerv1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: node}}
				reports[node].SetReportedAt(now.Add(clocks[node]))
			}
			s = NewSnapshot("ahead", reports["ahead"], reports["behind"], reports["right"])
			s.Now = now
			s.Hear(before)
			for node := range clocks {
				if s.outdated(node) {
					outdated = append(outdated, node)
				}
			}
			return outdated
		}
		all := []string{"ahead", "behind", "right"}
		others := slices.DeleteFunc(slices.Clone(all), func(node string) bool { return node == dead })
		for range 10 {
			require.Empty(t, hear(s.Heard, all...))
			now = now.Add(heartbeat)
		}
		for range 2 {
			require.Empty(t, hear(s.Heard, others...), "not for long")
			now = now.Add(heartbeat)
		}
		require.Equal(t, []string{dead}, hear(s.Heard, others...))
		require.Equal(t, deadAfter, s.ReportAge(dead))
		require.Zero(t, s.ReportAge(others[0]))

		now = now.Add(time.Hour)
		require.Equal(t, []string{dead}, hear(s.Heard), "the API server cannot be reached")
		require.Empty(t, hear(nil), "another agent")
		now = now.Add(deadAfter)
		require.Equal(t, []string{dead}, hear(s.Heard, others...))
		require.Empty(t, hear(s.Heard, all...), "it is back")
	}
}

// A gateway reports every few seconds, also if its clock was set back.
func TestHeartbeat(t *testing.T) {
	for since, want := range map[time.Duration]bool{
		0:                       false,
		heartbeat - time.Second: false,
		heartbeat:               true,
		-time.Second:            true,
		-time.Hour:              true,
	} {
		s := withoutEndpoints(t)
		s.Standing = Standing{Active: true}
		reports := func() *submarinerv1.Gateway {
			p, err := planGateway(s)
			require.NoError(t, err)
			s.Memory.First = p.First
			for _, o := range reportGateway(s, p, Outcome{Now: s.Now}).Apply {
				if g, ok := o.(*submarinerv1.Gateway); ok {
					return g
				}
			}
			return nil
		}
		first := reports()
		require.NotNil(t, first)
		s = s.with(first)
		s.Now = s.Now.Add(since)
		require.Equal(t, want, reports() != nil, since.String())
	}
}
