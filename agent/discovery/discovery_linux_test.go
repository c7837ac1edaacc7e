package discovery

import (
	"context"
	"log/slog"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/cable"
	"subctl/cable/keys"
	"subctl/cable/natdiscovery"
	"subctl/dataplane"
	kernelprobe "subctl/dataplane/kernel/probe"
	"subctl/internal/nstest"
)

// seeker is a gateway that looks for others, in a network namespace.
type seeker struct {
	*Finder
	ns     *nstest.NS
	local  cable.Local
	cables []cable.Cable
}

var clusterPSK = []byte("a pre-shared key of 48 bytes, from the join file")

// newSeeker makes a gateway of a cluster; it does not look yet.
func newSeeker(t *testing.T, ns *nstest.NS, cluster, private string) *seeker {
	t.Helper()
	private1, err := keys.Generate()
	require.NoError(t, err)
	ip := netip.MustParseAddr(private)
	s := &seeker{ns: ns, local: cable.Local{
		Gateway: cable.Gateway{Cluster: cluster, Name: "submariner-cable-" + cluster, PrivateIP: ip},
		MTU:     1500, Keys: &keys.Ring{Cluster: cluster, Private: private1, PSK: clusterPSK},
	}}
	listen := func(ctx context.Context, port int) (conn Datagrams, err error) {
		ns.Do(func() { conn, err = kernelprobe.ListenUDP(ctx, port) })
		return conn, err
	}
	s.Finder = New(listen, slog.New(slog.DiscardHandler), func() {})
	return s
}

// peer is the gateway as another cluster sees it.
func (s *seeker) peer(public string) cable.Peer {
	p := cable.Peer{Gateway: s.local.Gateway, PublicKey: s.local.Keys.Private.Public()}
	if public != "" {
		p.PublicIP = netip.MustParseAddr(public)
	}
	return p
}

// look starts the gateway, which looks for another.
func (s *seeker) start(t *testing.T, peers ...cable.Peer) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s.Set(Search{Local: s.local, Peers: peers, Cables: s.cables})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Start(ctx) // only ends with its context
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// busy is what a machine that does other things may take longer.
const busy = 10 * time.Second

// finds waits until the way to a peer is as a test wants it, and returns it.
func (s *seeker) finds(
	t *testing.T,
	p cable.Peer,
	within time.Duration,
	is func(natdiscovery.Path) bool,
) natdiscovery.Path {
	t.Helper()
	var path natdiscovery.Path
	start := time.Now()
	for {
		if path = s.Paths()[p.Name]; is(path) {
			t.Logf("%s found %s after %v: %+v", s.local.Cluster, p.Cluster, time.Since(start).Round(time.Millisecond),
				path)
			return path
		}
		require.Less(t, time.Since(start), within+busy, "%s knows of %s: %+v", s.local.Cluster, p.Cluster, path)
		time.Sleep(5 * time.Millisecond)
	}
}

// wan is two gateways with routers between them: west has 10.0.1.1 in a private network
// behind its router nat, east 192.0.2.1; and the way between is a network of its own,
// 198.51.100.0/24, in which nat has the address .1 and the other router .2.
func wan(t *testing.T) (west, nat, router, east *nstest.NS) {
	t.Helper()
	west = nstest.New(t, "west")
	nat = nstest.New(t, "nat")
	router = nstest.New(t, "router")
	east = nstest.New(t, "east")
	nstest.Join(nstest.End{NS: west, Dev: "eth0", Addr: "10.0.1.1/24"},
		nstest.End{NS: nat, Dev: "inside", Addr: "10.0.1.254/24"})
	nstest.Join(nstest.End{NS: nat, Dev: "outside", Addr: "198.51.100.1/24"},
		nstest.End{NS: router, Dev: "wide", Addr: "198.51.100.2/24"})
	nstest.Join(nstest.End{NS: router, Dev: "inside", Addr: "192.0.2.254/24"},
		nstest.End{NS: east, Dev: "eth0", Addr: "192.0.2.1/24"})
	west.Run("ip route add default via 10.0.1.254")
	nat.Run("sysctl -qw net.ipv4.ip_forward=1 && ip route add default via 198.51.100.2")
	router.Run("sysctl -qw net.ipv4.ip_forward=1")
	east.Run("ip route add default via 192.0.2.254")
	return west, nat, router, east
}

// masquerade makes a translator of the router nat, which changes ports too.
const masquerade = "nft 'add table ip t; add chain ip t out { type nat hook postrouting priority 100; }; add rule ip t out oifname outside meta l4proto udp masquerade to :20000-30000'"

func TestDiscoveryDirect(t *testing.T) {
	w, nat, router, e := wan(t)
	router.Run("ip route add 10.0.1.0/24 via 198.51.100.1")
	_ = nat
	west := newSeeker(t, w, "west", "10.0.1.1")
	east := newSeeker(t, e, "east", "192.0.2.1")
	west.start(t, east.peer(""))
	east.start(t, west.peer("203.0.113.1"))
	for _, x := range []struct{ s, to *seeker }{{west, east}, {east, west}} {
		path := x.s.finds(t, x.to.peer(""), time.Second, func(p natdiscovery.Path) bool { return p.MTU != 0 })
		require.Equal(t, x.to.local.PrivateIP, path.Address)
		require.False(t, path.NAT)
		require.Equal(t, 1500, path.MTU)
		require.Regexp(t, `^[\d.]+:4490 private: answered in \d+(\.\d)? m?s$`, path.Attempts[0])
	}
}

// Behind a translator that nobody configured: the inside finds the outside, which
// then learns where the inside is.
func TestDiscoveryBehindTranslation(t *testing.T) {
	w, nat, _, e := wan(t)
	nat.Run(masquerade)
	west := newSeeker(t, w, "west", "10.0.1.1")
	east := newSeeker(t, e, "east", "192.0.2.1")
	east.start(t, west.peer("")) // it has asked in vain when west comes
	time.Sleep(100 * time.Millisecond)
	west.start(t, east.peer(""))

	inside := west.finds(t, east.peer(""), 3*time.Second, func(p natdiscovery.Path) bool { return p.MTU != 0 })
	require.Equal(t, "192.0.2.1", inside.Address.String())
	require.True(t, inside.NAT)
	require.Equal(t, 1500, inside.MTU)
	require.Contains(t, inside.Attempts[0], "192.0.2.1:4490 private: answered in")
	require.Contains(t, inside.Attempts[0], ", address translated")

	outside := east.finds(t, west.peer(""), 3*time.Second, func(p natdiscovery.Path) bool { return p.MTU != 0 })
	require.Equal(t, "198.51.100.1", outside.Address.String())
	require.True(t, outside.NAT)
	require.Contains(t, outside.Attempts[0], "10.0.1.1:4490 private: no answer in")
	require.Regexp(t, `^198\.51\.100\.1:2\d{4} learned: answered in .*, address translated$`, outside.Attempts[1])

	// Said once by the one gateway there is: not enough to tell others.
	require.False(t, west.PublicIP(netip.Addr{}).IsValid())
	west.known[east.local.Name].again.Send()
	require.Eventually(t, func() bool { return west.PublicIP(netip.Addr{}).IsValid() }, 30*time.Second,
		10*time.Millisecond)
	require.Equal(t, "198.51.100.1", west.PublicIP(netip.Addr{}).String())
	require.False(t, east.PublicIP(netip.Addr{}).IsValid())

	// Published, that address is asked too, but does not lead there.
	require.True(t, outside.InboundOnly)
	east.Set(Search{Local: east.local, Peers: []cable.Peer{west.peer("198.51.100.1")}})
	outside = east.finds(t, west.peer(""), 3*time.Second,
		func(p natdiscovery.Path) bool { return len(p.Attempts) == 3 })
	require.Contains(t, strings.Join(outside.Attempts, "\n"), "198.51.100.1:4490 public: no answer in")
	require.Equal(t, "198.51.100.1", outside.Address.String())
	require.True(t, outside.InboundOnly)
}

// The gateway outside learns the key of the gateway inside late. Before that, no answer counts.
func TestDiscoveryKeyComesLate(t *testing.T) {
	w, nat, _, e := wan(t)
	nat.Run(masquerade)
	west := newSeeker(t, w, "west", "10.0.1.1")
	east := newSeeker(t, e, "east", "192.0.2.1")
	peer := west.peer("")
	peer.PublicKey = keys.PublicKey{}
	east.start(t, peer)
	west.start(t, east.peer(""))
	early := west.finds(t, east.peer(""), 4*time.Second, func(p natdiscovery.Path) bool { return p.Done })
	require.False(t, early.Address.IsValid())
	require.Contains(t, early.Attempts[0], unsigned)
	east.Set(Search{Local: east.local, Peers: []cable.Peer{west.peer("")}})
	west.finds(t, east.peer(""), 6*time.Second, func(p natdiscovery.Path) bool { return p.MTU != 0 })
	path := east.finds(t, peer, 5*time.Second, func(p natdiscovery.Path) bool { return p.Address.IsValid() })
	require.Equal(t, "198.51.100.1", path.Address.String())
}

// With the translator's port forwarded, the public address answers, and is preferred
// to a learned one.
func TestDiscoveryForwarded(t *testing.T) {
	w, nat, _, e := wan(t)
	nat.Run(masquerade)
	nat.Run(
		"nft 'add chain ip t in { type nat hook prerouting priority -100; }; add rule ip t in iifname outside udp dport 4490 dnat to 10.0.1.1'")
	west := newSeeker(t, w, "west", "10.0.1.1")
	east := newSeeker(t, e, "east", "192.0.2.1")
	west.start(t, east.peer(""))
	east.start(t, west.peer("198.51.100.1"))
	path := east.finds(t, west.peer(""), 3*time.Second, func(p natdiscovery.Path) bool { return p.MTU != 0 })
	require.Equal(t, "198.51.100.1", path.Address.String())
	require.True(t, path.NAT)
	require.False(t, path.InboundOnly)
	require.Contains(t, path.Attempts[0], "10.0.1.1:4490 private: no answer in")
	require.Contains(t, path.Attempts[1], "198.51.100.1:4490 public: answered in")
}

// The MTU is that of the narrowest hop, with its ICMP errors or without.
func TestDiscoveryPathMTU(t *testing.T) {
	for name, silent := range map[string]bool{"icmp": false, "black hole": true} {
		t.Run(name, func(t *testing.T) {
			w, nat, router, e := wan(t)
			nat.Run(masquerade)
			nat.Run("ip link set outside mtu 1387")
			router.Run("ip link set wide mtu 1387")
			if silent {
				for _, ns := range []*nstest.NS{nat, router} {
					ns.Run("iptables -A OUTPUT -p icmp -j DROP")
				}
			}
			west := newSeeker(t, w, "west", "10.0.1.1")
			east := newSeeker(t, e, "east", "192.0.2.1")
			east.start(t, west.peer(""))
			west.start(t, east.peer(""))
			for _, x := range []struct{ s, to *seeker }{{west, east}, {east, west}} {
				// a busy machine takes several searches
				x.s.finds(t, x.to.peer(""), 3*time.Second, func(p natdiscovery.Path) bool { return p.MTU == 1387 })
			}
			// Later it shrinks, and then it grows.
			for _, mtu := range []string{"1300", "1400"} {
				nat.Run("ip link set outside mtu " + mtu)
				router.Run("ip link set wide mtu " + mtu)
				west.known[east.local.Name].again.Send()
				west.finds(t, east.peer(""), 3*time.Second,
					func(p natdiscovery.Path) bool { return strconv.Itoa(p.MTU) == mtu })
			}
		})
	}
}

// Nobody answers: that is known after 3 s, and what was known before stays.
func TestDiscoveryNoAnswer(t *testing.T) {
	w, nat, router, e := wan(t)
	router.Run("ip route add 10.0.1.0/24 via 198.51.100.1")
	west := newSeeker(t, w, "west", "10.0.1.1")
	east := newSeeker(t, e, "east", "192.0.2.1")
	peer := west.peer("198.51.100.77")
	east.start(t, peer)
	path := east.finds(t, peer, 4*time.Second, func(p natdiscovery.Path) bool { return p.Done })
	require.False(t, path.Address.IsValid())
	require.Regexp(t,
		`^10\.0\.1\.1:4490 private: no answer in [\d.]+ s 198\.51\.100\.77:4490 public: no answer in [\d.]+ s$`,
		strings.Join(path.Attempts, " "))

	time.Sleep(askFor) // a gateway that was not found and asks is looked for at once
	west.start(t, east.peer(""))
	east.finds(t, peer, time.Second, func(p natdiscovery.Path) bool { return p.MTU == 1500 })

	nat.Run("iptables -I FORWARD -j DROP")
	east.Again(peer.Name)
	require.Empty(t, east.known[peer.Name].again, "looked for a moment ago")
	east.known[peer.Name].again.Send()
	path = east.finds(t, peer, 4*time.Second,
		func(p natdiscovery.Path) bool { return strings.Contains(p.Attempts[0], "no answer") })
	require.Equal(t, west.local.PrivateIP, path.Address)
	require.Equal(t, 1500, path.MTU)
	require.False(t, path.Lost, "its agent may just restart")

	t.Log("the second search tells that the agent of a gateway has gone, and any answer that it is back")
	path = east.finds(t, peer, lookAgain+2*askFor, func(p natdiscovery.Path) bool { return p.Lost })
	require.Equal(t, west.local.PrivateIP, path.Address)
	nat.Run("iptables -D FORWARD -j DROP")
	east.known[peer.Name].again.Send()
	east.finds(t, peer, 2*askFor, func(p natdiscovery.Path) bool { return !p.Lost })
}

// That the port is taken is said where a user looks.
func TestDiscoveryPortTaken(t *testing.T) {
	w, _, router, e := wan(t)
	router.Run("ip route add 10.0.1.0/24 via 198.51.100.1")
	west := newSeeker(t, w, "west", "10.0.1.1")
	east := newSeeker(t, e, "east", "192.0.2.1")
	var taken *kernelprobe.UDP
	w.Do(func() {
		var err error
		taken, err = kernelprobe.ListenUDP(t.Context(), dataplane.NATDiscoveryPort)
		require.NoError(t, err)
	})
	defer taken.Close()
	west.start(t, east.peer(""))
	path := west.finds(t, east.peer(""), time.Second, func(p natdiscovery.Path) bool { return p.Done })
	require.Contains(t, path.Attempts[0], "UDP port 4490")
	require.False(t, path.Address.IsValid())
}

// An address inside a network behind a cable is not asked: packets to it would go into
// that cable.
func TestDiscoveryDoesNotAskInsideOthersNetworks(t *testing.T) {
	w, _, router, e := wan(t)
	router.Run("ip route add 10.0.1.0/24 via 198.51.100.1")
	west := newSeeker(t, w, "west", "10.0.1.1")
	east := newSeeker(t, e, "east", "192.0.2.1")
	evil := cable.Peer{
		Gateway: cable.Gateway{
			Cluster:   "evil",
			Name:      "evil",
			PrivateIP: netip.MustParseAddr("203.0.113.1"),
			Subnets:   []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")},
		},
	}
	east.start(t, west.peer(""))
	west.cables = []cable.Cable{{Peer: evil}}
	west.start(t, east.peer(""), evil)
	path := west.finds(t, east.peer(""), 4*time.Second, func(p natdiscovery.Path) bool { return p.Done })
	require.False(t, path.Address.IsValid())
	require.Equal(t, "192.0.2.1:4490 private: not asked: it is in 192.0.2.0/24 of cluster evil", path.Attempts[0])
}
