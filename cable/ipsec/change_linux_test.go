package ipsec

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/cable"
	"subctl/cable/vxlan"
	"subctl/dataplane"
	"subctl/internal/nstest"
)

// A pair that changes from VXLAN to IPsec and back loses nothing: both cables are up until
// the new one answers at both ends, and traffic moves at one end after the other.
func TestChange(t *testing.T) {
	nstest.Root(t)
	a, b := gateways(t)
	connect(t, vxlan.Driver{}, a, b, nil)
	stop := pinging(t, a, b)
	for _, change := range [][2]cable.Driver{{vxlan.Driver{}, Driver{}}, {Driver{}, vxlan.Driver{}}} {
		from, to := change[0], change[1]
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
		connect(t, to, a, b, nil)
	}
	sent, received := stop()
	require.Greater(t, sent, 50, "pings of two changes")
	require.Equal(t, sent, received)
}

// both is the plan of a gateway that has two cables to another, of which the second
// carries no traffic.
func (g *gateway) both(t *testing.T, other *gateway, carries, idle cable.Driver) dataplane.State {
	t.Helper()
	c := cable.Cabling{Local: g.local}
	for _, d := range []cable.Driver{carries, idle} {
		p := cable.Peer{Gateway: other.local.Gateway, Address: other.local.PrivateIP, PublicKey: other.local.Keys.Private.Public()}
		var err error
		p.Gateway.Config, err = d.Advertise(other.local)
		require.NoError(t, err)
		c.Peers = append(c.Peers, cable.Cable{Peer: p, Driver: d, Idle: len(c.Peers) > 0})
	}
	s, _, err := cable.Plan(c)
	require.NoError(t, err)
	return s
}

// pinging sends 100 packets a second from the pods' address of one gateway to that of
// another, until it is stopped.
func pinging(t *testing.T, from, to *gateway) (stop func() (sent, received int)) {
	t.Helper()
	dir := t.TempDir()
	from.ns.Start(fmt.Sprintf("echo $$ >%[1]s/pid; exec ping -q -i0.01 -I %[2]v %[3]v >%[1]s/said", dir, from.local.PodIP, to.local.PodIP))
	time.Sleep(500 * time.Millisecond)
	return func() (sent, received int) {
		time.Sleep(500 * time.Millisecond)
		from.ns.Run(fmt.Sprintf("kill -INT $(cat %s/pid)", dir))
		require.Eventually(t, func() bool {
			said := from.ns.Run("cat " + dir + "/said")
			at := strings.Index(said, "---\n") // the heading of what was counted
			if at < 0 {
				return false
			}
			n, _ := fmt.Sscanf(said[at+4:], "%d packets transmitted, %d received", &sent, &received)
			return n == 2
		}, 5*time.Second, 20*time.Millisecond)
		return sent, received
	}
}
