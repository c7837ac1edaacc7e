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
	victim := west.pods["worker"]
	gateway := east.pods["gw"]
	worker := east.pods["worker"]
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
		{
			"a pod sends to its gateway, and the CNI translates its address to the node's",
			worker,
			intra("10.111.2.5", "172.18.1.11"),
			victim,
		},
		{
			"a pod forges the address of a node towards its own node",
			gateway,
			intra("172.18.1.12", "172.18.1.11"),
			victim,
		},
		{
			"a pod sends to the other gateway, and the CNI translates its address",
			gateway,
			tunnel("10.111.1.5", marked("10.111.2.99")),
			victim,
		},
		{
			"a pod forges the address of its gateway towards the other",
			worker,
			tunnel("172.18.1.11", marked("10.111.2.99")),
			victim,
		},
		{"a pod forges the address of a remote pod towards a pod of its own cluster", gateway, func(m int) []byte {
			return nstest.IPv4(to, east.podIP("worker"), unix.IPPROTO_UDP, nstest.UDP(9, m, []byte("x")))
		}, worker},
		{"a pod forges the address of a node towards a remote pod", gateway, marked("172.18.1.12"), west.nodes["gw"]},
		{
			"a pod forges the address of a third cluster's pod towards a remote pod",
			worker,
			marked(north.podIP("worker")),
			west.nodes["gw"],
		},
		{"a pod sends to the address of a gateway on its device", gateway, func(m int) []byte {
			return nstest.IPv4("10.111.1.5", "241.18.2.11", unix.IPPROTO_UDP, nstest.UDP(9, m, []byte("x")))
		}, west.nodes["gw"]},
		{
			"a member sends with the address of another member's pod",
			north.nodes["gw"],
			tunnel("172.18.3.11", marked(east.podIP("worker"))),
			victim,
		},
		{
			"a member hides the address behind a priority tag",
			north.nodes["gw"],
			tunnel("172.18.3.11", marked(east.podIP("worker")), 0x81, 0, 0, 0),
			victim,
		},
	}
}

// No packet that a pod with NET_RAW or a member forges reaches its goal. Without our tables against
// forged packets each of them does, which shows that the test sends what it says.
func TestHostilePackets(t *testing.T) {
	fabric := newFabric(t)
	east := newSide(t, fabric, 1, "east")
	west := newSide(t, fabric, 2, "west")
	north := newSide(t, fabric, 3, "north")
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
	// a hostile member removes what binds itself
	north.nodes["gw"].Run("nft flush chain ip submariner-gateway-antispoof output")
	all := attacks(t, east, west, north)
	repelled(t, all, func() { reach(t, east, "worker", west, "worker") })
	for _, s := range sides {
		for _, ns := range s.nodes {
			ns.Run("for o in gateway route; do nft delete table ip submariner-$o-antispoof 2>/dev/null; done; true")
		}
	}
	succeed(t, all)
}

// A machine in the network of the nodes that is none of them cannot send into VXLAN, with its own
// address, that of another cluster's gateway, or that of a node which has nothing to send there. If
// the network lets it send with the address of the node that has, VXLAN cannot tell:
// docs/threat-model.md says what follows.
func TestHostileMachineInNodeNetwork(t *testing.T) {
	fabric := newFabric(t)
	east := newSide(t, fabric, 1, "east")
	west := newSide(t, fabric, 2, "west")
	for _, ns := range west.nodes { // as careless as a node may be
		ns.Run("for d in /proc/sys/net/ipv4/conf/*; do echo 0 >$d/rp_filter; done; iptables -P FORWARD ACCEPT")
	}
	east.sync(t, west)
	west.sync(t, east)
	reach(t, east, "worker", west, "worker")
	machine := nstest.New(t, "machine")
	nstest.Join(nstest.End{NS: machine, Dev: "eth0", Addr: "172.18.2.99/24"}, nstest.End{NS: fabric, Dev: "v29"})
	fabric.Run("ip link set v29 master br2")
	const gw, worker = "172.18.2.11", "172.18.2.12"
	victim := west.pods["worker"]
	send := func(src, node string, port, vni int, net byte, inner string) func(int) []byte {
		return func(marker int) []byte {
			packet := nstest.IPv4(inner, west.podIP("worker"), unix.IPPROTO_UDP, nstest.UDP(9, marker, []byte("x")))
			return nstest.IPv4(src, node, unix.IPPROTO_UDP,
				nstest.UDP(9, port, nstest.VXLAN(vni, vtepMAC(net, node), packet)))
		}
	}
	intra := func(src, node, inner string) func(int) []byte {
		return send(src, node, dataplane.IntraPort, dataplane.IntraVNI, dataplane.IntraVTEPNet, inner)
	}
	cable := func(src, inner string) func(int) []byte {
		return send(src, gw, dataplane.VXLANPort, dataplane.CableVNI, dataplane.VXLANNet, inner)
	}
	all := []attack{
		{"to a worker, as a remote pod", machine, intra("172.18.2.99", worker, east.podIP("worker")), victim},
		{
			"to a worker, as a remote pod, as the remote gateway",
			machine,
			intra("172.18.1.11", worker, east.podIP("worker")),
			victim,
		},
		{"to the gateway, as a pod", machine, intra("172.18.2.99", gw, west.podIP("gw")), victim},
		{
			"to the gateway, as a remote pod, as the remote gateway",
			machine,
			intra("172.18.1.11", gw, east.podIP("worker")),
			victim,
		},
		{"through the cable, as a remote pod", machine, cable("172.18.2.99", east.podIP("worker")), victim},
		{"through the cable, as a remote pod, as a worker", machine, cable(worker, east.podIP("worker")), victim},
		{"through the cable, as a pod, as the remote gateway", machine, cable("172.18.1.11", west.podIP("gw")), victim},
	}
	repelled(t, all, func() { reach(t, east, "worker", west, "worker") })
	require.Eventually(
		t,
		func() bool {
			forge(t, machine, intra(gw, worker, east.podIP("worker"))(firstMarker))
			return arrived(t, victim, firstMarker) > 0
		},
		10*time.Second,
		50*time.Millisecond,
		"what docs/threat-model.md says is not so, or the test does not send what it says",
	)
	for _, ns := range west.nodes {
		ns.Run(
			"for o in gateway route; do nft delete table ip submariner-$o-antispoof 2>/dev/null; done; for c in $(iptables -S | sed -n 's/^-N \\(SUBMARINER-[^ ]*\\)$/\\1/p'); do iptables -F $c; done; iptables -P INPUT ACCEPT")
	}
	succeed(t, all)
}

// arrived returns how many packets with a marker have arrived at ns since the first call.
func arrived(t *testing.T, ns *nstest.NS, marker int) int {
	t.Helper()
	out := ns.Run(fmt.Sprintf("iptables -t raw -nvxL PREROUTING | grep -w dpt:%d || true", marker))
	if out == "" {
		ns.Run(fmt.Sprintf("iptables -t raw -A PREROUTING -p udp --dport %d", marker))
		return 0
	}
	n, err := strconv.Atoi(strings.Fields(out)[0])
	require.NoError(t, err)
	return n
}

// repelled sends each packet three times and, after wait, requires that none has arrived.
func repelled(t *testing.T, all []attack, wait func()) {
	t.Helper()
	for i, a := range all {
		arrived(t, a.victim, firstMarker+i)
		for range 3 {
			forge(t, a.from, a.packet(firstMarker+i))
		}
	}
	wait() // takes longer than a packet on its way
	for i, a := range all {
		require.Zero(t, arrived(t, a.victim, firstMarker+i), a.name)
	}
}

// succeed requires that each packet arrives.
func succeed(t *testing.T, all []attack) {
	t.Helper()
	for i, a := range all {
		t.Run(a.name, func(t *testing.T) {
			before := arrived(t, a.victim, firstMarker+i)
			require.Eventually(t, func() bool {
				forge(t, a.from, a.packet(firstMarker+i))
				return arrived(t, a.victim, firstMarker+i) > before
			}, 10*time.Second, 50*time.Millisecond, "the attack does not work even without a defense")
		})
	}
}
