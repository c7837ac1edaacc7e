package mesh_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	. "subctl/agent/mesh"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/cable/vxlan"
)

// A pair moves from one VXLAN device to another: the simplest change of a cable.
func TestPairsChangeTheirCable(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	old := role.Using{Driver: vxlan.Name, Device: "vxlan-tunnel"}
	want := cable.Config{"vxlanID": "2000"}
	up := map[string]role.Health{"west over subvx-2000": {Status: submarinerv1.Connected}}
	down := map[string]role.Health{"west over subvx-2000": {Status: submarinerv1.Connecting}}
	for _, test := range []struct {
		name   string
		using  map[string]role.Using
		health map[string]role.Health
		drop   bool // the peer offers the old driver no more
		after  time.Duration
		carry  string   // the device that carries the traffic
		idle   []string // devices that are up beside it
	}{
		{name: "the first cable waits until it was probed", idle: []string{"subvx-2000"}},
		{name: "then it is used", health: up, carry: "subvx-2000"},
		{
			name: "a new gateway uses it at once where others use the same",
			using: map[string]role.Using{
				"west-2": {Cluster: "west", Driver: vxlan.Name, Device: "subvx-2000", Config: want, Shared: want},
			},
			carry: "subvx-2000",
		},
		{
			name:  "and waits where they use another",
			using: map[string]role.Using{"west-2": {Cluster: "west", Driver: vxlan.Name, Device: "vxlan-tunnel"}},
			idle:  []string{"subvx-2000"},
		},
		{
			name:  "the new one waits until it was probed",
			using: map[string]role.Using{"west": old},
			carry: "vxlan-tunnel",
			idle:  []string{"subvx-2000"},
		},
		{
			name:   "and while it does not answer",
			using:  map[string]role.Using{"west": old},
			health: down,
			carry:  "vxlan-tunnel",
			idle:   []string{"subvx-2000"},
		},
		{
			name:   "then it takes over, and the old one stays a while",
			using:  map[string]role.Using{"west": old},
			health: up,
			carry:  "subvx-2000",
			idle:   []string{"vxlan-tunnel"},
		},
		{
			name: "also when it fails meanwhile",
			using: map[string]role.Using{
				"west": {Driver: vxlan.Name, Device: "subvx-2000", Config: want, Since: start, Before: &old},
			},
			after: OldCableGrace - time.Second, health: down, carry: "subvx-2000", idle: []string{"vxlan-tunnel"},
		},
		{
			name: "and then goes",
			using: map[string]role.Using{
				"west": {Driver: vxlan.Name, Device: "subvx-2000", Config: want, Since: start, Before: &old},
			},
			after: OldCableGrace, carry: "subvx-2000",
		},
		{
			name: "a change back to it waits for another answer",
			using: map[string]role.Using{
				"west": {
					Driver: vxlan.Name,
					Device: "vxlan-tunnel",
					Since:  start,
					Before: &role.Using{Driver: vxlan.Name, Device: "subvx-2000", Config: want, Shared: want},
				},
			},
			after: OldCableGrace - time.Second, health: up, carry: "vxlan-tunnel", idle: []string{"subvx-2000"},
		},
		{
			name:  "an agent that has just started knows it by its device",
			using: map[string]role.Using{"west": {Driver: vxlan.Name, Device: "subvx-2000"}},
			carry: "subvx-2000",
		},
		{
			name:  "what it cannot make again is given up",
			using: map[string]role.Using{"west": {Driver: vxlan.Name, Device: "subvx-3000"}},
			idle:  []string{"subvx-2000"},
		},
		{
			name:  "what is not offered any more goes at once",
			using: map[string]role.Using{"west": {Driver: "gre"}},
			idle:  []string{"subvx-2000"},
		},
		{
			name:  "what the peer does not offer any more goes at once",
			using: map[string]role.Using{"west": old},
			drop:  true,
			carry: "",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			peer := cable.Peer{
				Gateway: cable.Gateway{
					Name:      "west",
					Cluster:   "west",
					PrivateIP: netip.MustParseAddr("10.89.2.11"),
					Drivers:   []string{vxlan.Name},
				},
				Config: want, Shared: want,
			}
			m := &Mesh{
				Snapshot: role.Snapshot{
					Now: start.Add(test.after), Memory: role.Memory{Using: test.using},
					Health: test.health,
				},
				Offer: Offer{Drivers: []cable.Driver{drivers.Find(vxlan.Name)}},
			}
			if !test.drop {
				m.Cables.Wanted = []cable.Cable{{Peer: peer, Driver: drivers.Find(vxlan.Name)}}
			}
			traffic := Direct(m)
			var carry string
			var idle []string
			for _, c := range traffic.Installed {
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
				require.Equal(t, carry, vxlan.Driver{}.Device(traffic.Using["west"].Config),
					"what is in use is handed on")
			}
		})
	}
}

// The other end may remove the cable that is kept up while this end changes back to it. Only a
// ping from after both ends know the decision shows that it is there to stay.
func TestChangeBack(t *testing.T) {
	for after, proof := range map[time.Duration]time.Duration{
		// kept up here
		time.Second:                      Decided,
		4 * time.Second:                  Decided,
		6 * time.Second:                  DecidedLate,
		OldCableGrace - time.Millisecond: DecidedLate,
		OldCableGrace:                    DecidedLate,
		OldCableGrace + time.Second:      DecidedLate,
		OldCableGrace + 3*time.Second:    0, // gone here
	} {
		t.Run(after.String(), func(t *testing.T) { changeBack(t, after, proof) })
	}
}

// changeBack changes a pair back, some time after the change, to a cable that is pinged after
// another time first.
func changeBack(t *testing.T, after, proof time.Duration) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	want := cable.Config{"vxlanID": "2000"}
	kept := role.Using{Driver: vxlan.Name, Device: "subvx-2000", Config: want, Shared: want}
	peer := cable.Peer{
		Gateway: cable.Gateway{
			Name:      "west",
			Cluster:   "west",
			PrivateIP: netip.MustParseAddr("10.89.2.11"),
			Drivers:   []string{vxlan.Name},
		},
		Config: want, Shared: want,
	}
	m := &Mesh{
		Snapshot: role.Snapshot{
			Now: now, Health: map[string]role.Health{"west over subvx-2000": {Status: submarinerv1.Connected}},
			Memory: role.Memory{
				Using: map[string]role.Using{
					"west": {Driver: vxlan.Name, Device: "vxlan-tunnel", Since: now.Add(-after), Before: &kept},
				},
			},
		},
		Offer: Offer{
			Drivers: drivers.All(),
		}, Cables: Cables{Wanted: []cable.Cable{{Peer: peer, Driver: drivers.Find(vxlan.Name)}}},
	}
	if after >= OldCableGrace {
		was := m.Snapshot.Memory.Using["west"]
		was.Before = nil
		m.Snapshot.Health = nil // it is pinged no more
		m.Snapshot.Memory.Using["west"] = was
	}
	traffic := Direct(m)
	require.Equal(t, "vxlan-tunnel", traffic.Using["west"].Device, "the answers so far were to earlier pings")
	plan := Plan{Traffic: traffic, Mesh: m, Links: make([]cable.Link, len(traffic.Installed))}
	m.Membership.Submariner = &v1alpha1.Submariner{}
	first := plan.ProbesOfCables().Targets["west over subvx-2000"].First
	if proof == 0 {
		require.Zero(t, first)
	} else {
		require.Equal(t, now.Add(proof), first)
	}

	m.Snapshot.Now = now.Add(2 * DecidedLate)
	m.Snapshot.Memory.Using = traffic.Using
	m.Snapshot.Health = map[string]role.Health{"west over subvx-2000": {Status: submarinerv1.Connected}}
	require.Equal(t, "subvx-2000", Direct(m).Using["west"].Device, "it has answered since")
}

// Whatever happens to the probes, a pair that was connected has exactly one cable
// that carries traffic, and no change undoes itself.
func TestChangeIsNeverUndone(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	using := map[string]role.Using{"west": {Driver: vxlan.Name, Device: "vxlan-tunnel"}}
	want := cable.Config{"vxlanID": "2000"}
	peer := cable.Peer{
		Gateway: cable.Gateway{
			Name:      "west",
			Cluster:   "west",
			PrivateIP: netip.MustParseAddr("10.89.2.11"),
			Drivers:   []string{vxlan.Name},
		},
		Config: want, Shared: want,
	}
	moved := false
	for i := range 100 {
		now = now.Add(300 * time.Millisecond)
		health := map[string]role.Health{}
		if i%7 == 3 {
			health["west over subvx-2000"] = role.Health{Status: submarinerv1.Connected}
		}
		m := &Mesh{
			Snapshot: role.Snapshot{Now: now, Memory: role.Memory{Using: using}, Health: health},
			Offer: Offer{
				Drivers: drivers.All(),
			}, Cables: Cables{Wanted: []cable.Cable{{Peer: peer, Driver: drivers.Find(vxlan.Name)}}},
		}
		traffic := Direct(m)
		using = traffic.Using
		for _, c := range traffic.Installed {
			if !c.Idle {
				require.False(t, moved && c.Device() == "vxlan-tunnel", "step %d went back", i)
				moved = moved || c.Device() == "subvx-2000"
			}
		}
	}
	require.True(t, moved)
	require.Nil(t, using["west"].Before, "the old cable is gone in the end")
}

// A Gateway that somebody wrote by hand gives an agent nothing to work with that its
// own drivers would not accept.
func TestUsingFromReport(t *testing.T) {
	good := submarinerv1.Connection{
		Endpoint:       submarinerv1.EndpointSpec{ClusterID: "west", CableName: "west"},
		Status:         submarinerv1.ConnectionError,
		Driver:         "vxlan",
		Device:         "subvx-2000",
		Policy:         "lab",
		Settings:       map[string]string{"vxlanID": "2000"},
		PolicySettings: map[string]string{"vxlanID": "2000"},
	}
	for _, test := range []struct {
		name   string
		change func(*submarinerv1.Connection)
		adopt  bool
	}{
		{"a cable that does not answer", func(*submarinerv1.Connection) {}, true},
		{"a refused endpoint", func(c *submarinerv1.Connection) { c.Device = "" }, false},
		{"an unknown driver", func(c *submarinerv1.Connection) { c.Driver = "gre" }, false},
		{
			"an unknown setting",
			func(c *submarinerv1.Connection) { c.Settings = map[string]string{"colour": "red"} },
			false,
		},
		{
			"a setting out of range",
			func(c *submarinerv1.Connection) { c.Settings = map[string]string{"vxlanID": "0"} },
			false,
		},
		{
			"a policy's setting out of range",
			func(c *submarinerv1.Connection) { c.PolicySettings = map[string]string{"vxlanID": "0"} },
			false,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := good
			test.change(&c)
			g := &submarinerv1.Gateway{
				Status: submarinerv1.GatewayStatus{
					HAStatus:    submarinerv1.HAStatusActive,
					Connections: []submarinerv1.Connection{c},
				},
			}
			got := UsingIn(g, time.Time{})
			if !test.adopt {
				require.Empty(t, got)
				return
			}
			u := got["west"]
			require.Equal(t, [3]string{c.Driver, c.Device, c.Policy}, [3]string{u.Driver, u.Device, u.Policy})
			require.Equal(t, []cable.Config{c.Settings, c.PolicySettings}, []cable.Config{u.Config, u.Shared})
			g.Status.HAStatus = submarinerv1.HAStatusPassive
			require.Equal(t, got, UsingIn(g, time.Time{}), "a standby keeps its cables, too")
		})
	}
}
