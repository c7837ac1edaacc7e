package agent

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"subctl/cable"
	"subctl/dataplane"
	"subctl/internal/nstest"
)

// vtepMAC returns the MAC address of a node's device with addresses in net.
func vtepMAC(net byte, node string) string {
	_, mac := cable.VTEP(net, netip.MustParseAddr(node))
	return mac
}

// forge sends an IPv4 packet as a process with NET_RAW can.
func forge(t *testing.T, from *nstest.NS, packet []byte) {
	t.Helper()
	from.Do(func() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)
		require.NoError(t, err)
		defer unix.Close(fd)
		require.NoError(t, unix.Sendto(fd, packet, 0, &unix.SockaddrInet4{Addr: [4]byte(packet[16:20])}))
	})
}

// attack is a packet that somebody sends, and where nobody may see its marker, a UDP port.
type attack struct {
	name   string
	from   *nstest.NS
	packet func(marker int) []byte
	victim *nstest.NS
}

const firstMarker = 7001

// attacks returns packets that pods of east and the gateway of north, which both have a plain cable
// to west, send in the name of others.
func attacks(t *testing.T, east, west, north *side) []attack {
	t.Helper()
	victim, gateway, worker := west.pods["worker"], east.pods["gw"], east.pods["worker"]
	to := west.podIP("worker")
	marked := func(src string) func(int) []byte {
		return func(m int) []byte { return nstest.IPv4(src, to, unix.IPPROTO_UDP, nstest.UDP(9, m, []byte("x"))) }
	}
	intra := func(src, node string) func(int) []byte {
		return func(m int) []byte {
			in := nstest.VXLAN(dataplane.IntraVNI, vtepMAC(dataplane.IntraVTEPNet, node), marked("10.111.2.99")(m))
			return nstest.IPv4(src, node, unix.IPPROTO_UDP, nstest.UDP(9, dataplane.IntraPort, in))
		}
	}
	tunnel := func(src string, inner func(int) []byte, tag ...byte) func(int) []byte {
		return func(m int) []byte {
			in := nstest.VXLAN(dataplane.CableVNI, vtepMAC(dataplane.VXLANNet, "172.18.2.11"), inner(m), tag...)
			return nstest.IPv4(src, "172.18.2.11", unix.IPPROTO_UDP, nstest.UDP(9, dataplane.VXLANPort, in))
		}
	}
	return []attack{
		{"a pod sends to its gateway, and the CNI translates its address to the node's", worker, intra("10.111.2.5", "172.18.1.11"), victim},
		{"a pod forges the address of a node towards its own node", gateway, intra("172.18.1.12", "172.18.1.11"), victim},
		{"a pod sends to the other gateway, and the CNI translates its address", gateway, tunnel("10.111.1.5", marked("10.111.2.99")), victim},
		{"a pod forges the address of its gateway towards the other", worker, tunnel("172.18.1.11", marked("10.111.2.99")), victim},
		{"a pod forges the address of a remote pod towards a pod of its own cluster", gateway, func(m int) []byte {
			return nstest.IPv4(to, east.podIP("worker"), unix.IPPROTO_UDP, nstest.UDP(9, m, []byte("x")))
		}, worker},
		{"a pod forges the address of a node towards a remote pod", gateway, marked("172.18.1.12"), west.nodes["gw"]},
		{"a pod forges the address of a third cluster's pod towards a remote pod", worker, marked(north.podIP("worker")), west.nodes["gw"]},
		{"a pod sends to the address of a gateway on its device", gateway, func(m int) []byte {
			return nstest.IPv4("10.111.1.5", "241.18.2.11", unix.IPPROTO_UDP, nstest.UDP(9, m, []byte("x")))
		}, west.nodes["gw"]},
		{"a member sends with the address of another member's pod", north.nodes["gw"], tunnel("172.18.3.11", marked(east.podIP("worker"))), victim},
		{"a member hides the address behind a priority tag", north.nodes["gw"], tunnel("172.18.3.11", marked(east.podIP("worker")), 0x81, 0, 0, 0), victim},
	}
}

// No packet that a pod with NET_RAW or a member forges reaches its goal. Without our tables against
// forged packets each of them does, which shows that the test sends what it says.
func TestHostilePackets(t *testing.T) {
	fabric := newFabric(t)
	east, west, north := newSide(t, fabric, 1, "east"), newSide(t, fabric, 2, "west"), newSide(t, fabric, 3, "north")
	sides := []*side{east, west, north}
	for _, s := range sides { // as careless as a node may be
		for _, ns := range s.nodes {
			ns.Run("for d in /proc/sys/net/ipv4/conf/*; do echo 0 >$d/rp_filter; done")
			ns.Run("iptables -P FORWARD ACCEPT")
		}
	}
	east.sync(t, west, north)
	west.sync(t, east, north)
	north.sync(t, east, west)
	reach(t, east, "worker", west, "worker")
	reach(t, north, "gw", west, "worker")
	all := attacks(t, east, west, north)
	seen := func(ns *nstest.NS, marker int) int {
		out := ns.Run(fmt.Sprintf("iptables -t raw -nvxL PREROUTING | grep -w dpt:%d || true", marker))
		if out == "" {
			ns.Run(fmt.Sprintf("iptables -t raw -A PREROUTING -p udp --dport %d", marker))
			return 0
		}
		n, err := strconv.Atoi(strings.Fields(out)[0])
		require.NoError(t, err)
		return n
	}
	for i, a := range all {
		seen(a.victim, firstMarker+i)
		for range 3 {
			forge(t, a.from, a.packet(firstMarker+i))
		}
	}
	reach(t, east, "worker", west, "worker") // takes longer than a packet on its way
	for i, a := range all {
		require.Zero(t, seen(a.victim, firstMarker+i), a.name)
	}
	for _, s := range sides {
		for _, ns := range s.nodes {
			ns.Run("for o in gateway route; do nft delete table ip submariner-$o-antispoof 2>/dev/null; done; true")
		}
	}
	for i, a := range all {
		t.Run(a.name, func(t *testing.T) {
			require.Eventually(t, func() bool {
				forge(t, a.from, a.packet(firstMarker+i))
				return seen(a.victim, firstMarker+i) > 0
			}, 10*time.Second, 50*time.Millisecond, "the attack does not work even without a defense")
		})
	}
}
