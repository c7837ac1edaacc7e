//go:build e2e

package e2e

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/cable"
	"subctl/dataplane"
	"subctl/internal/nstest"
)

// protocolUDP is the number of UDP in the IPv4 header.
const protocolUDP = 17

// forger sends UDP packets with a marker, the port, as a pod with NET_RAW can.
type forger struct {
	pod    pod
	marker int
}

// send sends packets, each three times.
func (f forger) send(t *testing.T, packets ...[]byte) {
	t.Helper()
	args := []string{"raw"}
	for range 3 {
		for _, p := range packets {
			args = append(args, hex.EncodeToString(p))
		}
	}
	f.pod.exec(t, args...)
}

func (f forger) plain(src, dst string) []byte {
	return nstest.IPv4(src, dst, protocolUDP, nstest.UDP(9, f.marker, []byte("forged")))
}

// inside returns a VXLAN packet to a node, with a marked packet inside.
func (f forger) inside(src, node string, port, vni int, net byte, innerSrc, innerDst string) []byte {
	_, mac := cable.VTEP(net, netip.MustParseAddr(node))
	return nstest.IPv4(src, node, protocolUDP, nstest.UDP(9, port, nstest.VXLAN(vni, mac, f.plain(innerSrc, innerDst))))
}

// A pod with NET_RAW that forges the address of a node, of a gateway or of a remote pod gets no
// packet to a pod, over a plain cable or an encrypted one. Its own packets do arrive.
func TestForgedPackets(t *testing.T) {
	connected(t)
	const marker, honest = 7777, 7778
	from := podOn(t, "cluster1", "web", worker(t, "cluster1"))
	to := podOn(t, "cluster2", "web", worker(t, "cluster2"))
	third := pods(t, "cluster3", "web")[0]
	atGateway := podOn(t, "cluster1", "web", gateway(t, "cluster1"))
	gw1 := nodeIP(t, gateway(t, "cluster1"))
	gw2 := nodeIP(t, gateway(t, "cluster2"))
	node1 := nodeIP(t, worker(t, "cluster1"))
	captures := map[string]*capture{}
	for _, node := range []string{gateway(t, "cluster2"), to.node, gateway(t, "cluster3"), third.node} {
		if captures[node] != nil {
			continue
		}
		captures[node] = startCaptureOn(t, node, "any", fmt.Sprintf("udp port %d or udp port %d", marker, honest))
	}
	for _, p := range []pod{from, atGateway} {
		f := forger{p, marker}
		var packets [][]byte
		for _, src := range []string{to.ip, third.ip, gw1, node1, gw2} {
			packets = append(packets, f.plain(src, to.ip), f.plain(src, third.ip))
		}
		for _, src := range []string{p.ip, gw1, node1, gw2} {
			packets = append(packets,
				f.inside(src, gw1, dataplane.IntraPort, dataplane.IntraVNI, dataplane.IntraVTEPNet, from.ip, to.ip),
				f.inside(src, gw2, dataplane.VXLANPort, dataplane.CableVNI, dataplane.VXLANNet, from.ip, to.ip))
		}
		for _, net := range []byte{dataplane.VXLANNet, dataplane.WireGuardNet, dataplane.IPsecNet} {
			packets = append(packets, f.plain(p.ip, cable.VTEPOf(net, netip.MustParseAddr(gw2)).String()))
		}
		f.send(t, packets...)
		own := forger{p, honest}
		own.send(t, own.plain(p.ip, to.ip), own.plain(p.ip, third.ip))
	}
	for node, c := range captures {
		c.stop(t)
		require.Empty(t, c.packets(t, fmt.Sprintf("udp port %d", marker)), "forged packets on %s", node)
	}
	for _, p := range []pod{to, third} {
		require.NotEmpty(t, captures[p.node].packets(t, fmt.Sprintf("udp port %d and dst host %s", honest, p.ip)),
			"a pod's own packets arrive, and are seen")
	}
}
