package wireguard

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"subctl/cable"
	"subctl/dataplane"
	"subctl/internal/measure"
	"subctl/internal/nstest"
)

// BenchmarkPodToPod compares throughput between pods on two gateways through our cables
// with WireGuard that is set up by hand over the same path: a device, a peer, a route, and
// none of our chains. Connection tracking, which every node of a cluster has, is there in
// both cases. Both are measured in turns in the same namespaces, and on one
// CPU, wireguard-go included: on several, where packets happen to be handled makes more
// of a difference than what is compared, which is what a packet costs. The figure is the
// ratio of the better quartiles: what disturbs a measurement only ever makes it worse.
func BenchmarkPodToPod(b *testing.B) {
	east, west, fabric := newSides(b)
	for _, ns := range []*nstest.NS{east.gw, east.pod, west.gw, west.pod, fabric} {
		ns.Do(func() {
			var first unix.CPUSet
			first.Set(0)
			require.NoError(b, unix.SchedSetaffinity(0, &first))
		})
	}
	for _, s := range []*side{east, west} {
		s.gw.Run("iptables -A FORWARD -m conntrack --ctstate INVALID -j DROP") // as kube-proxy does
	}
	for b.Loop() {
		for d, least := range map[cable.Driver]float64{Driver{}: 95, Combined{}: 90} {
			var ours, hand []float64
			var engine string
			for range measure.Times(11) {
				connect(b, d, east, west)
				ours = append(ours, throughput(b, east, west))
				engine = engineOf(east)
				east.sync(b, nil)
				west.sync(b, nil)
				undo := byHand(b, d, east, west)
				hand = append(hand, throughput(b, east, west))
				undo()
			}
			name := fmt.Sprintf("pod to pod, gateway nodes, %s (%s): ", d.Name(), engine)
			measure.Record(b,
				measure.AtLeast(name+"throughput, of the same path by hand", 100*quartile(ours)/quartile(hand), least, "%"),
				measure.Info(name+"throughput", quartile(ours)/1e9, "Gbit/s"))
		}
	}
}

// engineOf is what makes the device.
func engineOf(s *side) string {
	if strings.Contains(s.gw.Run("ip -d link show "+dataplane.WireGuardDevice), " tun ") {
		return "wireguard-go"
	}
	return dataplane.EngineKernel
}

// byHand connects two gateways as a person would who needs nothing else. There is no wg(8)
// here, so keys and peers are put by our hands; routes and addresses are not.
func byHand(b *testing.B, d cable.Driver, east, west *side) (undo func()) {
	b.Helper()
	for _, pair := range [][2]*side{{east, west}, {west, east}} {
		s, o := pair[0], pair[1]
		w, err := d.Plan(local(b, s.n), []cable.Peer{peer(b, o.n)})
		require.NoError(b, err)
		device := dataplane.State{}
		for k, object := range w.State {
			if k.Kind == dataplane.KindLink || k.Kind == dataplane.KindPeer || k.Kind == dataplane.KindAddr {
				device[k] = object
			}
		}
		s.sync(b, device)
		way := "dev " + dataplane.WireGuardDevice
		if link := w.Links[0]; link.Device != dataplane.WireGuardDevice {
			way = fmt.Sprintf("via %v dev %s", link.IP, link.Device)
			_, mac := cable.VTEP(dataplane.VXLANWireGuardNet, peer(b, o.n).PrivateIP)
			s.gw.Run(fmt.Sprintf("bridge fdb append %s dev %s dst %v; ip neigh add %v lladdr %s dev %s nud permanent",
				mac, link.Device, address(peer(b, o.n).Gateway), link.IP, mac, link.Device))
		}
		s.gw.Run(fmt.Sprintf("ip route add 10.11%d.0.0/16 %s", o.n, way))
	}
	return func() {
		east.sync(b, nil) // takes the routes along
		west.sync(b, nil)
	}
}

// throughput is that of a TCP connection from pod to pod, in bits a second.
func throughput(b *testing.B, from, to *side) float64 {
	b.Helper()
	from.pod.Run(untilAnswered(to))
	l := listen(b, to.pod, to.podIP())
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = io.Copy(io.Discard, c)
			c.Close()
		}
	}()
	var bits float64
	from.pod.Do(func() {
		c, err := net.DialTimeout("tcp4", l.Addr().String(), 5*time.Second)
		require.NoError(b, err)
		defer c.Close()
		chunk, sent, start := make([]byte, 1<<17), 0, time.Now()
		for time.Since(start) < time.Second {
			n, err := c.Write(chunk)
			require.NoError(b, err)
			sent += n
		}
		bits = float64(8*sent) / time.Since(start).Seconds()
	})
	return bits
}

func listen(b *testing.B, ns *nstest.NS, ip string) (l net.Listener) {
	b.Helper()
	ns.Do(func() {
		var err error
		l, err = net.Listen("tcp4", ip+":0")
		require.NoError(b, err)
	})
	return l
}

// quartile is the upper one.
func quartile(xs []float64) float64 {
	xs = slices.Sorted(slices.Values(xs))
	return xs[len(xs)*3/4]
}
