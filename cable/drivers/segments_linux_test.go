package drivers_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/cable/vxlan"
	"subctl/dataplane"
	"subctl/internal/nstest"
)

// A member cannot hide forged packets behind a true one: VXLAN packets that arrive as one packet
// (UDP_SEGMENT) are separated by the kernel after the rules about VXLAN packets have seen the first
// of them. All that follow are checked like the first one, also if the first one claims to be as
// long as all of them, as a segment of TCP does. Without the rules for what arrives on the device,
// they pass.
func TestHostileSegments(t *testing.T) {
	x := newTransit(t, vxlan.Driver{}, vxlan.Driver{})
	keepSegments(x)
	const first, last = 7201, 7219
	x.here.NS.Run(
		fmt.Sprintf(
			"nft 'table ip seen { set ports { type inet_service; flags dynamic; size 99; }; chain in { type filter hook prerouting priority 0; udp dport %d-%d add @ports { udp dport }; icmp type 3 icmp code %d counter; }; }'",
			first, last, transitCode),
	)
	x.hub.ns.Run(
		fmt.Sprintf(
			"nft 'table ip seen2 { set ports { type inet_service; flags dynamic; size 99; }; chain in { type filter hook prerouting priority -420; iifname %q udp dport %d-%d add @ports { udp dport }; }; }'",
			x.in.Device, first, last),
	)
	mac := x.mac()
	datagram := func(src, dst string, port int) []byte {
		return nstest.IPv4(src, dst, unix.IPPROTO_UDP, nstest.UDP(9, port, make([]byte, 72)))
	}
	// the kernel does not check the checksum of a packet that it drops as too short
	claim := func(packet []byte, length int) []byte {
		packet[2] = byte(length >> 8)
		packet[3] = byte(length)
		return packet
	}
	send := func(packets ...[]byte) {
		for i, p := range packets {
			packets[i] = nstest.VXLAN(dataplane.CableVNI, mac, p)
		}
		x.sendAsOne(t, packets...)
	}
	me := x.pod.IP
	here := x.here.IP
	there := x.there.IP
	about := nstest.IPv4(here, there, unix.IPPROTO_UDP, nstest.UDP(9, 9, make([]byte, 44)))
	own := x.in.From.String()
	forged := func() {
		send(datagram(me, here, 7201), datagram(there, here, 7202), datagram(me, here, 7203))
		send(claim(datagram(me, here, 7204), 400), datagram(there, here, 7205), datagram(there, here, 7206))
		send(datagram(me, here, 7207), datagram(me, "10.103.100.5", 7208), datagram(me, routedForeign, 7209))
		send(datagram(me, here, 7210), datagram(own, own, 7211), datagram(own, here, 7212))
		send(datagram(me, here, 7213),
			nstest.IPv4(me, here, unix.IPPROTO_ICMP, nstest.ICMPError(3, transitCode, about)))
		send(datagram(me, here, 7214), nstest.Fragments(datagram(there, here, 7215), 8)[0])
	}
	seen := func() string {
		return strings.Join(
			regexp.MustCompile(
				`\b72\d\d\b`).FindAllString(
				x.here.NS.Run("nft list set ip seen ports")+x.hub.ns.Run("nft list set ip seen2 ports"), -1),
			" ",
		)
	}
	has := func(ports ...int) bool {
		s := seen()
		for _, p := range ports {
			if !strings.Contains(s, strconv.Itoa(p)) {
				return false
			}
		}
		return true
	}
	errors := func() bool { return !strings.Contains(x.here.NS.Run("nft list chain ip seen in"), "counter packets 0") }

	before := x.dropped(t)
	forged()
	require.Eventually(t, func() bool { return has(7201, 7203, 7207, 7210, 7213, 7214) }, 10*time.Second,
		50*time.Millisecond, "true packets: %s", seen())
	send(datagram(me, here, 7219), datagram(me, here, 7218))
	require.Eventually(t, func() bool { return has(7218, 7219) }, 10*time.Second, 50*time.Millisecond)
	for _, p := range []int{7202, 7205, 7206, 7208, 7209, 7211, 7212, 7215} {
		require.False(t, has(p), "port %d of %s", p, seen())
	}
	require.False(t, errors())
	after := x.dropped(t)
	require.Equal(t, before["c2"]+9, after["c2"], "counted for the sender")
	require.Equal(t, before["c3"], after["c3"])

	x.hub.ns.Run("nft flush chain ip " + dataplane.GatewayOwner.Antispoof + " decapsulated")
	forged()
	require.Eventually(t, func() bool { return has(7202, 7205, 7206, 7208, 7209, 7211, 7215) && errors() },
		10*time.Second, 50*time.Millisecond, "without the rules: %s", seen())
}

// A member reaches neither the gateway itself by IPv6, which cables do not carry, nor the table of
// neighbours by ARP, whether the frames come alone or hidden behind a true packet. The gateway's
// neighbours stay as they are.
func TestHostileFrames(t *testing.T) {
	x := newTransit(t, vxlan.Driver{}, vxlan.Driver{})
	keepSegments(x)
	const own = "fd00::11"
	x.hub.ns.Run("ip addr add " + own + "/128 dev lo")
	x.hub.ns.Run(
		"nft 'table ip6 seen { set ports { type inet_service; flags dynamic; size 99; }; chain in { type filter hook input priority 0; udp dport 7301-7309 add @ports { udp dport }; }; }'")
	x.here.NS.Run(
		"nft 'table ip seen { chain in { type filter hook prerouting priority 0; udp dport 7300 counter; }; }'")
	frame := func(etherType uint16, to string, packet []byte) []byte {
		b := nstest.VXLAN(dataplane.CableVNI, to, append(packet, make([]byte, 100-len(packet))...))
		binary.BigEndian.PutUint16(b[20:], etherType)
		return b
	}
	ipv6 := func(dst string, port int) []byte {
		b := []byte{0x60, 0, 0, 0, 0, 60, unix.IPPROTO_UDP, 64}
		b = slices.Concat(b, netip.MustParseAddr("fd00::12").AsSlice(), netip.MustParseAddr(dst).AsSlice())
		return append(b, nstest.UDP(9, port, make([]byte, 52))...)
	}
	const fake = "241.7.7.7" // a gateway that does not exist
	arp := func(operation byte, from netip.Addr, mac byte) []byte {
		b := append([]byte{0, 1, 8, 0, 6, 4, 0, operation, 2, 0, 0, 0, 0, mac}, from.AsSlice()...)
		return slices.Concat(b, make([]byte, 6), x.in.From.AsSlice())
	}
	mac := x.mac()
	all := "ff:ff:ff:ff:ff:ff"
	frames := map[string][]byte{
		"IPv6":                      frame(unix.ETH_P_IPV6, mac, ipv6(own, 7301)),
		"IPv6 for all nodes":        frame(unix.ETH_P_IPV6, all, ipv6("ff02::1", 7302)),
		"an ARP request":            frame(unix.ETH_P_ARP, mac, arp(1, netip.MustParseAddr(fake), 1)),
		"an ARP request to all":     frame(unix.ETH_P_ARP, all, arp(1, netip.MustParseAddr("241.7.7.8"), 1)),
		"an ARP reply":              frame(unix.ETH_P_ARP, mac, arp(2, netip.MustParseAddr("241.7.7.9"), 1)),
		"an ARP reply of the other": frame(unix.ETH_P_ARP, mac, arp(2, x.out.IP, 9)),
	}
	honest := nstest.VXLAN(dataplane.CableVNI, mac,
		nstest.IPv4(x.pod.IP, x.here.IP, unix.IPPROTO_UDP, nstest.UDP(9, 7300, make([]byte, 72))))
	send := func() {
		for _, f := range frames {
			x.sendAsOne(t, f)
			x.sendAsOne(t, honest, f, f, honest)
		}
	}
	neighbours := func() string { return x.hub.ns.Run("ip neigh show dev " + x.in.Device) }
	reached := func() string { return x.hub.ns.Run("nft list set ip6 seen ports") }
	before := neighbours()
	send()
	require.Eventually(t, func() bool { return countOf(x.here.NS.Run("nft list table ip seen")) == 2*len(frames) },
		10*time.Second, 50*time.Millisecond, "true packets")
	require.NotContains(t, reached(), "elements")
	require.Equal(t, before, neighbours())

	x.hub.ns.Run(
		"nft delete table ip6 " + dataplane.GatewayOwner.Antispoof + "; sysctl -qw net.ipv4.conf." + x.in.Device +
			".arp_ignore=0",
	)
	send()
	require.Eventually(t, func() bool {
		return strings.Contains(reached(), "7301") && strings.Contains(reached(), "7302") &&
			strings.Contains(neighbours(), fake)
	}, 10*time.Second, 50*time.Millisecond, "without the table and the setting: %s %s", reached(), neighbours())
}

// mac returns the MAC address of the hub's device to the first spoke.
func (x *transit) mac() string {
	return strings.Fields(strings.SplitAfter(x.hub.ns.Run("ip -o link show dev "+x.in.Device), "link/ether ")[1])[0]
}

// sendAsOne sends VXLAN packets from the first spoke to the hub as one packet, which the kernel
// separates. All except the last must be as long as the first.
func (x *transit) sendAsOne(t *testing.T, packets ...[]byte) {
	t.Helper()
	x.from.ns.Do(func() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		require.NoError(t, err)
		defer unix.Close(fd)
		require.NoError(t, unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_SEGMENT, len(packets[0])))
		require.NoError(
			t,
			unix.Sendto(fd, slices.Concat(packets...), 0,
				&unix.SockaddrInet4{Addr: [4]byte{172, 18, 1, 11}, Port: dataplane.VXLANPort}),
		)
	})
}

// Of true traffic nothing is dropped where packets that are yet to be segmented arrive as they are:
// neither segments of TCP inside VXLAN packets, nor datagrams, nor echoes, nor VXLAN packets that
// arrive as one and contain packets of several connections.
func TestSegmentsPass(t *testing.T) {
	for _, d := range []cable.Driver{vxlan.Driver{}, wrapped(t, "vxlan+wireguard")} {
		t.Run(d.Name(), func(t *testing.T) {
			x := newTransit(t, d, d)
			keepSegments(x)
			before := x.dropped(t)
			mtu, err := strconv.Atoi(
				strings.Fields(strings.SplitAfter(x.hub.ns.Run("ip -o link show dev "+x.in.Device), "mtu ")[1])[0])
			require.NoError(t, err)
			x.hub.ns.Run(
				fmt.Sprintf(
					"nft 'table ip large { chain in { type filter hook prerouting priority -460; iifname %q meta length > 20000 counter; }; }'",
					x.in.Device),
			)
			nstest.Reach(t, x.pod, x.here, mtu)
			nstest.Reach(t, x.here, x.pod, mtu)
			bytes := bulk(t, x.pod, x.here, time.Second)
			x.here.NS.Run(
				"nft 'table ip got { chain in { type filter hook prerouting priority 0; udp dport 7300 counter; }; }'")
			for _, size := range []int{100, 1200} { // datagrams of one size, which the pod hands over as one packet
				before := countOf(x.here.NS.Run("nft list table ip got"))
				x.pod.NS.Do(func() {
					fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
					require.NoError(t, err)
					defer unix.Close(fd)
					require.NoError(t, unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_SEGMENT, size))
					require.NoError(
						t,
						unix.Sendto(fd, make([]byte, 20*size), 0,
							&unix.SockaddrInet4{Addr: netip.MustParseAddr(x.here.IP).As4(), Port: 7300}),
					)
				})
				require.Eventually(t, func() bool { return countOf(x.here.NS.Run("nft list table ip got")) > before },
					5*time.Second, 20*time.Millisecond)
			}
			require.Equal(t, before, x.dropped(t))
			large := countOf(x.hub.ns.Run("nft list table ip large"))
			// WireGuard segments them
			require.True(t, large > 0 || x.in.Outer != x.from.local.PrivateIP, "no packets arrive as they are")
			t.Logf("%.1f Gbit/s; %d packets above 20,000 bytes", float64(bytes)*8/1e9, large)
		})
	}
}

// wrapped returns the driver with a name.
func wrapped(t *testing.T, name string) cable.Driver {
	i := slices.IndexFunc(drivers.All(), func(d cable.Driver) bool { return d.Name() == name })
	require.GreaterOrEqual(t, i, 0)
	return drivers.All()[i]
}

// countOf returns the packets of the first counter in a listing.
func countOf(listing string) (n int) {
	_, rest, _ := strings.Cut(listing, "counter packets ")
	_, _ = fmt.Sscan(rest, &n)
	return n
}

// bulk sends as much as it can from one pod to another through a connection, and returns how many
// bytes arrive.
func bulk(t *testing.T, from, to nstest.Host, d time.Duration) (n int64) {
	var l net.Listener
	var c net.Conn
	var err error
	to.NS.Do(func() { l, err = net.Listen("tcp4", to.IP+":0") })
	require.NoError(t, err)
	defer l.Close()
	from.NS.Do(func() {
		c, err = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from.IP)}}).Dial("tcp4", l.Addr().String())
	})
	require.NoError(t, err)
	a, err := l.Accept()
	require.NoError(t, err)
	go func() {
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(d))
		for b := make([]byte, 1<<18); ; {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	}()
	n, _ = io.Copy(io.Discard, a)
	return n
}

// keepSegments lets packets that are yet to be segmented arrive from the first spoke at the hub as
// they are, as over veth and virtio. Labs set the number of segments of all devices to 1, as a wire
// would.
func keepSegments(x *transit) {
	for _, n := range []*nstest.NS{x.router, x.from.ns, x.hub.ns} {
		n.Run(
			"for d in $(ip -o link show type veth | cut -d' ' -f2 | cut -d@ -f1); do ip link set $d gso_max_segs 65535; done")
	}
}
