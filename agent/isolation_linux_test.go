package agent

import (
	"errors"
	"io"
	"maps"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	vnl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"subctl/internal/nstest"
)

// A Service may have a backend that is no pod, such as the address of a node: kube-proxy translates
// both addresses of its connections. Other clusters reach it through the gateway.
func TestServiceOfANode(t *testing.T) {
	fabric := newFabric(t)
	hub := newSide(t, fabric, 1, "hub")
	west := newSide(t, fabric, 2, "west")
	hub.sync(t, west)
	west.sync(t, hub)
	reach(t, west, "worker", hub, "worker")
	const service = "10.101.0.10"
	gateway := hub.nodes["gw"]
	gateway.Run(
		"iptables -P FORWARD ACCEPT; iptables -t nat -A PREROUTING -d " + service +
			" -j DNAT --to-destination 172.18.1.12; iptables -t nat -I POSTROUTING -d 172.18.1.12 -m conntrack --ctstate DNAT -j MASQUERADE",
	)
	for _, network := range []string{"tcp4", "udp4"} {
		f := echoOf(t, network, west, hub.nodes["worker"], service)
		require.Eventually(t, func() bool { return f.last() > 0 }, 10*time.Second, 10*time.Millisecond, network)
	}
	require.Zero(t, isolationDrops(t, hub)["west"])
}

// When a cluster leaves, established connections from and to it end within 3 s, of UDP and of TCP,
// also those of a Service, and leave no conntrack entry with its translation. Connections of others
// lose nothing.
func TestFlowsOfALeavingCluster(t *testing.T) {
	fabric := newFabric(t)
	hub := newSide(t, fabric, 1, "hub")
	west := newSide(t, fabric, 2, "west")
	north := newSide(t, fabric, 3, "north")
	hub.sync(t, west, north)
	west.sync(t, hub)
	north.sync(t, hub)
	const service = "10.101.0.10" // of a pod on the hub's worker, at its gateway
	hub.nodes["gw"].Run(
		"iptables -t nat -A PREROUTING -d " + service + " -j DNAT --to-destination " + hub.podIP("worker"))
	for _, s := range []*side{west, north} {
		nstest.Until(t, nstest.Host{NS: s.pods["worker"], IP: s.podIP("worker")},
			nstest.Host{NS: hub.pods["worker"], IP: hub.podIP("worker")})
	}
	ended := north.pods["gw"].Ping(100, "-I "+north.podIP("gw")+" "+hub.podIP("worker"))
	stay := map[string]*flow{}
	leave := map[string]*flow{}
	for _, network := range []string{"udp4", "tcp4"} {
		stay[network+" from north"] = echo(t, network, north, hub, hub.podIP("worker"))
		stay[network+" from north to the Service"] = echo(t, network, north, hub, service)
		stay[network+" to north"] = echo(t, network, hub, north, north.podIP("worker"))
		leave[network+" from west"] = echo(t, network, west, hub, hub.podIP("worker"))
		leave[network+" from west to the Service"] = echo(t, network, west, hub, service)
		leave[network+" to west"] = echo(t, network, hub, west, west.podIP("worker"))
	}
	for _, all := range []map[string]*flow{stay, leave} {
		for what, f := range all {
			require.Eventually(t, func() bool { return f.last() > 0 }, 10*time.Second, 10*time.Millisecond, what)
		}
	}
	west16 := netip.MustParsePrefix("10.112.0.0/16")
	established := 0
	// what the hub's pods send now takes the default route, and is translated
	old := func(entry *vnl.ConntrackFlow) bool {
		return west16.Contains(addr(entry.Forward.SrcIP)) ||
			west16.Contains(addr(entry.Forward.DstIP)) && entry.Reverse.DstIP.String() == hub.podIP("worker")
	}
	for _, entry := range flows(t, hub.nodes["gw"]) {
		if old(entry) {
			established++
		}
	}
	require.GreaterOrEqual(t, established, len(leave))
	hub.sync(t, north)
	changed := time.Now()
	last := answered(leave)
	for moreAnswers(t, stay); !maps.Equal(last, answered(leave)); moreAnswers(t, stay) {
		last = answered(leave)
		require.Less(t, time.Since(changed), 10*time.Second, "connections go on")
	}
	for what, at := range last {
		require.Less(t, at, changed.Add(3*time.Second).UnixNano(), what)
	}
	for range 5 {
		moreAnswers(t, stay)
	}
	require.Equal(t, last, answered(leave), "connections go on")
	for what, f := range stay {
		require.Less(t, f.gap(), 2*time.Second, "%s was interrupted", what)
	}
	_, lost := ended()
	require.Zero(t, lost)
	for _, entry := range flows(t, hub.nodes["gw"]) {
		require.False(t, old(entry), "%v", entry)
	}
}

// flow is a message of one pod to another, again and again, and the answers to it.
type flow struct{ answered, answers, longest atomic.Int64 }

// answered returns when the last answers of flows arrived.
func answered(flows map[string]*flow) map[string]int64 {
	out := map[string]int64{}
	for what, f := range flows {
		out[what] = f.last()
	}
	return out
}

// moreAnswers waits until each flow has got 20 more answers. One is sent for every 10 ms.
func moreAnswers(t *testing.T, flows map[string]*flow) {
	t.Helper()
	want := map[string]int64{}
	for what, f := range flows {
		want[what] = f.answers.Load() + 20
	}
	for what, f := range flows {
		require.Eventually(t, func() bool { return f.answers.Load() >= want[what] }, 10*time.Second,
			10*time.Millisecond, what)
	}
}

// last returns when the last answer arrived, in nanoseconds since 1970; 0 if none did.
func (f *flow) last() int64 { return f.answered.Load() }

// gap returns the longest time between two answers.
func (f *flow) gap() time.Duration { return time.Duration(f.longest.Load()) }

// read notes when answers arrive, until the connection is closed.
func (f *flow) read(c net.Conn) {
	b := make([]byte, 10)
	for {
		if _, err := c.Read(b); err == nil {
			f.answers.Add(1)
			now := time.Now().UnixNano()
			if last := f.answered.Swap(now); last > 0 {
				f.longest.Store(max(f.longest.Load(), now-last))
			}
		} else if !errors.Is(err, unix.ECONNREFUSED) {
			return
		}
	}
}

// echo sends from the worker's pod of one cluster to an address that leads to the worker's pod of
// another, over "udp4" or "tcp4".
func echo(t *testing.T, network string, from, to *side, address string) *flow {
	t.Helper()
	return echoOf(t, network, from, to.pods["worker"], address)
}

// echoOf is like echo; the address leads to a server in a network namespace.
func echoOf(t *testing.T, network string, from *side, to *nstest.NS, address string) *flow {
	t.Helper()
	var server io.Closer
	var at net.Addr
	var client net.Conn
	to.Do(func() {
		if network == "tcp4" {
			l, err := net.Listen(network, "0.0.0.0:0")
			require.NoError(t, err)
			server = l
			at = l.Addr()
			go echoTCP(l)
			return
		}
		c, err := net.ListenPacket(network, "0.0.0.0:0")
		require.NoError(t, err)
		server = c
		at = c.LocalAddr()
		go echoUDP(c)
	})
	_, port, err := net.SplitHostPort(at.String())
	require.NoError(t, err)
	from.pods["worker"].Do(
		func() { client, err = net.DialTimeout(network, net.JoinHostPort(address, port), 5*time.Second) })
	require.NoError(t, err)
	t.Cleanup(func() { server.Close(); client.Close() })
	f := &flow{}
	go f.read(client)
	go func() {
		for {
			if _, err := client.Write([]byte("x")); errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	return f
}

// echoUDP answers every datagram.
func echoUDP(c net.PacketConn) {
	b := make([]byte, 10)
	for {
		n, peer, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		_, _ = c.WriteTo(b[:n], peer) // an answer that is lost is what the test is about
	}
}

// echoTCP answers on every connection, until the listener is closed and the connections have ended.
func echoTCP(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			_, _ = io.Copy(c, c) // an answer that is lost is what the test is about
		}()
	}
}

// flows returns the conntrack entries of a node.
func flows(t *testing.T, ns *nstest.NS) (all []*vnl.ConntrackFlow) {
	t.Helper()
	ns.Do(func() {
		var err error
		all, err = vnl.ConntrackTableList(vnl.ConntrackTable, unix.AF_INET)
		require.NoError(t, err)
	})
	return all
}

func addr(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip.To4())
	return a
}
