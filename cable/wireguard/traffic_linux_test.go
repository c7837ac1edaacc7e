package wireguard

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/cable"
	"subctl/cable/vxlan"
	"subctl/dataplane"
	"subctl/dataplane/kernel"
	"subctl/internal/nstest"
)

// side is a cluster made of a gateway and a pod on it.
type side struct {
	n       byte // 1, 2: pods 10.11n.0.0/16, the gateway at 172.18.n.11
	gw, pod *nstest.NS
	host    *kernel.Host
}

// newSides joins two clusters by a router: the fabric between them.
func newSides(t testing.TB) (east, west *side, fabric *nstest.NS) {
	t.Helper()
	nstest.WireGuard(t)
	fabric = nstest.New(t, "fabric")
	fabric.Run("sysctl -qw net.ipv4.ip_forward=1")
	var sides []*side
	for n := byte(1); n <= 2; n++ {
		s := &side{n: n, gw: nstest.New(t, fmt.Sprintf("gw%d", n)), pod: nstest.New(t, fmt.Sprintf("pod%d", n))}
		s.gw.Private(nstest.UAPIDir)
		nstest.Join(nstest.End{NS: s.gw, Dev: "eth0", Addr: fmt.Sprintf("172.18.%d.11/24", n)},
			nstest.End{NS: fabric, Dev: fmt.Sprintf("v%d", n), Addr: fmt.Sprintf("172.18.%d.254/24", n)})
		s.gw.Run(
			fmt.Sprintf(
				"ip route add default via 172.18.%d.254; sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=1",
				n),
		)
		nstest.Join(nstest.End{NS: s.gw, Dev: "cni0", Addr: fmt.Sprintf("10.11%d.1.1/24", n)},
			nstest.End{NS: s.pod, Dev: "eth0", Addr: s.podIP() + "/24"})
		s.pod.Run(fmt.Sprintf("ip route add default via 10.11%d.1.1", n))
		s.gw.Do(func() {
			var err error
			s.host, err = kernel.New(dataplane.GatewayOwner)
			require.NoError(t, err)
		})
		t.Cleanup(s.host.Close)
		// which ends its process
		t.Cleanup(func() { s.gw.Run("ip link del " + dataplane.WireGuardDevice + " 2>/dev/null || true") })
		sides = append(sides, s)
	}
	return sides[0], sides[1], fabric
}

func (s *side) podIP() string { return fmt.Sprintf("10.11%d.1.5", s.n) }

func (s *side) podHost() nstest.Host { return nstest.Host{NS: s.pod, IP: s.podIP()} }

// move gives the gateway another outer address, 172.18.n.host.
func (s *side) move(host int) {
	s.gw.Run(
		fmt.Sprintf(
			"ip addr flush dev eth0 && ip addr add 172.18.%[1]d.%[2]d/24 dev eth0 && ip route add default via 172.18.%[1]d.254",
			s.n, host),
	)
}

// untilAnswered pings a pod until it answers: a handshake that gets lost is repeated
// after 5 s (section 6.1 of the WireGuard paper).
func untilAnswered(to *side) string {
	return "for i in 1 2 3 4 5 6 7 8 9 10; do ping -c1 -W1 " + to.podIP() + " >/dev/null && exit 0; done; exit 1"
}

// plan is what the gateway holds for a cable to the other side.
func (s *side) plan(t testing.TB, d cable.Driver, other *side) dataplane.State {
	t.Helper()
	l := local(t, s.n)
	l.Pods = l.Subnets
	l.PodIP = netip.MustParseAddr(fmt.Sprintf("10.11%d.1.1", s.n))
	p := peer(t, other.n)
	require.NoError(t, d.Refuses(l, p))
	state, _, err := cable.Plan(cable.Cabling{Local: l, Peers: []cable.Cable{{Peer: p, Driver: d}}})
	require.NoError(t, err)
	return state
}

func (s *side) sync(t testing.TB, want dataplane.State) (ops []dataplane.Op) {
	t.Helper()
	s.gw.Do(func() {
		var err error
		ops, err = dataplane.Sync(context.Background(), s.host, want)
		require.NoError(t, err)
	})
	return ops
}

// connect syncs both sides.
func connect(t testing.TB, d cable.Driver, east, west *side) {
	t.Helper()
	east.sync(t, east.plan(t, d, west))
	west.sync(t, west.plan(t, d, east))
}

// Pods reach each other through the cable: everything passes, both ways, in packets of
// every size, and nobody on the way can read it. A second sync does nothing, whatever
// the peers did meanwhile; what breaks is repaired; and nothing is left in the end.
func TestTraffic(t *testing.T) {
	for _, d := range []cable.Driver{Driver{}, Combined{}} {
		t.Run(d.Name(), func(t *testing.T) {
			east, west, fabric := newSides(t)
			before := holdings(east.gw)
			_, err := east.pod.Try("ping -c1 -W1 " + west.podIP())
			require.Error(t, err, "nothing connects them yet")
			connect(t, d, east, west)
			mtu := cable.Cable{Peer: peer(t, 2), Driver: d}.MTU(local(t, 1))
			reach(t, east, west, mtu)
			reach(t, west, east, mtu)
			require.Empty(t, east.sync(t, east.plan(t, d, west)), "a second sync must find nothing to do")

			t.Run("packets of the MTU fill the path", func(t *testing.T) {
				seen := fabric.Watch("v1")
				east.pod.Run(fmt.Sprintf("ping -Mdo -c3 -i0.2 -W2 -s%d %s", mtu-28, west.podIP()))
				east.pod.Run(fmt.Sprintf("ping -Mdo -c3 -i0.2 -W2 -s%d %s", mtu-29, west.podIP()))
				s := seen()
				require.Equal(t, 1500, s.Longest)
				require.False(t, s.Fragments)
				out, err := east.pod.Try(fmt.Sprintf("ping -Mdo -c1 -W2 -s%d %s", mtu-27, west.podIP()))
				require.Error(t, err)
				require.Contains(t, out, fmt.Sprint("mtu=", mtu), "what was learned above")
			})
			t.Run("secret", func(t *testing.T) {
				s := overheard(t, east, west, fabric, mtu)
				require.False(t, s.Marker, "what pods say can be read on the way")
			})
			t.Run("states", func(t *testing.T) {
				var states []dataplane.CableState
				east.gw.Do(func() {
					var err error
					states, err = east.host.CableStates()
					require.NoError(t, err)
				})
				require.Len(t, states, 1)
				require.True(t, states[0].Up, states[0].Message)
				require.Equal(t, peer(t, 2).Gateway.Config[publicKeyKey], states[0].Peer)
				require.NotZero(t, states[0].Rx)
			})
			t.Run("device deleted", func(t *testing.T) {
				east.gw.Run("ip link del " + dataplane.WireGuardDevice)
				require.NotEmpty(t, east.sync(t, east.plan(t, d, west)))
				reach(t, east, west, mtu)
			})
			t.Run("process killed", func(t *testing.T) {
				if !strings.Contains(east.gw.Run("ip -d link show "+dataplane.WireGuardDevice), " tun ") {
					t.Skip("the kernel has WireGuard")
				}
				before := east.host.Restarts()["wireguard-go"]
				east.gw.Run(
					`here=$(readlink /proc/self/ns/net); for p in $(pgrep -x wireguard-go); do [ "$(readlink /proc/$p/ns/net)" != "$here" ] || kill -9 $p; done`)
				require.Eventually(
					t,
					func() bool {
						_, err := east.gw.Try("ip link show " + dataplane.WireGuardDevice)
						return err != nil
					},
					5*time.Second,
					10*time.Millisecond,
				)
				require.NotEmpty(t, east.sync(t, east.plan(t, d, west)))
				require.Equal(t, before+1, east.host.Restarts()["wireguard-go"], "and that is known")
				reach(t, east, west, mtu)
			})
			t.Run("roaming", func(t *testing.T) {
				stop := west.pod.Start("ping -i0.1 " + east.podIP() + " >/dev/null")
				west.move(99)
				east.pod.Run(untilAnswered(west))
				require.Empty(t, east.sync(t, east.plan(t, d, west)), "a sync must not fight roaming")
				stop()
				reach(t, east, west, mtu)
				west.move(11)
				west.pod.Run(untilAnswered(east))
				reach(t, east, west, mtu)
			})
			east.sync(t, nil)
			require.Equal(t, before, holdings(east.gw))
		})
	}
}

// The test of secrecy sees what is not encrypted.
func TestPlainIsOverheard(t *testing.T) {
	east, west, fabric := newSides(t)
	connect(t, vxlan.Driver{}, east, west)
	mtu := cable.Cable{Peer: peer(t, 2), Driver: vxlan.Driver{}}.MTU(local(t, 1))
	require.True(t, overheard(t, east, west, fabric, mtu).Marker)
}

// A pair that changes between the two drivers loses nothing: both are up at once over one
// device, with one peer.
func TestChange(t *testing.T) {
	east, west, _ := newSides(t)
	connect(t, Driver{}, east, west)
	east.pod.Run("ping -c3 -i0.2 -W2 " + west.podIP())
	both := func(s, other *side, first, second cable.Driver) dataplane.State {
		l := local(t, s.n)
		p := peer(t, other.n)
		l.Pods = l.Subnets
		l.PodIP = netip.MustParseAddr(fmt.Sprintf("10.11%d.1.1", s.n))
		state, _, err := cable.Plan(
			cable.Cabling{
				Local: l,
				Peers: []cable.Cable{{Peer: p, Driver: first}, {Peer: p, Driver: second, Idle: true}},
			},
		)
		require.NoError(t, err)
		return state
	}
	ended := east.pod.Ping(100, west.podIP())
	for _, step := range [][2]cable.Driver{{Driver{}, Combined{}}, {Combined{}, Driver{}}} {
		for _, s := range [][2]*side{{east, west}, {west, east}} {
			s[0].sync(t, both(s[0], s[1], step[0], step[1]))
		}
		east.pod.Run("ping -c1 -W5 " + west.podIP()) // what was sent before has arrived
	}
	connect(t, Combined{}, east, west)
	_, lost := ended()
	require.Zero(t, lost)
}

// Settings change in place, under traffic. Nothing is lost, except at a change of the port: the
// other end learns the new port from the packets that come from it.
func TestChangeOfSettings(t *testing.T) {
	east, west, _ := newSides(t)
	connect(t, Driver{}, east, west)
	nstest.Until(t, east.podHost(), west.podHost())
	ended := east.pod.Ping(100, west.podIP())
	for _, config := range []cable.Config{{"keepalive": "1s"}, {"mtu": "1300"}, {"wireguardPort": "4510"}, nil} {
		l := local(t, east.n)
		p := peer(t, west.n)
		l.Pods = l.Subnets
		l.PodIP = netip.MustParseAddr("10.111.1.1")
		l.Settings = map[string]cable.Config{cable.WireGuard: config}
		p.Config = config
		state, _, err := cable.Plan(cable.Cabling{Local: l, Peers: []cable.Cable{{Peer: p, Driver: Driver{}}}})
		require.NoError(t, err)
		require.NotEmpty(t, east.sync(t, state), config)
		time.Sleep(300 * time.Millisecond) // in which it is in force
		west.pod.Run("ping -Mdont -c1 -W2 -s4000 " + east.podIP())
	}
	_, lost := ended()
	require.LessOrEqual(t, lost, 10,
		"those sent to the old port, until the other end knows the new one; an interruption costs hundreds")
}

// reach sends packets of every size from one pod to another.
func reach(t testing.TB, from, to *side, mtu int) {
	t.Helper()
	nstest.Reach(t, from.podHost(), to.podHost(), mtu)
}

// overheard has pods talk to each other, and returns what somebody on the way learns.
func overheard(t testing.TB, east, west *side, fabric *nstest.NS, mtu int) nstest.Sight {
	t.Helper()
	nstest.Until(t, east.podHost(), west.podHost())
	seen := fabric.Watch("v1")
	reach(t, east, west, mtu)
	return seen()
}

// holdings is all that the kernel of a node holds, without counters.
func holdings(ns *nstest.NS) string {
	return ns.Run(
		"ip -d link; ip -4 addr; ip -4 route show table all; ip rule; ip nexthop; iptables-save | grep ^-; ipset list; bridge fdb; nft list ruleset 2>/dev/null | grep -i submariner; ls " +
			nstest.UAPIDir + " 2>/dev/null || true",
	)
}
