package agent

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/dataplane"
	"subctl/dataplane/kernel"
	"subctl/internal/measure"
	"subctl/internal/nstest"
)

// BenchmarkPodToPod compares throughput and round trip between pods with the same
// path made by hand: plain VXLAN devices, routes in the main table, no rules and
// no chains. Both are measured in turns in the same namespaces, with both ends on one
// CPU: on several, where the packets of a connection happen to be handled makes more of
// a difference than what is compared, which is what a packet costs. The figure is the
// ratio of the better quartiles, as what disturbs a measurement only ever makes it worse.
func BenchmarkPodToPod(b *testing.B) {
	fabric := newFabric(b)
	east, west := newSide(b, fabric, 1, "east"), newSide(b, fabric, 2, "west")
	for b.Loop() {
		for _, node := range nodeNames {
			ours, hand := &samples{}, &samples{}
			for range 7 {
				east.sync(b, west)
				west.sync(b, east)
				ours.take(b, east.pods[node], west.pods[node], west.podIP(node))
				east.leave(b)
				west.leave(b)
				undo := byHand(east, west)
				hand.take(b, east.pods[node], west.pods[node], west.podIP(node))
				undo()
			}
			where := map[string]string{"gw": "gateway nodes", "worker": "worker nodes, three VXLAN hops"}[node]
			measure.Record(b,
				measure.AtLeast("pod to pod, "+where+": throughput, of the same path by hand", 100*ours.throughput()/hand.throughput(), 90, "%"),
				measure.AtMost("pod to pod, "+where+": round trip, of the same path by hand", 100*ours.roundTrip()/hand.roundTrip(), 110, "%"),
				measure.Info("pod to pod, "+where+": throughput", ours.throughput()/1e9, "Gbit/s"),
				measure.Info("pod to pod, "+where+": round trip", ours.roundTrip()*1e6, "µs"),
			)
		}
	}
}

// samples are bits a second, and seconds.
type samples struct{ bits, rtt []float64 }

func (s *samples) throughput() float64 { return quantile(s.bits, 0.75) }
func (s *samples) roundTrip() float64  { return quantile(s.rtt, 0.25) }

func (s *samples) take(b *testing.B, from, to *nstest.NS, ip string) {
	b.Helper()
	l := listen(b, to, ip)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go echoOrDiscard(b, c)
		}
	}()
	// A connection is fast or slow as a whole: many short ones tell more than one long one.
	for range 8 {
		from.Do(func() {
			c := dial(b, l, 'e')
			defer c.Close()
			fd := blocking(b, c)
			var rtts []float64
			buf := make([]byte, 1)
			for range 700 {
				start := time.Now()
				_, err := unix.Write(fd, buf)
				require.NoError(b, err)
				_, err = unix.Read(fd, buf)
				require.NoError(b, err)
				rtts = append(rtts, time.Since(start).Seconds())
			}
			s.rtt = append(s.rtt, median(rtts))
		})
	}
	from.Do(func() {
		c := dial(b, l, 'd')
		defer c.Close()
		fd := blocking(b, c)
		chunk, sent, start := make([]byte, 1<<17), 0, time.Now()
		for time.Since(start) < time.Second {
			n, err := unix.Write(fd, chunk)
			require.NoError(b, err)
			sent += n
		}
		s.bits = append(s.bits, float64(8*sent)/time.Since(start).Seconds())
	})
}

func listen(b *testing.B, ns *nstest.NS, ip string) (l net.Listener) {
	ns.Do(func() {
		var err error
		l, err = net.Listen("tcp4", ip+":0")
		require.NoError(b, err)
	})
	return l
}

func dial(b *testing.B, l net.Listener, mode byte) net.Conn {
	c, err := net.DialTimeout("tcp4", l.Addr().String(), 5*time.Second)
	require.NoError(b, err)
	_, err = c.Write([]byte{mode})
	require.NoError(b, err)
	return c
}

func echoOrDiscard(b *testing.B, c net.Conn) {
	defer c.Close()
	mode := make([]byte, 1)
	if _, err := io.ReadFull(c, mode); err != nil {
		return
	}
	runtime.LockOSThread() // never unlocked: a thread that is bound to a CPU is of no use to others
	fd, buf := blocking(b, c), make([]byte, 1<<17)
	for {
		n, err := unix.Read(fd, buf)
		if n <= 0 || err != nil {
			return
		}
		if mode[0] == 'e' {
			_, _ = unix.Write(fd, buf[:n])
		}
	}
}

// blocking returns a connection's file descriptor for blocking use on the calling
// thread, which is bound to the first CPU.
func blocking(b *testing.B, c net.Conn) int {
	f, err := c.(*net.TCPConn).File()
	require.NoError(b, err)
	b.Cleanup(func() { f.Close() })
	var set unix.CPUSet
	set.Set(0)
	require.NoError(b, unix.SchedSetaffinity(0, &set))
	return int(f.Fd())
}

func median(xs []float64) float64 { return quantile(xs, 0.5) }

func quantile(xs []float64, q float64) float64 {
	xs = slices.Sorted(slices.Values(xs))
	return xs[int(q*float64(len(xs)-1))]
}

// byHand connects two clusters as a person would who needs nothing else.
func byHand(a, b *side) (undo func()) {
	for _, pair := range [][2]*side{{a, b}, {b, a}} {
		s, o := pair[0], pair[1]
		vx := func(node string, dev string, vni, port, self, peer int, peerNet int) {
			ns := s.nodes[node]
			ns.Run(fmt.Sprintf("ip link add %s type vxlan id %d dstport %d local 172.18.%d.%d nolearning && ip addr add 10.9%d.%d.%d/16 dev %s && ip link set %s mtu 1450 address 02:00:00:00:%02x:%02x up",
				dev, vni, port, s.n, self, vni%10, s.n, self, dev, dev, s.n, self))
			ns.Run(fmt.Sprintf("sysctl -qw net.ipv4.conf.%[1]s.rp_filter=0; bridge fdb append 02:00:00:00:%02[2]x:%02[3]x dev %[1]s dst 172.18.%[2]d.%[3]d; ip neigh add 10.9%[4]d.%[2]d.%[3]d lladdr 02:00:00:00:%02[2]x:%02[3]x dev %[1]s nud permanent",
				dev, peerNet, peer, vni%10))
			// the CNI of these namespaces drops and masquerades what it does not know
			ns.Run("iptables -I FORWARD -j ACCEPT; iptables -t nat -I POSTROUTING -j ACCEPT")
		}
		vx("gw", "hand1", 2001, 5001, 11, 11, o.n)
		vx("worker", "hand2", 2002, 5002, 12, 11, s.n)
		vx("gw", "hand2", 2002, 5002, 11, 12, s.n)
		s.nodes["gw"].Run(fmt.Sprintf("ip route add 10.11%d.0.0/16 via 10.91.%d.11 dev hand1", o.n, o.n))
		s.nodes["gw"].Run(fmt.Sprintf("ip route replace 10.11%d.2.0/24 via 10.92.%d.12 dev hand2", s.n, s.n))
		s.nodes["worker"].Run(fmt.Sprintf("ip route add 10.11%d.0.0/16 via 10.92.%d.11 dev hand2", o.n, s.n))
	}
	return func() {
		for _, s := range []*side{a, b} {
			for _, ns := range s.nodes {
				ns.Run("ip link del hand1 2>/dev/null; ip link del hand2; iptables -D FORWARD -j ACCEPT; while iptables -D FORWARD -j ACCEPT 2>/dev/null; do :; done; while iptables -t nat -D POSTROUTING -j ACCEPT 2>/dev/null; do :; done")
			}
			s.nodes["gw"].Run(fmt.Sprintf("ip route replace 10.11%d.2.0/24 via 172.18.%d.12", s.n, s.n))
		}
	}
}

// BenchmarkThousandClusters measures planning and syncing a gateway with 1,000
// remote clusters of two networks each.
func BenchmarkThousandClusters(b *testing.B) {
	for _, n := range []int{100, 1000, 4000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { manyClusters(b, n) })
	}
}

func manyClusters(b *testing.B, n int) {
	east := newSide(b, newFabric(b), 1, "east")
	objs := east.objects()
	for i := range n {
		objs = append(objs, remoteCluster(i))
	}
	moved := slices.Clone(objs)
	other := remoteCluster(n - 1)
	other.Spec.PrivateIP = "172.31.255.1"
	moved[len(moved)-1] = other
	east.nodes["gw"].Do(func() {
		k, err := kernel.ReadFacts()
		require.NoError(b, err)
		h, err := kernel.New(dataplane.GatewayOwner)
		require.NoError(b, err)
		defer h.Close()
		var held []cable.Gateway // as an agent remembers them
		sync := func(objs []client.Object) float64 {
			start := time.Now()
			snap := NewSnapshot("gw", submarinerv1.NodeFacts{PrivateIP: k.PrivateIP.String(), Device: "eth0", MTU: 1500, PodIP: "10.111.1.1"}, true, objs...)
			snap.Held = held
			p, err := Gateway{}.Plan(snap)
			require.NoError(b, err)
			require.Empty(b, p.view.refused)
			held = p.view.held
			_, err = dataplane.Sync(context.Background(), h, p.State)
			require.NoError(b, err)
			return float64(time.Since(start).Milliseconds())
		}
		for b.Loop() {
			var full, idle, one []float64
			for range 3 {
				full = append(full, sync(objs))
				for range 3 {
					idle = append(idle, sync(objs))
					one = append(one, sync(moved))
					sync(objs)
				}
				_, err := dataplane.Sync(context.Background(), h, dataplane.State{})
				require.NoError(b, err)
			}
			name := fmt.Sprintf("plan and sync, %d remote clusters: ", n)
			if n == 1000 {
				measure.Record(b,
					measure.AtMost(name+"from empty", median(full), 2000, "ms"),
					measure.AtMost(name+"nothing to do", median(idle), 100, "ms"),
					measure.AtMost(name+"one endpoint changed", median(one), 50, "ms"))
				continue
			}
			measure.Record(b, measure.Info(name+"from empty", median(full), "ms"),
				measure.Info(name+"nothing to do", median(idle), "ms"), measure.Info(name+"one endpoint changed", median(one), "ms"))
		}
	})
}

func remoteCluster(i int) *submarinerv1.Endpoint {
	id := fmt.Sprintf("c%d", i)
	at := func(base string, bits int) string {
		a := netip.MustParseAddr(base).As4()
		v := uint32(a[0])<<24 | uint32(a[1])<<16 | uint32(a[2])<<8 | uint32(a[3])
		v += uint32(i) << (32 - bits)
		return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}).String()
	}
	return &submarinerv1.Endpoint{
		ObjectMeta: metav1.ObjectMeta{Name: id, Labels: map[string]string{submarinerv1.ClusterIDLabel: id}},
		Spec: submarinerv1.EndpointSpec{
			ClusterID: id, CableName: "submariner-cable-" + id, Hostname: id, Backend: "vxlan", PrivateIP: at("172.20.0.1", 32),
			Subnets: []string{at("20.0.0.0", 24) + "/24", at("30.0.0.0", 24) + "/24"},
		},
	}
}
