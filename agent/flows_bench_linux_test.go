package agent

import (
	"fmt"
	"maps"
	"math"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	vnl "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/dataplane"
	"subctl/internal/measure"
)

// crowd is a cluster of several gateways and a worker, whose pod has UDP flows to a pod on the
// worker of another cluster: a datagram from each port, and its answer.
type crowd struct {
	t          testing.TB
	east, west *side
}

// nodesOf returns the names of so many gateways, 4 at most, and of a worker.
func nodesOf(gateways int) []string {
	return append(slices.Clone([]string{"gw", "gw2", "gw3", "gw4"}[:gateways]), "worker")
}

func newCrowd(t testing.TB, gateways int) *crowd {
	t.Helper()
	fabric := newFabric(t)
	c := &crowd{
		t:    t,
		east: newSideOf(t, fabric, 1, "east", gateways, nodesOf(gateways)...),
		west: newSide(t, fabric, 2, "west"),
	}
	c.sync()
	answerAll(t, c.west.pods["worker"], c.west.podIP("worker")+":8080")
	return c
}

func (c *crowd) sync() { c.east.sync(c.t, c.west); c.west.sync(c.t, c.east) }

// leave makes the first gateway forward nothing. All others have noticed, and connections do not
// wait for it any more.
func (c *crowd) leave() {
	down := role.Health{Status: submarinerv1.ConnectionError}
	c.east.nodes["gw"].Run(
		"nft 'table ip cut { chain forward { type filter hook forward priority -400; policy drop; }; }'")
	for _, node := range c.east.names[1:] {
		c.east.health[node] = map[string]role.Health{"gateway/gw": down}
	}
	c.west.health["gw"] = map[string]role.Health{c.east.cableOf(0) + " over vxlan-tunnel": down}
	c.sync()
}

// comeBack ends leave.
func (c *crowd) comeBack() {
	c.east.nodes["gw"].Run("nft delete table ip cut")
	clear(c.east.health)
	clear(c.west.health)
	c.sync()
}

// forget makes the kernels of all nodes forget all connections.
func (c *crowd) forget() {
	for _, s := range []*side{c.east, c.west} {
		for _, ns := range s.nodes {
			ns.Do(func() { require.NoError(c.t, vnl.ConntrackTableFlush(vnl.ConntrackTable)) })
		}
	}
}

// flows sends a datagram of so many flows, from a port on, each when the one before it was
// answered, and returns their gateways.
func (c *crowd) flows(from, n int) map[tuple]string {
	c.t.Helper()
	to := net.UDPAddrFromAddrPort(netip.MustParseAddrPort(c.west.podIP("worker") + ":8080"))
	self := net.ParseIP(c.east.podIP("worker"))
	b := make([]byte, 1)
	c.east.pods["worker"].Do(func() {
		for port := from; port < from+n; port++ {
			u, err := net.DialUDP("udp4", &net.UDPAddr{IP: self, Port: port}, to)
			require.NoError(c.t, err)
			require.NoError(c.t, u.SetDeadline(time.Now().Add(5*time.Second)))
			_, err = u.Write(b)
			require.NoError(c.t, err)
			_, err = u.Read(b)
			require.NoError(c.t, err, "the answer to the flow from port %d", port)
			u.Close()
		}
	})
	via := c.east.chosen(c.t)
	maps.DeleteFunc(via, func(f tuple, _ string) bool {
		return f.proto != unix.IPPROTO_UDP || int(f.port) < from || int(f.port) >= from+n
	})
	require.Len(c.t, via, n, "each flow has a gateway")
	return via
}

// requireCarried fails unless each flow passes the gateway that its mark tells, and no other one.
func (c *crowd) requireCarried(via map[tuple]string) {
	c.t.Helper()
	carried := map[tuple]string{}
	for _, gw := range c.east.names[:c.east.gateways] {
		for f := range tracked(c.t, c.east.nodes[gw], c.east.podIP("worker")) {
			require.Empty(c.t, carried[f], "%v passes two gateways", f)
			carried[f] = gw
		}
	}
	require.Equal(c.t, via, carried)
}

// movedOthers returns how many flows through other gateways than the first one have moved, in
// percent of all.
func movedOthers[F comparable](was, is map[F]string) float64 {
	n := 0
	for f, gw := range was {
		if gw != "gw" && is[f] != gw {
			n++
		}
	}
	return 100 * float64(n) / float64(len(was))
}

// ofFirst returns the part of flows that use the first gateway.
func ofFirst[F comparable](via map[F]string) float64 {
	n := 0
	for _, gw := range via {
		if gw == "gw" {
			n++
		}
	}
	return float64(n) / float64(len(via))
}

// unfair returns by how much the first gateway's part of flows differs from its share, one of so
// many, in percent of the share.
func unfair[F comparable](via map[F]string, gateways int) float64 {
	return 100 * math.Abs(ofFirst(via)*float64(gateways)-1)
}

// BenchmarkFlowsMoved measures which of 10,000 flows of a worker move when one of several gateways
// of its cluster leaves, and comes back, and how many of 10,000 new ones that gateway gets then.
// The flows are real ones, between two pods, and differ by their ports only.
func BenchmarkFlowsMoved(b *testing.B) {
	const first, live, fresh = 10000, 10000, 10000
	for gateways := 2; gateways <= 4; gateways++ {
		c := newCrowd(b, gateways)
		var moved, back, difference measure.Values
		for turn := range measure.Times(3) {
			c.forget()
			before := c.flows(first, live)
			if turn == 0 {
				c.requireCarried(before)
			}
			c.leave()
			during := c.flows(first, live)
			require.Zero(b, ofFirst(during))
			c.comeBack()
			after := c.flows(first, live)
			more := c.flows(first+live, fresh)
			moved = append(moved, movedOthers(before, during))
			back = append(back, movedOthers(during, after))
			difference = append(difference, unfair(more, gateways))
		}
		measure.Record(
			b,
			measure.AtMost(fmt.Sprintf("1 of %d gateways leaves: flows of the others that move", gateways), moved, 1,
				"%"),
			measure.AtMost(fmt.Sprintf("1 of %d gateways returns: flows that move", gateways), back, 0, "%"),
			measure.AtMost(
				fmt.Sprintf("1 of %d gateways returns: difference of its share of new flows from its weight", gateways),
				difference, 10, "%"),
		)
	}
}

// pair is the addresses of two pods.
type pair struct{ from, to netip.Addr }

// pairs returns the gateways of west by which a gateway of east sends packets of so many pairs of
// addresses, from a number on, below 65,536. The kernel is asked as if it forwarded a packet from
// one of the node's pods.
func pairs(t testing.TB, east, west *side, first, n int) map[pair]string {
	t.Helper()
	byVTEP := map[string]string{}
	via := map[pair]string{}
	for i, e := range west.endpoints() {
		byVTEP[cable.VTEPOf(dataplane.VXLANNet, netip.MustParseAddr(e.Spec.PrivateIP)).String()] = west.names[i]
	}
	east.nodes["gw"].Do(func() {
		cni, err := net.InterfaceByName("cni0")
		require.NoError(t, err)
		for i := first; i < first+n; i++ {
			p := pair{
				netip.AddrFrom4([4]byte{10, 111, 1, byte(2 + i%250)}),
				netip.AddrFrom4([4]byte{10, 112, byte(i >> 8), byte(i)}),
			}
			routes, err := vnl.RouteGetWithOptions(p.to.AsSlice(),
				&vnl.RouteGetOptions{SrcAddr: p.from.AsSlice(), IifIndex: cni.Index})
			require.NoError(t, err)
			gw, known := byVTEP[routes[0].Gw.String()]
			require.True(t, known, "%v", routes[0])
			via[p] = gw
		}
	})
	return via
}

// BenchmarkPairsMoved measures the same of the gateways of another cluster, which a gateway chooses
// by pairs of addresses: 300 go on, and there are 10,000 new ones. What more of them would change,
// cable.BenchmarkBuckets measures.
func BenchmarkPairsMoved(b *testing.B) {
	const live, fresh = 300, 10000
	for gateways := 2; gateways <= 4; gateways++ {
		var moved, back, difference measure.Values
		for turn := range measure.Times(5) {
			first := turn * (live + fresh)
			fabric := newFabric(b)
			east := newSide(b, fabric, 1, "east")
			west := newSideOf(b, fabric, 2, "west", gateways, nodesOf(gateways)...)
			observe := func(health map[string]role.Health) {
				east.health["gw"] = health
				east.sync(b, west)
				// two of the longest clock ticks: a bucket that is used in the tick in which it has
				// moved counts as unused
				time.Sleep(20 * time.Millisecond)
			}
			observe(nil)
			before := pairs(b, east, west, first, live)
			observe(
				map[string]role.Health{west.cableOf(0) + " over vxlan-tunnel": {Status: submarinerv1.ConnectionError}})
			during := pairs(b, east, west, first, live)
			require.Zero(b, ofFirst(during))
			observe(nil)
			after := pairs(b, east, west, first, live)
			more := pairs(b, east, west, first+live, fresh)
			moved = append(moved, movedOthers(before, during))
			back = append(back, movedOthers(during, after))
			difference = append(difference, unfair(more, gateways))
		}
		name := fmt.Sprintf("1 of %d gateways of another cluster ", gateways)
		measure.Record(
			b,
			measure.AtMost(name+"leaves: pairs of addresses of the others that move", moved, 1, "%"),
			measure.AtMost(name+"returns: pairs of addresses that move", back, 0, "%"),
			measure.AtMost(name+"returns: difference of its share of new pairs of addresses from its weight",
				difference, 10, "%"),
		)
	}
}
