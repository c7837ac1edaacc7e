package ipsec

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/cable"
	"subctl/cable/vxlan"
	"subctl/dataplane"
	"subctl/internal/nstest"
)

// A pair that changes from VXLAN to IPsec and back loses nothing: both cables are up until the new
// one answers at both ends, and traffic moves at one end after the other. So does a pair that
// changes to VXLAN inside IPsec and back, as when a cluster gets several gateways.
func TestChange(t *testing.T) {
	nstest.Root(t)
	a, b := gateways(t)
	connect(t, vxlan.Driver{}, a, b, nil)
	ended := a.ns.Ping(100, fmt.Sprintf("-I %v %v", a.local.PodIP, b.local.PodIP))
	changes := [][2]cable.Driver{
		{vxlan.Driver{}, Driver{}},
		{Driver{}, Combined{}},
		{Combined{}, Driver{}},
		{Driver{}, vxlan.Driver{}},
	}
	if (Combined{}).Lacks(a.local) != nil { // it needs IPsec in the kernel: see make test-kernel
		changes = slices.Delete(changes, 1, 3)
	}
	for _, change := range changes {
		from := change[0]
		to := change[1]
		a.sync(t, a.both(t, b, from, to))
		b.sync(t, b.both(t, a, from, to))
		for _, pair := range [][2]*gateway{{a, b}, {b, a}} {
			_, probe := pair[0].plan(t, to, pair[1], nil)
			require.Eventually(t, func() bool {
				_, err := pair[0].ns.Try(fmt.Sprintf("ping -c1 -W1 -I %v %v", probe.From, probe.IP))
				return err == nil
			}, 30*time.Second, 20*time.Millisecond, "%s does not answer", to.Name())
		}
		a.sync(t, a.both(t, b, to, from))
		b.sync(t, b.both(t, a, to, from))
		a.ns.Run(fmt.Sprintf("ping -c1 -W5 -I %v %v", a.local.PodIP, b.local.PodIP)) // what was sent before has arrived
		connect(t, to, a, b, nil)
	}
	sent, lost := ended()
	require.Greater(t, sent, 50, "pings of two changes")
	require.Zero(t, lost)
}

// both is the plan of a gateway that has two cables to another, of which the second
// carries no traffic.
func (g *gateway) both(t *testing.T, other *gateway, carries, idle cable.Driver) dataplane.State {
	t.Helper()
	c := cable.Cabling{Local: g.local}
	for _, d := range []cable.Driver{carries, idle} {
		c.Peers = append(c.Peers, cable.Cable{Peer: g.peer(t, d, other, nil), Driver: d, Idle: len(c.Peers) > 0})
	}
	s, _, err := cable.Plan(c)
	require.NoError(t, err)
	return s
}
