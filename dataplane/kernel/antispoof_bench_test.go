//go:build linux

package kernel

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"subctl/cable"
	"subctl/dataplane"
	"subctl/internal/nstest"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// What the rules for VXLAN packets cost per packet, by the number of networks of other clusters.
// The kernel receives a packet in the system call that sends it, as both ends of the device are
// here.
func BenchmarkAntispoof(b *testing.B) {
	for _, networks := range []int{0, 1, 100, 4000} {
		b.Run(fmt.Sprintf("networks=%d", networks), func(b *testing.B) {
			node := nstest.New(b, "node")
			peer := nstest.New(b, "peer")
			nstest.Join(nstest.End{NS: node, Dev: "eth0", Addr: "192.168.0.1/16"},
				nstest.End{NS: peer, Dev: "eth0", Addr: "192.168.255.255/15"})
			node.Run("iptables -A INPUT -p udp --dport 4502 -j DROP") // after our table
			peer.Run("ip addr add 192.168.0.2/16 dev eth0 && ping -c1 -W5 -I 192.168.0.2 192.168.0.1")
			if networks > 0 {
				h := host(b, node, dataplane.GatewayOwner)
				settle(b, node, h, state(b, tables(senders(networks))...))
			}
			packet := make([]byte, 8+14+20)
			packet[0] = 8
			binary.BigEndian.PutUint16(packet[8+12:], 0x0800)
			copy(packet[8+14+12:], []byte{20, 0, 0, 9})
			peer.Do(func() {
				fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
				require.NoError(b, err)
				defer unix.Close(fd)
				require.NoError(b, unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{192, 168, 0, 2}}))
				require.NoError(b, unix.Connect(fd, &unix.SockaddrInet4{Addr: [4]byte{192, 168, 0, 1}, Port: 4502}))
				for b.Loop() {
					if _, err := unix.Write(fd, packet); err != nil {
						b.Error(err)
						return
					}
				}
			})
			dropped := node.Run("iptables -nvxL INPUT | grep -w dpt:4502 | awk '{print $1}'")
			require.NotEqual(b, "0\n", dropped, "the packets pass our table")
		})
	}
}

// senders returns a table with networks of gateways, of which 192.168.0.2 has the first.
func senders(networks int) cable.Antispoof {
	a := cable.Antispoof{Table: dataplane.GatewayOwner.Antispoof, VXLANPorts: []int{4502}}
	for i := range networks {
		a.InnerSources = append(a.InnerSources, cable.InnerSource{
			Outer: netip.AddrFrom4([4]byte{192, 168, byte((i + 2) >> 8), byte(i + 2)}),
			Net:   netip.PrefixFrom(netip.AddrFrom4([4]byte{20, byte(i >> 8), byte(i), 0}), 24),
		})
	}
	return a
}
