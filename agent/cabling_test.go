package agent

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/cable/vxlan"
)

// A pair moves from one VXLAN device to another: the simplest change of a cable.
func TestPairsChangeTheirCable(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	old := Using{Driver: vxlan.Name, Device: "vxlan-tunnel"}
	want := cable.Config{"vxlanID": "2000"}
	up := map[string]Health{"west over subvx-2000": {Status: submarinerv1.Connected}}
	down := map[string]Health{"west over subvx-2000": {Status: submarinerv1.Connecting}}
	for _, test := range []struct {
		name   string
		using  map[string]Using
		health map[string]Health
		drop   bool // the peer offers the old driver no more
		after  time.Duration
		carry  string   // the device that carries the traffic
		idle   []string // devices that are up beside it
	}{
		{name: "the first cable is used at once", carry: "subvx-2000"},
		{name: "the new one waits until it was probed", using: map[string]Using{"west": old}, carry: "vxlan-tunnel", idle: []string{"subvx-2000"}},
		{name: "and while it does not answer", using: map[string]Using{"west": old}, health: down, carry: "vxlan-tunnel", idle: []string{"subvx-2000"}},
		{name: "then it takes over, and the old one stays a while", using: map[string]Using{"west": old}, health: up, carry: "subvx-2000", idle: []string{"vxlan-tunnel"}},
		{
			name:  "also when it fails meanwhile",
			using: map[string]Using{"west": {Driver: vxlan.Name, Device: "subvx-2000", Config: want, Since: start, Before: &old}},
			after: keptFor - time.Second, health: down, carry: "subvx-2000", idle: []string{"vxlan-tunnel"},
		},
		{
			name:  "and then goes",
			using: map[string]Using{"west": {Driver: vxlan.Name, Device: "subvx-2000", Config: want, Since: start, Before: &old}},
			after: keptFor, carry: "subvx-2000",
		},
		{name: "an agent that has just started knows it by its device", using: map[string]Using{"west": {Driver: vxlan.Name, Device: "subvx-2000"}}, carry: "subvx-2000"},
		{name: "what it cannot make again is given up", using: map[string]Using{"west": {Driver: vxlan.Name, Device: "subvx-3000"}}, carry: "subvx-2000"},
		{name: "what is not offered any more goes at once", using: map[string]Using{"west": {Driver: "gre"}}, carry: "subvx-2000"},
		{name: "what the peer does not offer any more goes at once", using: map[string]Using{"west": old}, drop: true, carry: ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			peer := cable.Peer{
				Gateway: cable.Gateway{Name: "west", Cluster: "west", PrivateIP: netip.MustParseAddr("10.89.2.11"), Drivers: []string{vxlan.Name}},
				Config:  want, Shared: want,
			}
			v := &view{
				snap: Snapshot{Now: start.Add(test.after), Using: test.using, Health: test.health},
				sub:  &v1alpha1.Submariner{}, offer: []cable.Driver{drivers.Find(vxlan.Name)},
			}
			if !test.drop {
				v.peers = []cable.Cable{{Peer: peer, Driver: drivers.Find(vxlan.Name)}}
			}
			cables, next := v.cablings()
			var carry string
			var idle []string
			for _, c := range cables {
				if c.Idle {
					idle = append(idle, c.Device())
					continue
				}
				require.Empty(t, carry, "one cable carries the traffic")
				carry = c.Device()
			}
			require.Equal(t, test.carry, carry)
			require.Equal(t, test.idle, idle)
			if carry != "" {
				require.Equal(t, carry, vxlan.Driver{}.Device(next["west"].Config), "what is in use is handed on")
			}
		})
	}
}

// Whatever happens to the probes, a pair that was connected has exactly one cable
// that carries traffic, and no change undoes itself.
func TestChangeIsNeverUndone(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	using := map[string]Using{"west": {Driver: vxlan.Name, Device: "vxlan-tunnel"}}
	want := cable.Config{"vxlanID": "2000"}
	peer := cable.Peer{
		Gateway: cable.Gateway{Name: "west", Cluster: "west", PrivateIP: netip.MustParseAddr("10.89.2.11"), Drivers: []string{vxlan.Name}},
		Config:  want, Shared: want,
	}
	moved := false
	for i := range 100 {
		now = now.Add(300 * time.Millisecond)
		health := map[string]Health{}
		if i%7 == 3 {
			health["west over subvx-2000"] = Health{Status: submarinerv1.Connected}
		}
		v := &view{
			snap: Snapshot{Now: now, Using: using, Health: health}, sub: &v1alpha1.Submariner{},
			offer: drivers.All(), peers: []cable.Cable{{Peer: peer, Driver: drivers.Find(vxlan.Name)}},
		}
		var cables []cable.Cable
		cables, using = v.cablings()
		for _, c := range cables {
			if !c.Idle {
				require.False(t, moved && c.Device() == "vxlan-tunnel", "step %d went back", i)
				moved = moved || c.Device() == "subvx-2000"
			}
		}
	}
	require.True(t, moved)
	require.Nil(t, using["west"].Before, "the old cable is gone in the end")
}
