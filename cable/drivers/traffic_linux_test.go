package drivers_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/dataplane"
	"subctl/dataplane/kernel"
	"subctl/internal/nstest"
)

// Traffic through every driver's whole plan: chains, routes and groups included.

// node is a gateway of cluster c at an address of its own, which has pods behind it.
type node struct {
	c, n  byte
	local cable.Local
	ns    *nstest.NS
	host  *kernel.Host
}

// newNode makes gateway n of cluster c, with one device, eth0, that leads to a router. Its
// address is 172.18.c.n unless told otherwise, and the router's is 254 in the same network.
func newNode(t testing.TB, c, n byte, router *nstest.NS, address ...byte) *node {
	t.Helper()
	ip := [4]byte{172, 18, c, n}
	copy(ip[:], address)
	g := &node{c: c, n: n, local: local(c), ns: nstest.New(t, fmt.Sprintf("gw%d-%d", c, n))}
	g.local.PrivateIP, g.local.Name = netip.AddrFrom4(ip), fmt.Sprintf("cable-c%d-%d", c, n)
	g.local.PodIP = netip.AddrFrom4([4]byte{10, 100 + c, n, 1})
	g.ns.Private(nstest.UAPIDir)
	gateway := netip.AddrFrom4([4]byte{ip[0], ip[1], ip[2], 254})
	nstest.Join(nstest.End{NS: g.ns, Dev: "eth0", Addr: g.local.PrivateIP.String() + "/24"},
		nstest.End{NS: router, Dev: fmt.Sprintf("v%d-%d", c, n)})
	// What the kernel would send as one large packet is to be seen as it would be on a wire.
	router.Run(fmt.Sprintf("ip addr add %v/32 dev v%d-%d; ip route add %v dev v%[2]d-%[3]d; ip link set v%[2]d-%[3]d gso_max_segs 1", gateway, c, n, g.local.PrivateIP))
	g.ns.Run(fmt.Sprintf("ip route add default via %v; ip link set eth0 gso_max_segs 1; sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=1", gateway))
	g.ns.Do(func() {
		f, err := kernel.ReadFacts()
		require.NoError(t, err)
		g.local.WireGuard, g.local.IPsec = f.WireGuard, f.IPsec
		g.host, err = kernel.New(dataplane.GatewayOwner)
		require.NoError(t, err)
	})
	t.Cleanup(func() {
		g.sync(t, dataplane.State{})
		g.host.Close()
	})
	return g
}

// pod puts a pod behind gateways of one cluster, that can go by any of them.
func pod(t testing.TB, gateways ...*node) nstest.Host {
	t.Helper()
	c := gateways[0].c
	p := nstest.Host{NS: nstest.New(t, fmt.Sprintf("pod%d", c)), IP: fmt.Sprintf("10.%d.100.5", 100+c)}
	p.NS.Run("ip addr add " + p.IP + "/32 dev lo")
	way := "ip route add default src " + p.IP
	for _, g := range gateways {
		dev, near := fmt.Sprintf("eth%d", g.n), fmt.Sprintf("10.%d.%d", 100+c, g.n)
		nstest.Join(nstest.End{NS: g.ns, Dev: "cni0", Addr: near + ".1/24"}, nstest.End{NS: p.NS, Dev: dev, Addr: near + ".5/24"})
		g.ns.Run(fmt.Sprintf("ip route add 10.%d.100.0/24 via %s.5", 100+c, near))
		way += fmt.Sprintf(" nexthop via %s.1", near)
	}
	p.NS.Run(way)
	return p
}

// seen is the gateway as others see it.
func (g *node) seen(t testing.TB) cable.Peer {
	t.Helper()
	p := cable.Peer{Gateway: g.local.Gateway, Address: g.local.PrivateIP, PublicKey: g.local.Keys.Private.Public()}
	p.Gateway.Config = map[string]string{}
	for _, d := range drivers.All() {
		config, err := d.Advertise(g.local)
		require.NoError(t, err)
		for k, v := range config {
			p.Gateway.Config[k] = v
		}
	}
	return p
}

// join has the gateway hold its cables to peers.
func (g *node) join(t testing.TB, d cable.Driver, peers ...cable.Peer) []cable.Link {
	t.Helper()
	require.NoError(t, d.Lacks(g.local))
	c := cable.Cabling{Local: g.local}
	for _, p := range peers {
		require.NoError(t, d.Refuses(g.local, p))
		c.Peers = append(c.Peers, cable.Cable{Peer: p, Driver: d})
	}
	s, links, err := cable.Plan(c)
	require.NoError(t, err)
	g.sync(t, s)
	return links
}

func (g *node) sync(t testing.TB, want dataplane.State) {
	t.Helper()
	g.ns.Do(func() {
		_, err := dataplane.Sync(context.Background(), g.host, want)
		require.NoError(t, err)
	})
}

// requireEngine skips where the driver cannot be.
func requireEngine(t testing.TB, d cable.Driver) {
	t.Helper()
	nstest.Root(t)
	nstest.WireGuard(t) // every gateway announces its key
	if d.Name() == cable.VXLANIPsec {
		nstest.Kernel(t, "esp")
	}
}

// requireSecret wants what was seen on the way to be unreadable, but for VXLAN, which shows
// that the test can see.
func requireSecret(t testing.TB, d cable.Driver, s nstest.Sight) {
	t.Helper()
	require.Equal(t, d.Name() == cable.VXLAN, s.Marker, "what pods say can be read on the way")
}

func newRouter(t testing.TB, name string) *nstest.NS {
	t.Helper()
	r := nstest.New(t, name)
	r.Run("sysctl -qw net.ipv4.ip_forward=1")
	return r
}

// Where the path between two gateways takes smaller packets than their devices, everything passes
// nevertheless, and fills it: nothing is fragmented, and TCP knows what fits.
func TestTrafficOnNarrowPath(t *testing.T) {
	const narrow = 1400
	each(t, func(t *testing.T, d cable.Driver) {
		requireEngine(t, d)
		router := newRouter(t, "router")
		east, west := newNode(t, 1, 11, router), newNode(t, 2, 11, router)
		router.Run(fmt.Sprintf("ip link set v2-11 mtu %d", narrow))
		here, there := pod(t, east), pod(t, west)
		toWest, toEast := west.seen(t), east.seen(t)
		toWest.MTU, toEast.MTU = narrow, narrow
		east.join(t, d, toWest)
		west.join(t, d, toEast)
		mtu := cable.Cable{Peer: toWest, Driver: d}.MTU(east.local)
		nstest.Until(t, here, there)
		watched := router.Watch("v2-11")
		nstest.Reach(t, here, there, mtu)
		nstest.Reach(t, there, here, mtu)
		s := watched()
		require.False(t, s.Fragments)
		require.LessOrEqual(t, s.Longest, narrow)
		require.Greater(t, s.Longest, narrow-16, "the path is filled, as far as a cipher's blocks allow")
		requireSecret(t, d, s)
	})
}

// A gateway behind a router that translates addresses is heard from an address that it does
// not know of, and comes to the other one.
func TestTrafficBehindNAT(t *testing.T) {
	for _, name := range []string{cable.WireGuard, cable.VXLANWireGuard, cable.IPsec} {
		t.Run(name, func(t *testing.T) {
			d := drivers.Find(name)
			requireEngine(t, d)
			fabric, nat := newRouter(t, "fabric"), newRouter(t, "nat")
			nstest.Join(nstest.End{NS: nat, Dev: "wan", Addr: "172.18.1.1/24"}, nstest.End{NS: fabric, Dev: "v1", Addr: "172.18.1.254/24"})
			nat.Run("ip route add default via 172.18.1.254; iptables -t nat -A POSTROUTING -o wan -j MASQUERADE --random")
			east, west := newNode(t, 1, 11, nat, 192, 168, 1), newNode(t, 2, 11, fabric)
			here, there := pod(t, east), pod(t, west)
			east.local.NAT = true
			toWest, toEast := west.seen(t), east.seen(t)
			toEast.NATed, toEast.Address, toEast.InboundOnly = true, netip.MustParseAddr("172.18.1.1"), true
			west.join(t, d, toEast)
			east.join(t, d, toWest)
			mtu := cable.Cable{Peer: toWest, Driver: d}.MTU(east.local)
			nstest.Until(t, here, there)
			watched := fabric.Watch("v1")
			nstest.Reach(t, here, there, mtu)
			nstest.Reach(t, there, here, mtu)
			s := watched()
			require.False(t, s.Fragments)
			require.False(t, s.Marker, "what pods say can be read on the way")
			west.ns.Do(func() {
				states, err := west.host.CableStates()
				require.NoError(t, err)
				require.Len(t, states, 1)
				require.True(t, states[0].Up, states[0].Message)
			})
		})
	}
}

// Of a cluster with two gateways, combined cables lead to both, and the traffic is spread. If
// one is gone, the other carries everything.
func TestTrafficOfTwoGateways(t *testing.T) {
	for _, name := range []string{cable.VXLAN, cable.VXLANWireGuard, cable.VXLANIPsec} {
		t.Run(name, func(t *testing.T) {
			d := drivers.Find(name)
			requireEngine(t, d)
			router := newRouter(t, "router")
			east := newNode(t, 1, 11, router)
			west := []*node{newNode(t, 2, 11, router), newNode(t, 2, 12, router)}
			here, there := pod(t, east), pod(t, west...)
			var more []nstest.Host // the kernel spreads by addresses
			for i := range 16 {
				ip := fmt.Sprintf("10.102.100.%d", 10+i)
				there.NS.Run("ip addr add " + ip + "/32 dev lo")
				more = append(more, nstest.Host{NS: there.NS, IP: ip})
			}
			toEast, toWest := east.seen(t), []cable.Peer{west[0].seen(t), west[1].seen(t)}
			links := east.join(t, d, toWest...)
			for i, g := range west {
				g.join(t, d, toEast)
				nstest.Until(t, nstest.Host{NS: east.ns, IP: links[i].From.String()}, nstest.Host{NS: g.ns, IP: links[i].IP.String()})
			}
			mtu := cable.Cable{Peer: toWest[0], Driver: d}.MTU(east.local)
			received := func() (out []string) {
				for _, g := range west {
					out = append(out, g.ns.Run("sed -n 's/.*"+links[0].Device+": *//p' /proc/net/dev | cut -d' ' -f1"))
				}
				return out
			}
			before := received()
			watched := []func() nstest.Sight{router.Watch("v2-11"), router.Watch("v2-12")}
			for _, to := range more {
				nstest.Until(t, here, to)
				nstest.Until(t, to, here)
			}
			nstest.Reach(t, here, there, mtu)
			nstest.Reach(t, there, here, mtu)
			for i, after := range received() {
				require.NotEqual(t, before[i], after, "gateway %d has a part in it", i)
			}
			sights := []nstest.Sight{watched[0](), watched[1]()}
			require.Equal(t, name == cable.VXLAN, slices.ContainsFunc(sights, func(s nstest.Sight) bool { return s.Marker }), "what pods say can be read on the way")

			west[1].ns.Run("ip link set eth0 down")
			there.NS.Run(fmt.Sprintf("ip route replace default src %s via 10.102.11.1", there.IP))
			east.join(t, d, toWest[0])
			for _, to := range more {
				nstest.Until(t, here, to)
			}
			nstest.Reach(t, here, there, mtu)
			west[1].ns.Run("ip link set eth0 up")
		})
	}
}
