package drivers_test

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/dataplane"
	"subctl/internal/nstest"
)

// transit is a hub with two spokes, of which the first tries to reach the second through the hub.
type transit struct {
	hub, from, to  *node
	pod            nstest.Host // of from
	here, there    nstest.Host // pods of hub and to
	in, out        cable.Link  // of the hub, to the spokes
	toHub          cable.Link  // of from
	driver, onward cable.Driver
	router         *nstest.NS
}

// Addresses that routes by hand on the hub lead into the cable to the second spoke.
const (
	routedOwn     = "10.101.200.7" // in the hub's own pod network
	routedForeign = "203.0.113.7"
	// routedService is an address in the hub's Service network, for which the hub's kube-proxy
	// chose a pod of the second spoke.
	routedService = "100.65.0.9"
)

const (
	transitPort = 7001 // UDP, marks the packets
	transitCode = 10   // of ICMP errors, likewise: host administratively prohibited
)

func newTransit(t *testing.T, d, e cable.Driver) *transit {
	requireEngine(t, d)
	requireEngine(t, e)
	router := newRouter(t, "router")
	x := &transit{
		hub:    newNode(t, 1, 11, router),
		from:   newNode(t, 2, 11, router),
		to:     newNode(t, 3, 11, router),
		driver: d,
		onward: e,
		router: router,
	}
	x.here, x.there = pod(t, x.hub), pod(t, x.to)
	x.pod = pod(t, x.from)
	s, links, err := cable.Plan(
		cable.Cabling{
			Local: x.hub.local,
			Peers: []cable.Cable{{Peer: asPeer(t, x.from.local), Driver: d}, {Peer: asPeer(t, x.to.local), Driver: e}},
		},
	)
	require.NoError(t, err)
	x.in = links[0]
	x.out = links[1]
	x.hub.sync(t, s)
	x.toHub = x.from.join(t, d, asPeer(t, x.hub.local))[0]
	x.to.join(t, e, asPeer(t, x.hub.local))
	nstest.Until(t, x.here, x.pod)
	nstest.Until(t, x.here, x.there)
	x.routeByHand(t, x.there.IP)
	return x
}

// routeByHand adds to the hub all that its administrator or its pods may add, and to the first
// spoke what an attacker would.
func (x *transit) routeByHand(t *testing.T, victim string) {
	for _, dst := range []string{"10.103.0.0/16", "100.67.0.0/16", routedForeign, routedOwn} {
		x.hub.ns.Run(fmt.Sprintf("ip route add %s via %v dev %s onlink table 888", dst, x.out.IP, x.out.Device))
	}
	x.hub.ns.Run("ip rule add pref 1 lookup 888")
	x.hub.ns.Run(
		fmt.Sprintf(
			"iptables -t nat -A PREROUTING -d %s -p udp -j DNAT --to-destination %s; iptables -t nat -A POSTROUTING -p udp --dport %d -j MASQUERADE",
			routedService, victim, transitPort),
	)
	x.hub.ns.Run(
		fmt.Sprintf(
			"nft 'table ip seen { chain out { type filter hook postrouting priority 400; oifname %q udp dport %d counter; oifname %[1]q icmp code %[3]d counter; }; }'",
			x.out.Device, transitPort, transitCode),
	)
	x.from.ns.Run("nft delete table ip " + dataplane.GatewayOwner.Antispoof)
	x.from.ns.Run("ip rule add pref 1 lookup 888")
	if x.toHub.Device != dataplane.WireGuardDevice {
		return
	}
	x.from.ns.Do(func() {
		c, err := wgctrl.New()
		require.NoError(t, err)
		defer c.Close()
		d, err := c.Device(dataplane.WireGuardDevice)
		require.NoError(t, err)
		all := wgtypes.PeerConfig{
			PublicKey:  d.Peers[0].PublicKey,
			UpdateOnly: true,
			AllowedIPs: []net.IPNet{{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}},
		}
		require.NoError(t, c.ConfigureDevice(d.Name, wgtypes.Config{Peers: []wgtypes.PeerConfig{all}}))
	})
}

// send sends a datagram and an ICMP error from the first spoke to the hub.
func (x *transit) send(t *testing.T, src, dst string) {
	t.Helper()
	x.from.ns.Run(fmt.Sprintf("ip route replace %s via %v dev %s onlink table 888", dst, x.toHub.IP, x.toHub.Device))
	inner := nstest.IPv4(dst, src, unix.IPPROTO_UDP, nstest.UDP(9, 9, []byte("x")))
	x.from.ns.Do(func() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)
		require.NoError(t, err)
		defer unix.Close(fd)
		for _, packet := range [][]byte{
			nstest.IPv4(src, dst, unix.IPPROTO_UDP, nstest.UDP(9, transitPort, []byte("x"))),
			nstest.IPv4(src, dst, unix.IPPROTO_ICMP, nstest.ICMPError(3, transitCode, inner)),
		} {
			// some cables refuse some packets
			_ = unix.Sendto(fd, packet, 0, &unix.SockaddrInet4{Addr: [4]byte(packet[16:20])})
		}
	})
}

// passed returns how many packets the hub has sent into the cable to the second spoke.
func (x *transit) passed(t *testing.T) (n int) {
	for line := range strings.Lines(x.hub.ns.Run("nft list table ip seen")) {
		if _, rest, ok := strings.Cut(line, "packets "); ok {
			packets, err := strconv.Atoi(strings.Fields(rest)[0])
			require.NoError(t, err)
			n += packets
		}
	}
	return n
}

// dropped returns the packets that the hub has counted.
func (x *transit) dropped(t *testing.T) (counts map[string]uint64) {
	x.hub.ns.Do(func() {
		var err error
		counts, err = x.hub.host.Drops()
		require.NoError(t, err)
	})
	return counts
}

// No packet passes from one cable to another, over any two drivers, whatever its source and
// destination are, and whatever routes and translations the hub has. The hub counts it for the
// cluster that it came from. Without the hub's rules it passes, which shows that the test sends
// what it says.
func TestHostileTransit(t *testing.T) {
	var combinations [][2]cable.Driver
	for _, d := range drivers.All() {
		for _, e := range drivers.All() {
			combinations = append(combinations, [2]cable.Driver{d, e})
		}
	}
	for _, c := range combinations {
		t.Run(c[0].Name()+" to "+c[1].Name(), func(t *testing.T) {
			x := newTransit(t, c[0], c[1])
			victim := "10.103.100.5"
			for _, src := range []string{
				x.pod.IP,
				x.toHub.From.String(),
				"10.103.100.9",
				"10.101.100.5",
				x.in.From.String(),
				"172.18.2.11",
				"198.51.100.1",
			} {
				for _, dst := range []string{
					victim,
					"100.67.0.1",
					x.out.IP.String(),
					routedOwn,
					routedForeign,
					routedService,
				} {
					x.send(t, src, dst)
				}
			}
			require.Eventually(t, func() bool { return x.dropped(t)["c2"] > 0 }, 10*time.Second, 50*time.Millisecond,
				"the hub counts nothing")
			before := x.dropped(t)["c2"]
			for range 3 {
				x.send(t, x.pod.IP, routedService)
			}
			require.Eventually(t, func() bool { return x.dropped(t)["c2"] >= before+3 }, 10*time.Second,
				50*time.Millisecond, "the last packets are counted, so all others have arrived")
			require.Zero(t, x.passed(t))
			require.Zero(t, x.dropped(t)["c3"])

			x.hub.ns.Run(
				"nft delete table ip " + dataplane.GatewayOwner.Antispoof +
					"; for c in $(iptables -S | sed -n 's/^-N \\(SUBMARINER-GW-[^ ]*\\)$/\\1/p'); do iptables -F $c; done",
			)
			ways := []string{routedService, routedOwn}
			if x.toHub.Device != dataplane.IPsecDevice { // IPsec itself binds the destination
				ways = append(ways, victim, routedForeign)
			}
			for _, dst := range ways {
				n := x.passed(t)
				require.Eventually(t, func() bool {
					x.send(t, x.pod.IP, dst)
					return x.passed(t) > n
				}, 20*time.Second, 50*time.Millisecond, "packets to %s do not pass even without the rules", dst)
			}
		})
	}
}
