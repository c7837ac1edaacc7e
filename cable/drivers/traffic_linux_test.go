package drivers_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/cable"
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
	g.local.PrivateIP = netip.AddrFrom4(ip)
	g.local.Name = fmt.Sprintf("cable-c%d-%d", c, n)
	g.local.PodIP = netip.AddrFrom4([4]byte{10, 100 + c, n, 1})
	g.ns.Private(nstest.UAPIDir)
	gateway := netip.AddrFrom4([4]byte{ip[0], ip[1], ip[2], 254})
	nstest.Join(nstest.End{NS: g.ns, Dev: "eth0", Addr: g.local.PrivateIP.String() + "/24"},
		nstest.End{NS: router, Dev: fmt.Sprintf("v%d-%d", c, n)})
	// What the kernel would send as one large packet is to be seen as it would be on a wire.
	router.Run(
		fmt.Sprintf(
			"ip addr add %v/32 dev v%d-%d; ip route add %v dev v%[2]d-%[3]d; ip link set v%[2]d-%[3]d gso_max_segs 1",
			gateway, c, n, g.local.PrivateIP),
	)
	g.ns.Run(
		fmt.Sprintf(
			"ip route add default via %v; ip link set eth0 gso_max_segs 1; sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=1",
			gateway),
	)
	g.ns.Do(func() {
		f, err := kernel.ReadFacts()
		require.NoError(t, err)
		g.local.WireGuard = f.WireGuard
		g.local.IPsec = f.IPsec
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
		dev := fmt.Sprintf("eth%d", g.n)
		near := fmt.Sprintf("10.%d.%d", 100+c, g.n)
		nstest.Join(nstest.End{NS: g.ns, Dev: "cni0", Addr: near + ".1/24"},
			nstest.End{NS: p.NS, Dev: dev, Addr: near + ".5/24"})
		g.ns.Run(fmt.Sprintf("ip route add 10.%d.100.0/24 via %s.5", 100+c, near))
		way += fmt.Sprintf(" nexthop via %s.1", near)
	}
	p.NS.Run(way)
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

// requireEngine skips the test where the node cannot have the driver.
func requireEngine(t testing.TB, d cable.Driver) {
	t.Helper()
	nstest.Root(t)
	nstest.WireGuard(t) // every gateway announces its key
	userspace := local(1)
	userspace.WireGuard.Name = "a program"
	userspace.IPsec.Name = "a program"
	if d.Lacks(userspace) != nil {
		nstest.Kernel(
			t,
			map[cable.Protocol]string{
				cable.ProtocolWireGuard: "wireguard",
				cable.ProtocolIPsec:     "esp",
			}[d.Properties().Engine],
		)
	}
}

// requireSecret requires that the marker in what pods send was not seen on the way if the
// driver encrypts, and was seen otherwise, which shows that the test can see it.
func requireSecret(t testing.TB, d cable.Driver, sights ...nstest.Sight) {
	t.Helper()
	seen := slices.ContainsFunc(sights, func(s nstest.Sight) bool { return s.Marker })
	require.Equal(t, !d.Properties().Encrypts, seen, "what pods send can be read on the way")
}

// eachWith runs a test for every driver that has a property.
func eachWith(t *testing.T, has func(cable.Properties) bool, f func(*testing.T, cable.Driver)) {
	for _, d := range all() {
		if has(d.Properties()) {
			t.Run(d.Name(), func(t *testing.T) { f(t, d) })
		}
	}
}

func newRouter(t testing.TB, name string) *nstest.NS {
	t.Helper()
	r := nstest.New(t, name)
	r.Run("sysctl -qw net.ipv4.ip_forward=1")
	return r
}

// reachBothWays requires that packets of up to mtu bytes pass between two pods, none of them
// fragmented, and returns what was seen on a device of the router between their gateways.
func reachBothWays(t *testing.T, mtu int, here, there nstest.Host, router *nstest.NS, dev string) nstest.Sight {
	t.Helper()
	nstest.Until(t, here, there)
	watched := router.Watch(dev)
	nstest.Reach(t, here, there, mtu)
	nstest.Reach(t, there, here, mtu)
	s := watched()
	require.False(t, s.Fragments)
	return s
}

// Where the path between two gateways takes smaller packets than their devices, everything passes
// nevertheless, and fills it: nothing is fragmented, and TCP knows what fits.
func TestTrafficOnNarrowPath(t *testing.T) {
	const narrow = 1400
	each(t, func(t *testing.T, d cable.Driver) {
		requireEngine(t, d)
		router := newRouter(t, "router")
		east := newNode(t, 1, 11, router)
		west := newNode(t, 2, 11, router)
		router.Run(fmt.Sprintf("ip link set v2-11 mtu %d", narrow))
		here := pod(t, east)
		there := pod(t, west)
		toWest := asPeer(t, west.local)
		toEast := asPeer(t, east.local)
		toWest.MTU = narrow
		toEast.MTU = narrow
		east.join(t, d, toWest)
		west.join(t, d, toEast)
		s := reachBothWays(t, cable.Cable{Peer: toWest, Driver: d}.MTU(east.local), here, there, router, "v2-11")
		require.LessOrEqual(t, s.Longest, narrow)
		require.Greater(t, s.Longest, narrow-16, "the path is filled, as far as a cipher's blocks allow")
		requireSecret(t, d, s)
	})
}

// A gateway behind a router that translates addresses is heard from an address that it does
// not know of, and comes to the other one.
func TestTrafficBehindNAT(t *testing.T) {
	eachWith(t, func(p cable.Properties) bool { return p.PassesNAT }, func(t *testing.T, d cable.Driver) {
		requireEngine(t, d)
		fabric := newRouter(t, "fabric")
		nat := newRouter(t, "nat")
		nstest.Join(nstest.End{NS: nat, Dev: "wan", Addr: "172.18.1.1/24"},
			nstest.End{NS: fabric, Dev: "v1", Addr: "172.18.1.254/24"})
		nat.Run("ip route add default via 172.18.1.254; iptables -t nat -A POSTROUTING -o wan -j MASQUERADE --random")
		east := newNode(t, 1, 11, nat, 192, 168, 1)
		west := newNode(t, 2, 11, fabric)
		here := pod(t, east)
		there := pod(t, west)
		east.local.NAT = true
		toWest := asPeer(t, west.local)
		toEast := asPeer(t, east.local)
		toEast.NATed = true
		toEast.Address = netip.MustParseAddr("172.18.1.1")
		toEast.InboundOnly = true
		west.join(t, d, toEast)
		east.join(t, d, toWest)
		requireSecret(t, d,
			reachBothWays(t, cable.Cable{Peer: toWest, Driver: d}.MTU(east.local), here, there, fabric, "v1"))
		west.ns.Do(func() {
			states, err := west.host.CableStates()
			require.NoError(t, err)
			require.Equal(t, d.Properties().Engine != cable.ProtocolNone, len(states) == 1, "%v", states)
			for _, s := range states {
				require.True(t, s.Up, s.Message)
			}
		})
	})
}

// Of a cluster with two gateways, drivers without a limit lead to both, and the traffic is spread.
// If one is gone, the other carries everything.
func TestTrafficOfTwoGateways(t *testing.T) {
	eachWith(t, func(p cable.Properties) bool { return p.MaxGateways == 0 }, func(t *testing.T, d cable.Driver) {
		requireEngine(t, d)
		router := newRouter(t, "router")
		east := newNode(t, 1, 11, router)
		west := []*node{newNode(t, 2, 11, router), newNode(t, 2, 12, router)}
		here := pod(t, east)
		there := pod(t, west...)
		var more []nstest.Host // the kernel spreads by addresses
		for i := range 16 {
			ip := fmt.Sprintf("10.102.100.%d", 10+i)
			there.NS.Run("ip addr add " + ip + "/32 dev lo")
			more = append(more, nstest.Host{NS: there.NS, IP: ip})
		}
		toEast := asPeer(t, east.local)
		toWest := []cable.Peer{asPeer(t, west[0].local), asPeer(t, west[1].local)}
		links := east.join(t, d, toWest...)
		for i, g := range west {
			g.join(t, d, toEast)
			nstest.Until(t, nstest.Host{NS: east.ns, IP: links[i].From.String()},
				nstest.Host{NS: g.ns, IP: links[i].IP.String()})
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
		requireSecret(t, d, watched[0](), watched[1]())

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
