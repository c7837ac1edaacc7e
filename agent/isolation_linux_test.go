package agent

import (
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	vnl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"subctl/internal/nstest"
)

// A port of a worker whose Service has a pod of another cluster, and whose packets the CNI translates to
// come from the worker, is no way from one cable to another: the worker sends back to a gateway nothing that
// came from one.
func TestHostileTransitThroughWorker(t *testing.T) {
	fabric := newFabric(t)
	hub, west, north := newSide(t, fabric, 1, "hub"), newSide(t, fabric, 2, "west"), newSide(t, fabric, 3, "north")
	hub.sync(t, west, north)
	west.sync(t, hub)
	north.sync(t, hub)
	reach(t, west, "worker", hub, "worker")
	reach(t, hub, "worker", north, "worker")
	worker, victim := hub.nodes["worker"], north.pods["worker"]
	worker.Run("iptables -P FORWARD ACCEPT; iptables -t nat -A PREROUTING -p udp --dport 30080 -j DNAT --to-destination " + north.podIP("worker") + ":8080; iptables -t nat -I POSTROUTING -p udp --dport 8080 -j SNAT --to-source 10.111.2.1")
	victim.Run("iptables -t raw -A PREROUTING -p udp --dport 8080")
	seen := func() bool {
		return strings.Fields(victim.Run("iptables -t raw -nvxL PREROUTING | grep dpt:8080"))[0] != "0"
	}
	send := func() {
		west.pods["worker"].Do(func() {
			c, err := net.Dial("udp4", "10.111.2.1:30080") // the worker's own address among the pods
			require.NoError(t, err)
			defer c.Close()
			_, err = c.Write([]byte("x"))
			require.NoError(t, err)
		})
	}
	for range 5 {
		send()
	}
	reach(t, west, "worker", hub, "worker") // takes longer than a packet on its way
	require.False(t, seen())
	require.Contains(t, worker.Run("nft list set ip submariner-route-antispoof clusters"), `counter packets 5 `, "the worker has dropped them")
	worker.Run("nft flush chain ip submariner-route-antispoof forward")
	require.Eventually(t, func() bool { send(); return seen() }, 10*time.Second, 100*time.Millisecond, "the attack does not work even without a defense")
}

// When a cluster leaves, established connections from and to it end within 3 s, also those of a Service, and leave
// no conntrack entry with its translation. Connections of others lose nothing.
func TestFlowsOfALeavingCluster(t *testing.T) {
	fabric := newFabric(t)
	hub, west, north := newSide(t, fabric, 1, "hub"), newSide(t, fabric, 2, "west"), newSide(t, fabric, 3, "north")
	hub.sync(t, west, north)
	west.sync(t, hub)
	north.sync(t, hub)
	const service = "10.101.0.10" // of a pod on the hub's worker, at its gateway
	hub.nodes["gw"].Run("iptables -t nat -A PREROUTING -d " + service + " -p udp -j DNAT --to-destination " + hub.podIP("worker"))
	for _, s := range []*side{west, north} {
		nstest.Until(t, nstest.Host{NS: s.pods["worker"], IP: s.podIP("worker")}, nstest.Host{NS: hub.pods["worker"], IP: hub.podIP("worker")})
	}
	ended := north.pods["gw"].Ping(100, "-I "+north.podIP("gw")+" "+hub.podIP("worker"))
	stays, leaves := echo(t, north, hub, hub.podIP("worker")), echo(t, west, hub, hub.podIP("worker"))
	toService := echo(t, west, hub, service)
	fromHub := echo(t, hub, west, west.podIP("worker"))
	for _, f := range []*flow{stays, leaves, toService, fromHub} {
		require.Eventually(t, func() bool { return f.last() > 0 }, 10*time.Second, 10*time.Millisecond)
	}
	hub.sync(t, north)
	changed := time.Now()
	time.Sleep(3 * time.Second)
	for _, f := range []*flow{leaves, toService, fromHub} {
		require.Less(t, f.last(), changed.Add(3*time.Second).UnixNano())
		before := f.last()
		time.Sleep(200 * time.Millisecond)
		require.Equal(t, before, f.last(), "it goes on")
	}
	require.Greater(t, stays.last(), time.Now().Add(-time.Second).UnixNano())
	_, lost := ended()
	require.Zero(t, lost)
	for _, entry := range flows(t, hub.nodes["gw"]) {
		require.False(t, entry.Reverse.SrcIP.String() == hub.podIP("worker") && netip.MustParsePrefix("10.112.0.0/16").Contains(addr(entry.Forward.SrcIP)), "%v", entry)
	}
}

// flow is a datagram of one pod to another, again and again, and the answers to it.
type flow struct{ answered atomic.Int64 }

// last returns when the last answer arrived, in nanoseconds since 1970; 0 if none did.
func (f *flow) last() int64 { return f.answered.Load() }

// echo sends from the worker's pod of one cluster to an address that leads to the worker's pod of another.
func echo(t *testing.T, from, to *side, address string) *flow {
	t.Helper()
	var server, client *net.UDPConn
	var err error
	to.pods["worker"].Do(func() { server, err = net.ListenUDP("udp4", &net.UDPAddr{}) })
	require.NoError(t, err)
	port := server.LocalAddr().(*net.UDPAddr).Port
	from.pods["worker"].Do(func() { client, err = net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.ParseIP(address), Port: port}) })
	require.NoError(t, err)
	t.Cleanup(func() { server.Close(); client.Close() })
	go func() {
		b := make([]byte, 10)
		for {
			n, peer, err := server.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = server.WriteTo(b[:n], peer) // an answer that is lost is what the test is about
		}
	}()
	f := &flow{}
	go func() {
		b := make([]byte, 10)
		for {
			if _, err := client.Read(b); err == nil {
				f.answered.Store(time.Now().UnixNano())
			} else if strings.Contains(err.Error(), "closed") {
				return
			}
		}
	}()
	go func() {
		for {
			if _, err := client.Write([]byte("x")); err != nil && strings.Contains(err.Error(), "closed") {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	return f
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
