package wireguard

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/cable"
	"subctl/dataplane"
	"subctl/internal/measure"
	"subctl/internal/nstest"
)

// BenchmarkPodToPod compares throughput between pods on two gateways through our cables
// with WireGuard that is set up by hand over the same path: a device, a peer, a route, and
// none of our chains. Connection tracking, which every node of a cluster has, is there in
// both cases. Both paths exist at the same time, in namespaces of their own, so that they
// can be measured in turns.
func BenchmarkPodToPod(b *testing.B) {
	for b.Loop() {
		for d, least := range map[cable.Driver]float64{Driver{}: 95, Combined{}: 90} {
			b.Run(d.Name(), func(b *testing.B) { podToPod(b, d, least) })
		}
	}
}

func podToPod(b *testing.B, d cable.Driver, least float64) {
	pair := func() (east, west *side) {
		east, west, fabric := newSides(b)
		measure.OneCPU(b, east.gw, east.pod, west.gw, west.pod, fabric) // before wireguard-go starts
		for _, s := range []*side{east, west} {
			s.gw.Run("iptables -A FORWARD -m conntrack --ctstate INVALID -j DROP") // as kube-proxy does
		}
		return east, west
	}
	east, west := pair()
	connect(b, d, east, west)
	handEast, handWest := pair()
	byHand(b, d, handEast, handWest)
	ours := path(b, east, west)
	hand := path(b, handEast, handWest)
	c := measure.Compare(measure.Times(150), func() float64 { return ours.Throughput(b) },
		func() float64 { return hand.Throughput(b) })
	name := fmt.Sprintf("pod to pod, gateway nodes, %s (%s): ", d.Name(), engineOf(east))
	measure.Record(b,
		measure.AtLeast(name+"throughput, of the same path by hand", c.Percent, least, "%"),
		measure.Info(name+"throughput", c.Ours.Per(1e9), "Gbit/s"))
}

// path is the path from pod to pod, which is ready.
func path(b *testing.B, from, to *side) measure.Path {
	b.Helper()
	nstest.Until(b, from.podHost(), to.podHost())
	return measure.Path{From: from.podHost(), To: to.podHost(), Between: []*nstest.NS{from.gw, to.gw}}
}

// engineOf returns what handles the packets.
func engineOf(s *side) string {
	if strings.Contains(s.gw.Run("ip -d link show "+dataplane.WireGuardDevice), " tun ") {
		return "wireguard-go"
	}
	return dataplane.EngineKernel
}

// byHand connects two gateways as a person would who needs nothing else. Keys and peers
// are set through our own code, as wg(8) is not installed; routes and addresses are not.
func byHand(b *testing.B, d cable.Driver, east, west *side) {
	b.Helper()
	for _, pair := range [][2]*side{{east, west}, {west, east}} {
		s := pair[0]
		o := pair[1]
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
}
