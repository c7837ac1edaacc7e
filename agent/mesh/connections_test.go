package mesh

import (
	"testing"

	"github.com/stretchr/testify/require"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/dataplane"
)

// The result of pings counts; where older keys still carry the traffic, the cable's own
// state tells that it is so.
func TestStatus(t *testing.T) {
	const refused = "NO_PROPOSAL_CHOSEN: both need one in common"
	link := cable.Link{State: "west", StateDevice: dataplane.IPsecDevice}
	c := cable.Cable{Peer: cable.Peer{Gateway: cable.Gateway{Name: "west"}}}
	for _, test := range []struct {
		name    string
		health  submarinerv1.ConnectionStatus // empty: not answered yet
		state   dataplane.CableState
		status  submarinerv1.ConnectionStatus
		message string
	}{
		{"connected", submarinerv1.Connected, dataplane.CableState{Up: true}, submarinerv1.Connected, ""},
		{"connected, new settings refused", submarinerv1.Connected, dataplane.CableState{Up: true, Message: refused}, submarinerv1.Connected, "still with the previous settings: " + refused},
		{"no keys yet", "", dataplane.CableState{}, submarinerv1.Connecting, "no keys were agreed on with the other side yet"},
		{"no keys, known why", "", dataplane.CableState{Message: refused}, submarinerv1.Connecting, refused},
		{"no keys any more", submarinerv1.ConnectionError, dataplane.CableState{Message: refused}, submarinerv1.ConnectionError, refused},
		{"keys, no answer yet", "", dataplane.CableState{Up: true}, submarinerv1.Connecting, "waiting for the first answer to a ping"},
		{"keys, no answer any more", submarinerv1.ConnectionError, dataplane.CableState{Up: true}, submarinerv1.ConnectionError, "no answer"},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.state.Device, test.state.Peer = link.StateDevice, link.State
			m := &Mesh{Snapshot: Snapshot{Cables: []dataplane.CableState{test.state}}}
			health := map[string]Health{}
			if test.health != "" {
				health["west"] = Health{Status: test.health}
			}
			if test.health == submarinerv1.ConnectionError {
				health["west"] = Health{Status: test.health, Message: "no answer"}
			}
			status, message, _ := m.status(Plan{Probes: Probes{Targets: map[string]Target{"west": {}}}}, Outcome{Health: health}, c, link)
			require.Equal(t, test.status, status)
			require.Equal(t, test.message, message)
		})
	}
}
