package mesh_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	. "subctl/agent/mesh"
	"subctl/agent/mesh/members"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/dataplane/dataplanetest"
	"subctl/internal/kubetest"
)

// Connections of a worker wait for a gateway that is found down for a moment, though new ones do
// not choose it. If it stays down, they choose another one, with a plan that does not wait for a
// change.
func TestConnectionsWaitForAGateway(t *testing.T) {
	for name, test := range map[string]struct {
		since   time.Duration // ago
		unknown bool          // since when it is down
		flaps   bool
		gone    bool // connections choose again
		again   time.Duration
	}{
		"down just now":     {0, false, false, false, members.AwaitFor},
		"for a moment":      {members.AwaitFor - time.Millisecond, false, false, false, time.Millisecond},
		"for longer":        {members.AwaitFor, false, false, true, 0},
		"for a long time":   {time.Hour, false, false, true, 0},
		"nobody knows when": {0, true, false, true, 0},
		"again and again":   {0, false, true, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := FromReports(
				"worker",
				kubetest.Scenario(t, "../../testdata/scenarios/two-active-gateways.txtar")...)
			require.NoError(t, err)
			s.Now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			down := role.Health{Status: submarinerv1.ConnectionError, Flaps: test.flaps}
			if !test.unknown {
				down.Since = s.Now.Add(-test.since)
			}
			s.Health = role.Healths{role.GatewayProbe(cable.Node{Name: "gw2"}): down}
			p, err := PlanRoute(s)
			require.NoError(t, err)
			require.Equal(t, test.again, p.Again)
			unchosen := 0
			gone := 0
			for _, g := range dataplanetest.ReturnGateways(p.State) {
				if !g.Chosen {
					unchosen++
				}
				if g.Down {
					gone++
				}
			}
			require.Equal(t, 1, unchosen, "new connections do not choose it")
			require.Equal(t, test.gone, gone == 1)
		})
	}
}
