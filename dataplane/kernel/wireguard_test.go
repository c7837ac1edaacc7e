//go:build linux

package kernel

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"subctl/dataplane"
	"subctl/dataplane/kernel/link"
	"subctl/internal/nstest"

	"github.com/stretchr/testify/require"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

const wg = dataplane.WireGuardDevice

func public(private dataplane.Secret) dataplane.PublicKey {
	return dataplane.PublicKey(wgtypes.Key(private).PublicKey())
}

var (
	ourKey, theirKey = dataplane.Secret{8, 1}.Clamp(), dataplane.Secret{8, 2}.Clamp()
	ourConf          = dataplane.Conf{RPFilter: 2, Forwarding: 1}
)

func wgDevice() dataplane.WireGuard {
	return dataplane.WireGuard{Name: wg, Private: ourKey, Port: dataplane.WireGuardPort, MTU: 1440, Conf: ourConf}
}

func wgPeer(key byte, endpoint string, allowed ...string) dataplane.WireGuardPeer {
	p := dataplane.WireGuardPeer{
		Dev:       wg,
		Public:    public(dataplane.Secret{8 * key}.Clamp()),
		Preshared: dataplane.Secret{key},
		Keepalive: 25,
	}
	if endpoint != "" {
		p.Endpoint = netip.MustParseAddrPort(endpoint)
	}
	for _, a := range allowed {
		p.Allowed = append(p.Allowed, cidr(a))
	}
	return p
}

func withPeers(t testing.TB, d dataplane.WireGuard, peers ...dataplane.WireGuardPeer) dataplane.State {
	s := state(t, d, dataplane.Addr{Dev: wg, Prefix: cidr("244.18.0.2/8")}, dataplane.Nexthop{ID: 0x11000001, Dev: wg})
	for _, p := range peers {
		require.NoError(t, s.Add(p))
	}
	return s
}

func TestWireGuardRoundTrip(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	before := traces(ns)
	peer := wgPeer(1, "172.18.0.3:4501", "10.1.0.0/16", "244.18.0.3/32")
	first := withPeers(t, wgDevice(), peer, wgPeer(2, "", "10.2.0.0/16"))
	require.Len(t, settle(t, ns, h, first), len(first))
	require.Equal(t, fingerprints(first), fingerprints(look(t, ns, h)))
	got := look(t, ns, h)[peer.Key()].(dataplane.WireGuardPeer)
	require.Equal(t, peer, got, "the secret, too")
	index := ns.Run("ip -o link show " + wg + " | cut -d: -f1")

	// Everything but the name changes in place, and a network moves to another peer.
	d := wgDevice()
	d.Private = theirKey
	d.Port = 4511
	d.MTU = 1400
	d.Conf = dataplane.Conf{RPFilter: 1}
	moved := wgPeer(1, "172.18.0.4:4502", "244.18.0.3/32")
	moved.Preshared = dataplane.Secret{9}
	moved.Keepalive = 0
	next := withPeers(t, d, moved, wgPeer(3, "172.18.0.5:4501", "10.1.0.0/16"))
	ops := settle(t, ns, h, next)
	require.Len(t, ops, 4, "device, two peers, and one that goes: %v", ops)
	require.Equal(t, fingerprints(next), fingerprints(look(t, ns, h)))
	require.Equal(t, index, ns.Run("ip -o link show "+wg+" | cut -d: -f1"), "made again")
	require.Empty(t, settle(t, ns, h, next))

	settle(t, ns, h, nil)
	require.ElementsMatch(t, before, traces(ns))
	require.Empty(t, ns.Run("ls "+nstest.UAPIDir), "the socket goes with the process")
	ns.Do(func() {
		for _, op := range dataplane.Diff(next, nil) {
			require.NoError(t, h.Apply(context.Background(), op), "removed twice: %v", op)
		}
	})
}

// What another program did to the device is undone.
func TestWireGuardRepaired(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	want := withPeers(t, wgDevice(), wgPeer(1, "172.18.0.3:4501", "10.1.0.0/16"))
	for _, damage := range []string{
		"ip link del submariner",
		"ip link set submariner down",
		"ip link set submariner mtu 1300",
		"ip link del submariner; ip tuntap add submariner mode tun; ip link set submariner up",
	} {
		t.Run(damage, func(t *testing.T) {
			settle(t, ns, h, want)
			ns.Run(damage)
			require.NotEmpty(t, settle(t, ns, h, want))
			require.Equal(t, fingerprints(want), fingerprints(look(t, ns, h)))
		})
	}
}

// Packets with a firewall mark would be routed by others' rules.
func TestWireGuardMark(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	want := withPeers(t, wgDevice())
	settle(t, ns, h, want)
	mark := 0x1234
	ns.Do(func() { require.NoError(t, wgClient(t).ConfigureDevice(wg, wgtypes.Config{FirewallMark: &mark})) })
	require.NotEmpty(t, settle(t, ns, h, want))
	ns.Do(func() {
		w, err := wgClient(t).Device(wg)
		require.NoError(t, err)
		require.Zero(t, w.FirewallMark)
	})
}

// A plan that was made without keys is shown, never applied.
func TestWireGuardWithoutKeys(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	peer := wgPeer(1, "172.18.0.3:4501", "10.1.0.0/16")
	settle(t, ns, h, withPeers(t, wgDevice(), peer))
	d := wgDevice()
	d.Private = dataplane.Secret{}
	peer.Preshared = dataplane.Secret{}
	ns.Do(func() {
		require.ErrorIs(t, h.Apply(context.Background(), dataplane.Op{New: d}), link.ErrShownOnly)
		require.ErrorIs(t, h.Apply(context.Background(), dataplane.Op{New: peer}), link.ErrShownOnly)
	})
}

// The engine is determined without leaving anything behind, and what is missing is named.
func TestWireGuardEngine(t *testing.T) {
	ns, _ := node(t, dataplane.GatewayOwner)
	before := traces(ns)
	ns.Do(func() {
		f, err := ReadFacts()
		require.NoError(t, err)
		require.NotEmpty(t, f.WireGuard.Name)
		require.Empty(t, f.WireGuard.Missing)
	})
	require.Equal(t, before, traces(ns))
}

// Two devices that are planned and applied exchange packets, and report that.
func TestHandshake(t *testing.T) {
	a, ha := node(t, dataplane.GatewayOwner)
	b := nstest.New(t, "b")
	b.Private(nstest.UAPIDir)
	a.Run("ip link del eth0")
	nstest.Join(nstest.End{NS: a, Dev: "eth0", Addr: "172.18.0.2/24"},
		nstest.End{NS: b, Dev: "eth0", Addr: "172.18.0.3/24"})
	hb := host(t, b, dataplane.GatewayOwner)
	t.Cleanup(func() { b.Run("ip link del " + wg + " 2>/dev/null || true") })
	end := func(own, other dataplane.Secret, at, net, peer string) dataplane.State {
		d := wgDevice()
		p := wgPeer(1, at, peer)
		d.Private = own
		p.Public = public(other)
		return state(t, d, p, dataplane.Addr{Dev: wg, Prefix: cidr(net)})
	}
	wantA := end(ourKey, theirKey, "172.18.0.3:4501", "244.18.0.2/8", "244.18.0.3/32")
	settle(t, a, ha, wantA)
	states := func() (out []dataplane.CableState) {
		a.Do(func() {
			var err error
			out, err = ha.CableStates()
			require.NoError(t, err)
		})
		require.Len(t, out, 1)
		require.Equal(t, public(theirKey).String(), out[0].Peer)
		return out
	}
	require.False(t, states()[0].Up)
	require.True(t, strings.HasPrefix(states()[0].Message, "no handshake yet"))
	settle(t, b, hb, end(theirKey, ourKey, "172.18.0.2:4501", "244.18.0.3/8", "244.18.0.2/32"))
	a.Run("ping -c3 -i0.2 -W5 244.18.0.3")
	s := states()[0]
	require.True(t, s.Up, s.Message)
	require.NotZero(t, s.Rx)
	require.NotZero(t, s.Tx)
	require.WithinDuration(t, time.Now(), s.Handshake, 10*time.Second)

	// The other side moves: its endpoint follows, whatever is planned, and still equals the plan.
	b.Run("ip addr del 172.18.0.3/24 dev eth0 && ip addr add 172.18.0.33/24 dev eth0")
	b.Run("ping -c3 -i0.2 -W5 244.18.0.2")
	a.Run("ping -c3 -i0.2 -W5 244.18.0.3")
	require.Empty(t, settle(t, a, ha, wantA), "a sync must not fight roaming")
	a.Run("ping -c1 -W5 244.18.0.3")
	for k, o := range wantA {
		if p, ok := o.(dataplane.WireGuardPeer); ok {
			p.Keepalive++
			wantA[k] = p
		}
	}
	require.Len(t, settle(t, a, ha, wantA), 1)
	a.Do(func() {
		w, err := wgClient(t).Device(wg)
		require.NoError(t, err)
		require.Equal(t, "172.18.0.33:4501", w.Peers[0].Endpoint.String(),
			"what changes beside the endpoint leaves it alone")
	})

	// The other side goes: the cable is up while nothing is sent, and down some time after it was.
	b.Run("ip link set eth0 down")
	require.True(t, states()[0].Up)
	a.Run("ping -c5 -i0.2 -W1 -s600 244.18.0.3 || true")
	require.True(t, states()[0].Up, "the answer may be late")
	ha.devices.Clock = func() time.Time { return time.Now().Add(30 * time.Second) }
	require.False(t, states()[0].Up)
	require.Contains(t, states()[0].Message,
		"the other side, last at 172.18.0.33:4501, does not answer: nothing was received after what was sent until")
}

// wgClient returns a client of WireGuard in the calling thread's network namespace.
func wgClient(t testing.TB) *wgctrl.Client {
	t.Helper()
	c, err := wgctrl.New()
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}
