package drivers_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"subctl/cable/drivers"
	"subctl/dataplane"
	"subctl/internal/nstest"
)

// narrow is the MTU of the path in forged errors. The kernel accepts nothing below 552.
const narrow = 576

// icmpError returns an ICMP error about a packet, as an IPv4 packet with an identification.
func icmpError(id int, src, dst string, typ, code byte, about []byte) []byte {
	message := nstest.ICMPError(typ, code, append(slices.Clone(about), make([]byte, 64)...))
	if typ == 3 && code == 4 {
		binary.BigEndian.PutUint16(message[6:], narrow)
		sum := uint32(binary.BigEndian.Uint16(message[2:])) - narrow // the checksum is the complement of the sum
		binary.BigEndian.PutUint16(message[2:], uint16(sum-sum>>31))
	}
	packet := nstest.IPv4(src, dst, unix.IPPROTO_ICMP, message)
	binary.BigEndian.PutUint16(packet[4:], uint16(id))
	return packet
}

// shapes are ways to send a packet that is longer than 80 bytes. harmless is another one, with
// which a fragment overlaps. The kernel fills in the checksums of IPv4 headers.
var shapes = map[string]func(packet, harmless []byte) [][]byte{
	"whole":              func(p, _ []byte) [][]byte { return [][]byte{p} },
	"ICMP header first":  func(p, _ []byte) [][]byte { return nstest.Fragments(p, 8) },
	"rest first":         func(p, _ []byte) [][]byte { f := nstest.Fragments(p, 8); slices.Reverse(f); return f },
	"addresses apart":    func(p, _ []byte) [][]byte { return nstest.Fragments(p, 24) },
	"addresses together": func(p, _ []byte) [][]byte { return nstest.Fragments(p, 40) },
	"overlapping harmless": func(p, harmless []byte) [][]byte {
		return [][]byte{nstest.Fragments(harmless, 40)[0], nstest.Fragments(p, 8)[1]}
	},
	"options": func(p, _ []byte) [][]byte {
		o := slices.Concat(p[:20], []byte{1, 1, 1, 0}, p[20:])
		o[0]++
		binary.BigEndian.PutUint16(o[2:], uint16(len(o)))
		return [][]byte{o}
	},
}

// emit sends packets from the first spoke to the hub's pod.
func (x *transit) emit(t *testing.T, packets ...[]byte) {
	t.Helper()
	x.from.ns.Run(
		fmt.Sprintf("ip route replace %s via %v dev %s onlink table 888", x.here.IP, x.toHub.IP, x.toHub.Device))
	x.from.ns.Do(func() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)
		require.NoError(t, err)
		defer unix.Close(fd)
		require.NoError(t, unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_NODEFRAG, 1))
		for _, p := range packets {
			require.NoError(t, unix.Sendto(fd, p, 0, &unix.SockaddrInet4{Addr: [4]byte(p[16:20])}))
			// wireguard-go hands what arrives at the same time to the kernel as one packet
			time.Sleep(5 * time.Millisecond)
		}
	})
}

// A member's ICMP errors are about packets to itself: it can neither lower the path MTU of
// connections between the hub and another member, nor end them. The hub counts such errors for it.
// Errors of the other member's gateway, router and pod arrive, and so do the first member's about
// its own connections, in fragments, too.
func TestHostileErrorsAboutOthers(t *testing.T) {
	for _, d := range drivers.All() {
		t.Run(d.Name(), func(t *testing.T) {
			x := newTransit(t, d, d)
			const port = 7100
			var c net.Conn
			x.here.NS.Do(func() {
				var err error
				c, err = (&net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(x.here.IP)}}).Dial("udp4",
					net.JoinHostPort(x.there.IP, strconv.Itoa(port)))
				require.NoError(t, err)
			})
			defer c.Close()
			own := c.LocalAddr().(*net.UDPAddr).Port
			var l net.PacketConn
			x.there.NS.Do(func() {
				var err error
				l, err = net.ListenPacket("udp4", net.JoinHostPort(x.there.IP, strconv.Itoa(port)))
				require.NoError(t, err)
			})
			defer l.Close()
			speak := func() error { // a datagram and its answer: connection tracking knows both directions
				if _, err := c.Write([]byte("x")); err != nil {
					return err
				}
				_ = l.SetReadDeadline(time.Now().Add(5 * time.Second))
				b := make([]byte, 9)
				_, from, err := l.ReadFrom(b)
				if err != nil {
					return err
				}
				_, _ = l.WriteTo(b[:1], from)
				_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
				_, err = c.Read(b)
				return err
			}
			require.NoError(t, speak())

			x.here.NS.Run(
				"nft -f - <<X\ntable ip errors { set seen { typeof ip id; flags dynamic; size 65535; }; chain in { type filter hook prerouting priority 0; icmp type { 3, 4, 5, 11, 12 } add @seen { ip id }; }; }\nX")
			sent := func(src, dst string, sport, dport int) []byte {
				return nstest.IPv4(src, dst, unix.IPPROTO_UDP, nstest.UDP(sport, dport, []byte("12345678")))
			}
			about := sent(x.here.IP, x.pod.IP, own, port) // to the first spoke
			type forged struct {
				name    string
				id      int
				packets [][]byte
			}
			var attacks, honest []forged
			id := 5000
			add := func(list *[]forged, name string, typ, code byte, inside []byte, shape string) {
				id++
				f := forged{name: fmt.Sprintf("%s, type %d code %d, %s", name, typ, code, shape), id: id}
				f.packets = shapes[shape](icmpError(id, x.pod.IP, x.here.IP, typ, code, inside),
					icmpError(id, x.pod.IP, x.here.IP, typ, code, about))
				*list = append(*list, f)
			}
			for _, e := range [][2]byte{{3, 4}, {3, 3}, {3, 1}, {4, 0}, {5, 1}, {11, 0}, {12, 0}} {
				add(&honest, "about its own", e[0], e[1], about, "whole")
				for _, inside := range []struct{ name, src, dst string }{
					{"about what the hub has sent", x.here.IP, x.there.IP},
					{"about what the other has sent", x.there.IP, x.here.IP},
					{"about the hub's gateway", x.here.IP, x.in.From.String()},
					{"about the other's gateway", x.here.IP, x.out.IP.String()},
				} {
					sport := own
					dport := port
					if inside.dst == x.here.IP {
						sport = port
						dport = own
					}
					add(&attacks, inside.name, e[0], e[1], sent(inside.src, inside.dst, sport, dport), "whole")
				}
			}
			for shape := range shapes {
				add(&attacks, "about what the hub has sent", 3, 4, sent(x.here.IP, x.there.IP, own, port), shape)
			}
			add(&honest, "about its own", 3, 4, about, "addresses together")
			add(&honest, "about its own gateway", 3, 4, sent(x.here.IP, x.toHub.From.String(), own, port), "whole")

			arrived := func(f forged) bool {
				return slices.Contains(
					strings.FieldsFunc(x.here.NS.Run("nft list set ip errors seen"),
						func(r rune) bool { return r < '0' || r > '9' }),
					fmt.Sprint(f.id),
				)
			}
			pathMTU := func() string { return x.here.NS.Run("ip route get " + x.there.IP) }
			before := x.dropped(t)["c2"]
			for _, f := range attacks {
				x.emit(t, f.packets...)
			}
			for _, f := range honest {
				require.Eventually(t, func() bool {
					x.emit(t, f.packets...)
					return arrived(f)
				}, 10*time.Second, 20*time.Millisecond, f.name)
			}
			for _, f := range attacks {
				require.False(t, arrived(f), f.name)
			}
			require.NotContains(t, pathMTU(), fmt.Sprintf("mtu %d", narrow))
			require.NoError(t, speak())
			require.GreaterOrEqual(t, x.dropped(t)["c2"], before+uint64(len(attacks)-3), "whole packets count")
			require.Zero(t, x.dropped(t)["c3"])

			x.requireHonestErrors(t)
			require.Zero(t, x.dropped(t)["c3"])

			x.hub.ns.Run("nft delete table ip " + dataplane.GatewayOwner.Antispoof)
			for _, f := range attacks {
				if strings.Contains(f.name, "overlapping") {
					continue // Linux puts no such fragments together
				}
				require.Eventually(t, func() bool {
					x.emit(t, f.packets...)
					return arrived(f)
				}, 10*time.Second, 20*time.Millisecond, "%s does not arrive even without the rules", f.name)
			}
			require.Contains(t, pathMTU(), fmt.Sprintf("mtu %d", narrow))
			require.Error(t, speak())
		})
	}
}

// requireHonestErrors requires that errors of the second spoke's gateway and pod reach the hub's
// pod.
func (x *transit) requireHonestErrors(t *testing.T) {
	t.Helper()
	ping := func(options, said string) {
		t.Helper()
		require.Eventually(t, func() bool {
			out, _ := x.here.NS.Try(fmt.Sprintf("ping -c1 -W1 -I %s %s", x.here.IP, options))
			return strings.Contains(out, said)
		}, 10*time.Second, 20*time.Millisecond, "ping %s", options)
	}
	for _, pattern := range []string{"03", "0b"} { // each fragment but the first begins like an error
		ping("-Mdont -s 5000 -p "+pattern+" "+x.there.IP, "1 received")
	}
	x.to.ns.Run("ip route add unreachable 10.103.77.0/24; ip link set cni0 mtu 800")
	ping("10.103.77.7", "Destination Host Unreachable")
	ping("-t 2 "+x.there.IP, "Time to live exceeded")
	ping("-Mdo -s 1000 "+x.there.IP, "(mtu = 800)")
	x.to.ns.Run("ip link set cni0 mtu 1500")
	x.here.NS.Do(func() {
		c, err := (&net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(x.here.IP)}}).Dial("udp4", x.there.IP+":7199")
		require.NoError(t, err)
		defer c.Close()
		_, err = c.Write([]byte("x"))
		require.NoError(t, err)
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		_, err = c.Read(make([]byte, 9))
		require.ErrorIs(t, err, unix.ECONNREFUSED)
	})
}
