package wireguard

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/cable"
	"subctl/cable/keys"
	"subctl/dataplane"
)

// ring is the keys of a cluster, always the same.
func ring(t testing.TB, cluster string, n byte) *keys.Ring {
	t.Helper()
	private, err := keys.ParsePrivate(bytes.Repeat([]byte{n}, keys.Size))
	require.NoError(t, err)
	return &keys.Ring{
		Cluster: cluster,
		Private: private,
		Seed:    bytes.Repeat([]byte{n}, keys.Size),
		PSK:     bytes.Repeat([]byte{7}, 48),
	}
}

// local is the gateway of cluster n at 172.18.n.11, with pods in 10.11n.0.0/16.
func local(t testing.TB, n byte) cable.Local {
	t.Helper()
	cluster := fmt.Sprintf("c%d", n)
	return cable.Local{
		Gateway: cable.Gateway{
			Cluster: cluster, Name: "cable-" + cluster, Host: "gw", PrivateIP: netip.AddrFrom4([4]byte{172, 18, n, 11}),
			Subnets: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 110 + n, 0, 0}), 16)},
		},
		MTU: 1500, Keys: ring(t, cluster, n), WireGuard: dataplane.Engine{Name: dataplane.EngineKernel},
	}
}

// peer is the same, as others see it.
func peer(t testing.TB, n byte) cable.Peer {
	t.Helper()
	l := local(t, n)
	config, err := Driver{}.Advertise(l)
	require.NoError(t, err)
	p := cable.Peer{Gateway: l.Gateway, Address: l.PrivateIP, PublicKey: l.Keys.Private.Public()}
	p.Gateway.Config = config
	return p
}

const device = `ip link add submariner mtu 1440 up type wireguard
wg set submariner private-key (hidden) listen-port 4501 fwmark 0
sysctl -w net.ipv4.conf.submariner.rp_filter=2 net.ipv4.conf.submariner.forwarding=1
`

const peer2 = "wg set submariner peer qFawGfpqSP11iccUBgJjAgAu+awFKNZ4aat+E8weyT4= preshared-key (hidden)"

func TestPlan(t *testing.T) {
	for _, test := range []struct {
		name   string
		driver cable.Driver
		peers  []byte
		alter  func(*cable.Local, []cable.Peer)
		want   string
	}{
		{name: "nobody", driver: Driver{}},
		{name: "nobody, combined", driver: Combined{}},
		{name: "one", driver: Driver{}, peers: []byte{2}, want: device + `ip addr add 244.18.1.11/8 dev submariner
` + peer2 + ` endpoint 172.18.2.11:4501 persistent-keepalive 0 allowed-ips 10.112.0.0/16,244.18.2.11/32
ip nexthop replace id 286392843 dev submariner
`},
		{
			name: "behind a translation", driver: Driver{}, peers: []byte{2},
			alter: func(_ *cable.Local, ps []cable.Peer) {
				ps[0].Address = netip.MustParseAddr("203.0.113.9")
				ps[0].NATed = true
				ps[0].InboundOnly = true
			},
			want: device + `ip addr add 244.18.1.11/8 dev submariner
` + peer2 + ` persistent-keepalive 25 allowed-ips 10.112.0.0/16,244.18.2.11/32
ip nexthop replace id 286392843 dev submariner
`,
		},
		{
			name: "settings", driver: Driver{}, peers: []byte{2},
			alter: func(l *cable.Local, ps []cable.Peer) {
				l.Settings = map[string]cable.Config{cable.WireGuard: {"wireguardPort": "5501"}}
				ps[0].Config = cable.Config{"keepalive": "10s"}
				ps[0].Gateway.Config[portKey] = "6501"
			},
			want: strings.Replace(device, "4501", "5501", 1) + `ip addr add 244.18.1.11/8 dev submariner
` + peer2 + ` endpoint 172.18.2.11:6501 persistent-keepalive 10 allowed-ips 10.112.0.0/16,244.18.2.11/32
ip nexthop replace id 286392843 dev submariner
`,
		},
		{
			name:   "combined",
			driver: Combined{},
			peers:  []byte{2},
			want: device +
				`ip link add vxlan-wireguard address 02:73:f6:12:01:0b mtu 1390 up type vxlan id 1000 local 244.18.1.11 dstport 4503 nolearning dev submariner
sysctl -w net.ipv4.conf.vxlan-wireguard.rp_filter=2 net.ipv4.conf.vxlan-wireguard.forwarding=1 net.ipv4.conf.vxlan-wireguard.accept_local=1 net.ipv4.conf.vxlan-wireguard.arp_ignore=8
ip addr add 244.18.1.11/8 dev submariner
ip addr add 246.18.1.11/8 dev vxlan-wireguard
` + peer2 + ` endpoint 172.18.2.11:4501 persistent-keepalive 0 allowed-ips 244.18.2.11/32
bridge fdb replace 02:73:f6:12:02:0b dev vxlan-wireguard dst 244.18.2.11 self permanent
ip neigh replace 246.18.2.11 lladdr 02:73:f6:12:02:0b dev vxlan-wireguard nud permanent
ip nexthop replace id 319947275 via 246.18.2.11 dev vxlan-wireguard
`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := local(t, 1)
			var peers []cable.Peer
			for _, n := range test.peers {
				peers = append(peers, peer(t, n))
			}
			if test.alter != nil {
				test.alter(&l, peers)
			}
			w, err := test.driver.Plan(l, peers)
			require.NoError(t, err)
			require.Equal(t, test.want, w.State.String())
			require.Len(t, w.Links, len(peers))
		})
	}
}

// What the two drivers plan for one pair, which is changing from one to the other, goes
// together, in either order.
func TestBothAtOnce(t *testing.T) {
	var plain, combined cable.Wiring
	for _, keepalive := range [][3]string{
		{"20s", "5s", "5"},
		{"5s", "20s", "5"},
		{"0s", "20s", "20"},
		{"20s", "0s", "20"},
	} {
		l := local(t, 1)
		p := peer(t, 2)
		var err error
		p.Config = cable.Config{"keepalive": keepalive[0]}
		plain, err = Driver{}.Plan(l, []cable.Peer{p})
		require.NoError(t, err)
		p.Config = cable.Config{"keepalive": keepalive[1]}
		combined, err = Combined{}.Plan(l, []cable.Peer{p, peer(t, 3)})
		require.NoError(t, err)
		for _, order := range [][2]cable.Wiring{{plain, combined}, {combined, plain}} {
			s := dataplane.State{}
			require.NoError(t, s.Merge(order[0].State))
			require.NoError(t, s.Merge(order[1].State))
			require.Contains(
				t,
				s.String(),
				peer2+" endpoint 172.18.2.11:4501 persistent-keepalive "+keepalive[2]+
					" allowed-ips 10.112.0.0/16,244.18.2.11/32\n",
			)
		}
	}
	require.Equal(t, plain.Links[0].State, combined.Links[0].State)
	require.Equal(t, []cable.Listen{
		{Proto: "udp", Port: 4501},
		{
			Proto:  "udp",
			Port:   4503,
			From:   []netip.Addr{netip.MustParseAddr("244.18.2.11"), netip.MustParseAddr("244.18.3.11")},
			Device: "submariner",
			VXLAN:  true,
		},
	}, combined.Listens)
}

// Both ends derive the same preshared key, each pair another, and none is the private key.
func TestKeys(t *testing.T) {
	secret := func(from, to byte) dataplane.Secret {
		w, err := Driver{}.Plan(local(t, from), []cable.Peer{peer(t, to)})
		require.NoError(t, err)
		for _, o := range w.State {
			if p, ok := o.(dataplane.WireGuardPeer); ok {
				return p.Preshared
			}
		}
		return dataplane.Secret{}
	}
	require.True(t, secret(1, 2) == secret(2, 1), "both ends have the same")
	require.False(t, secret(1, 2) == secret(1, 3), "pairs differ")
	own, err := privateKey(local(t, 1))
	require.NoError(t, err)
	require.True(t, own == own.Clamp(), "or the kernel would hold another than was planned")
	require.False(t, own == secret(1, 2))
}

func TestRefuses(t *testing.T) {
	for _, test := range []struct {
		name  string
		alter func(*cable.Local, *cable.Peer)
		want  string
	}{
		{"fine", func(*cable.Local, *cable.Peer) {}, ""},
		{"fine without keys", func(l *cable.Local, _ *cable.Peer) { l.Keys = nil }, ""},
		{
			"no key",
			func(_ *cable.Local, p *cable.Peer) { delete(p.Gateway.Config, publicKeyKey) },
			"cluster c2 announces no WireGuard key (publicKey)",
		},
		{
			"no base64",
			func(_ *cable.Local, p *cable.Peer) { p.Gateway.Config[publicKeyKey] = "\x1b[31m" },
			`announces "\x1b[31m" as its WireGuard key`,
		},
		{
			"short key",
			func(_ *cable.Local, p *cable.Peer) { p.Gateway.Config[publicKeyKey] = "AAAA" },
			"not the base64 of 32 bytes",
		},
		{"zero key", func(_ *cable.Local, p *cable.Peer) {
			p.Gateway.Config[publicKeyKey] = base64.StdEncoding.EncodeToString(make([]byte, 32))
		}, "not the base64 of 32 bytes"},
		{"our own key", func(_ *cable.Local, p *cable.Peer) {
			p.Gateway.Config[publicKeyKey] = peer(t, 1).Gateway.Config[publicKeyKey]
		}, "cluster c2 announces this gateway's own WireGuard key"},
		{
			"no port",
			func(_ *cable.Local, p *cable.Peer) { p.Gateway.Config[portKey] = "70000" },
			`its wireguard-port "70000" is not a UDP port`,
		},
		{
			"no cluster key",
			func(_ *cable.Local, p *cable.Peer) { p.PublicKey = keys.PublicKey{} },
			"cluster c2 announces no cluster key",
		},
		{"no PSK", func(l *cable.Local, _ *cable.Peer) { l.Keys.PSK = nil }, "the pre-shared key has 0 bytes"},
	} {
		for _, d := range []cable.Driver{Driver{}, Combined{}} {
			t.Run(test.name+", "+d.Name(), func(t *testing.T) {
				l := local(t, 1)
				p := peer(t, 2)
				test.alter(&l, &p)
				err := d.Refuses(l, p)
				if test.want == "" {
					require.NoError(t, err)
					return
				}
				require.ErrorContains(t, err, test.want)
			})
		}
	}
}

func TestLacks(t *testing.T) {
	l := local(t, 1)
	require.NoError(t, Driver{}.Lacks(l))
	l.WireGuard = dataplane.Engine{Missing: "the wireguard kernel module, or wireguard-go in the image"}
	require.EqualError(t, Driver{}.Lacks(l),
		"this node has no WireGuard: it lacks the wireguard kernel module, or wireguard-go in the image")
	l = local(t, 1)
	l.Keys.Seed = nil
	require.ErrorContains(t, Driver{}.Lacks(l), "has no seed")
	l.Keys = nil
	_, err := Driver{}.Advertise(l)
	require.ErrorContains(t, err, "not available", "a key of nobody must not be announced")
}

// A hostile cluster cannot take the place of another by announcing its key, whatever
// cable either has; and of a cluster's gateways WireGuard alone connects the first.
func TestClaims(t *testing.T) {
	victim := peer(t, 2)
	thief := peer(t, 3)
	second := peer(t, 4)
	thief.Gateway.Config[publicKeyKey] = victim.Gateway.Config[publicKeyKey]
	second.Cluster = victim.Cluster
	claims := cable.NewClaims([]cable.Driver{Driver{}, Combined{}})
	require.NoError(t, claims.Announce(victim))
	require.ErrorContains(t, claims.Announce(thief),
		"is already used by "+victim.Name+": WireGuard keys must be unique")
	require.NoError(t, claims.Announce(peer(t, 3)), "a refused gateway holds nothing")

	places := cable.NewPlaces([]cable.Driver{Driver{}, Combined{}})
	require.NoError(t, places.Take(cable.Cable{Peer: victim, Driver: Combined{}}))
	require.NoError(t, places.Take(cable.Cable{Peer: victim, Driver: Driver{}}))
	require.ErrorContains(t, places.Take(cable.Cable{Peer: second, Driver: Driver{}}),
		"use vxlan+wireguard, which connects to all of them")
	require.NoError(t, places.Take(cable.Cable{Peer: second, Driver: Combined{}}))

	second.Subnets = victim.Subnets
	_, err := Driver{}.Plan(local(t, 1), []cable.Peer{victim, second})
	require.ErrorContains(t, err, "10.112.0.0/16 already belongs to cable-c2")
}

// Packets of exactly the MTU of the cable, padded as WireGuard does, fit into the path.
func TestOverhead(t *testing.T) {
	l := local(t, 1)
	p := peer(t, 2)
	for _, device := range []int{1500, 1400, 9001, 8950, 1340} {
		for path := 1280; path <= device; path++ {
			l.MTU = device
			p.MTU = path
			for _, test := range []struct {
				driver cable.Driver
				inside int
			}{{Driver{}, 0}, {Combined{}, dataplane.VXLANOverhead}} {
				inner := cable.Cable{Peer: p, Driver: test.driver}.MTU(l) + test.inside
				padded := min((inner+15)/16*16, max(inner, device-60)) // not beyond the device's MTU
				require.LessOrEqual(t, padded+60, path, "%s: device %d, path %d", test.driver.Name(), device, path)
				require.Less(t, path-padded-60, 16, "%s: device %d, path %d: wasteful", test.driver.Name(), device,
					path)
			}
		}
	}
}

func TestKeepalive(t *testing.T) {
	for _, test := range []struct {
		name  string
		alter func(*cable.Local, *cable.Peer)
		want  time.Duration
	}{
		{"no translation", func(*cable.Local, *cable.Peer) {}, 0},
		{"here", func(l *cable.Local, _ *cable.Peer) { l.NAT = true }, 25 * time.Second},
		{"there", func(_ *cable.Local, p *cable.Peer) { p.NAT = true }, 25 * time.Second},
		{"on the way", func(_ *cable.Local, p *cable.Peer) { p.NATed = true }, 25 * time.Second},
		{"set", func(_ *cable.Local, p *cable.Peer) { p.Config = cable.Config{"keepalive": "1m"} }, time.Minute},
		{"off", func(_ *cable.Local, p *cable.Peer) {
			p.NATed = true
			p.Config = cable.Config{"keepalive": "0s"}
		}, 0},
	} {
		l := local(t, 1)
		p := peer(t, 2)
		test.alter(&l, &p)
		require.Equal(t, test.want, keepalive(l, p), test.name)
	}
}
