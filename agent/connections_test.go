package agent

import (
	"testing"

	"github.com/stretchr/testify/require"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/dataplane"
)

// Both ends of a pair that has no cable say which there should be, by which policy, and
// whose fault it is.
func TestPairWithoutACable(t *testing.T) {
	const missing = "strongSwan: there is no /usr/sbin/swanctl in the image"
	for _, test := range []struct {
		scenario, policy string
		engine           dataplane.Engine // of this gateway
		driver, why      string
	}{
		{"driver-missing-there", "", dataplane.Engine{Name: dataplane.EngineKernel}, "ipsec", "refused: cluster west does not offer ipsec"},
		{"driver-missing-there", "ipsec", dataplane.Engine{Name: dataplane.EngineKernel}, "ipsec", "refused: cable policy lab wants ipsec: cluster west does not offer ipsec"},
		{"driver-missing-here", "", dataplane.Engine{Missing: missing}, "ipsec", "refused: cluster east does not offer ipsec: this node has no IPsec: it lacks " + missing},
		{"driver-missing-here", "ipsec", dataplane.Engine{Missing: missing}, "ipsec", "refused: cable policy lab wants ipsec: cluster east does not offer ipsec: this node has no IPsec: it lacks " + missing},
		{"behind-nat", "vxlan", dataplane.Engine{}, "vxlan", "refused: cluster west is behind address translation, which a vxlan cable does not get through: use an encrypted driver, or join it with --natt=false if there is none"},
	} {
		t.Run(test.scenario+" "+test.policy, func(t *testing.T) {
			w := newWorld(t, Gateway{}, test.scenario)
			facts := w.Facts
			w.Facts = func() (dataplane.Facts, error) {
				f, err := facts()
				f.IPsec = test.engine
				return f, err
			}
			name := ""
			if test.policy != "" {
				w.policy(t, test.policy, "")
				name = "lab"
			}
			w.run(t)
			c := w.connection(t)
			require.Equal(t, submarinerv1.ConnectionError, c.Status)
			require.Equal(t, test.why, c.StatusMessage)
			require.Equal(t, []string{test.driver, name, ""}, []string{c.Driver, c.Policy, c.Device})
			require.NotContains(t, w.holds(t, dataplane.GatewayOwner), "vxlan")
		})
	}
}

// What pings say counts; where keys of before still carry the traffic, the cable's own
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
		{"connected, new settings refused", submarinerv1.Connected, dataplane.CableState{Up: true, Message: refused}, submarinerv1.Connected, "still under the settings of before: " + refused},
		{"no keys yet", "", dataplane.CableState{}, submarinerv1.Connecting, "no keys were agreed on with the other side yet"},
		{"no keys, known why", "", dataplane.CableState{Message: refused}, submarinerv1.Connecting, refused},
		{"no keys any more", submarinerv1.ConnectionError, dataplane.CableState{Message: refused}, submarinerv1.ConnectionError, refused},
		{"keys, no answer yet", "", dataplane.CableState{Up: true}, submarinerv1.Connecting, "waiting for the first answer to a ping"},
		{"keys, no answer any more", submarinerv1.ConnectionError, dataplane.CableState{Up: true}, submarinerv1.ConnectionError, "no answer"},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.state.Device, test.state.Peer = link.StateDevice, link.State
			v := &view{snap: Snapshot{Cables: []dataplane.CableState{test.state}}}
			health := map[string]Health{}
			if test.health != "" {
				health["west"] = Health{Status: test.health}
			}
			if test.health == submarinerv1.ConnectionError {
				health["west"] = Health{Status: test.health, Message: "no answer"}
			}
			status, message, _ := v.status(Plan{Probes: Probes{Targets: map[string]Target{"west": {}}}}, Outcome{Health: health}, c, link)
			require.Equal(t, test.status, status)
			require.Equal(t, test.message, message)
		})
	}
}
