package agent

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/mesh"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
	"subctl/dataplane/kernel"
	"subctl/internal/nstest"
)

// careless returns clusters with the same networks, connected to each other, whose nodes check as
// little as nodes may. Their workers' pods have addresses of their own. The gateways of all but the
// second cluster send whatever their owners want.
func careless(t *testing.T, ids ...string) (all []*side) {
	t.Helper()
	fabric := newFabric(t)
	for i, id := range ids {
		s := globalSide(t, fabric, i+1, id, 1, nodeNames...)
		s.own("worker")
		s.answer(t)
		for _, ns := range s.nodes {
			ns.Run("for d in /proc/sys/net/ipv4/conf/*; do echo 0 >$d/rp_filter; done; iptables -P FORWARD ACCEPT")
		}
		all = append(all, s)
	}
	for i, s := range all {
		var others []*side
		others = append(append(others, all[:i]...), all[i+1:]...)
		s.sync(t, others...)
	}
	for _, s := range all {
		if s != all[1] { // the others attack it, and remove what binds themselves
			s.nodes["gw"].Run("nft flush chain ip submariner-gateway-antispoof output")
		}
	}
	return all
}

// throughCable returns a packet as the gateway of cluster number n sends it through the cable to
// the gateway of cluster 2.
func throughCable(n int, packet []byte) []byte {
	in := nstest.VXLAN(dataplane.CableVNI, vtepMAC(dataplane.VXLANNet, "172.18.2.11"), packet)
	return nstest.IPv4(fmt.Sprintf("172.18.%d.11", n), "172.18.2.11", unix.IPPROTO_UDP,
		nstest.UDP(9, dataplane.VXLANPort, in))
}

// A member sends neither from a global address of another cluster, nor to an address that the
// cluster uses itself.
func TestHostileGlobalPackets(t *testing.T) {
	sides := careless(t, "east", "west", "north")
	east := sides[0]
	west := sides[1]
	north := sides[2]
	tunnel := func(src, dst string) func(int) []byte {
		return func(marker int) []byte {
			return throughCable(3, nstest.IPv4(src, dst, unix.IPPROTO_UDP, nstest.UDP(9, marker, []byte("x"))))
		}
	}
	from := north.nodes["gw"]
	victim := west.pods["worker"]
	all := []attack{
		{
			"from the own address of another cluster's pod",
			from,
			tunnel(east.ownIP("worker"), west.ownIP("worker")),
			victim,
		},
		{"from the shared address of another cluster", from, tunnel(east.egressIP(0), west.ownIP("worker")), victim},
		{"to a pod by its address in its cluster", from, tunnel(north.ownIP("worker"), west.podIP("worker")), victim},
	}
	repelled(t, all, func() {
		for _, s := range []*side{east, north} {
			_, client, err := inquire(s.pods["worker"], "tcp4", west.ownIP("worker")+":8080")
			require.NoError(t, err)
			require.Equal(t, s.ownIP("worker"), client)
		}
	})
	for _, ns := range west.nodes {
		ns.Run("for o in gateway route; do nft delete table ip submariner-$o-antispoof 2>/dev/null; done; true")
	}
	succeed(t, all)
}

// errorsSeen returns how many ICMP errors have arrived at ns, since the first call, about datagrams
// to a port, and from an address unless that is empty.
func errorsSeen(t *testing.T, ns *nstest.NS, port int, inside string) int {
	t.Helper()
	const dport = 8*8 + 8*20 + 16 // the ICMP header, the header of the packet inside, and the source port
	match := fmt.Sprintf("@th,%d,16 %d", dport, port)
	if inside != "" {
		match += fmt.Sprintf(" @th,%d,32 %#x", 8*dataplane.ErrorSource, netip.MustParseAddr(inside).As4())
	}
	out, err := ns.Try(fmt.Sprintf("nft list chain ip seen c%d", port))
	if err != nil {
		ns.Run(
			fmt.Sprintf(
				"nft 'add table ip seen; add chain ip seen c%[1]d { type filter hook prerouting priority -400; }; add rule ip seen c%[1]d icmp type 3 %[2]s counter'",
				port, match),
		)
		return 0
	}
	_, after, found := strings.Cut(out, "counter packets ")
	require.True(t, found, out)
	n, err := strconv.Atoi(strings.Fields(after)[0])
	require.NoError(t, err)
	return n
}

// Whatever header is inside an ICMP error, the error reaches no pod by the address that it has in
// its cluster, none in the name of another cluster, none about a packet to another cluster, and
// none about a connection to a Service that does not exist. An error to a pod's own address has the
// addresses inside translated, and no others.
func TestHostileErrors(t *testing.T) {
	sides := careless(t, "east", "west", "north")
	east := sides[0]
	west := sides[1]
	north := sides[2]
	west.admitInvalid()
	pod := west.pods["worker"]
	own := west.ownIP("worker")
	about := func(src, dst string) func(int) []byte { // unreachable: a datagram that src has sent
		return func(port int) []byte {
			return nstest.ICMPError(3, 3, nstest.IPv4(src, dst, unix.IPPROTO_UDP, nstest.UDP(5353, port, []byte("x"))))
		}
	}
	from := north.ownIP("worker")
	type forged struct {
		name     string
		src, dst string
		inside   func(int) []byte
		tables   bool // only our tables stop it
	}
	all := []forged{
		{"to a pod by its address in its cluster", from, west.podIP("worker"), about(own, from), true},
		{
			"to a pod by its address in its cluster, which is inside, too",
			from,
			west.podIP("worker"),
			about(west.podIP("worker"), from),
			true,
		},
		{"in the name of another cluster", east.ownIP("worker"), own, about(own, east.ownIP("worker")), true},
		{"about a packet to another cluster", from, own, about(own, east.ownIP("worker")), true},
		{"about a packet from another cluster", from, own, about(east.ownIP("worker"), own), true},
		{
			"about a connection to a Service that does not exist",
			from,
			west.serviceIP(),
			about(west.serviceIP(), from),
			false,
		},
		{"to a Service, with a pod inside", from, west.serviceIP(), about(own, from), false},
		{"to a shared address, with a pod inside", from, west.egressIP(0), about(west.podIP("worker"), from), false},
		{"to an address that nobody has, with a pod inside", from, "242.2.9.9", about(own, from), false},
	}
	send := func(i int) {
		a := all[i]
		forge(t, north.nodes["gw"],
			throughCable(3, nstest.IPv4(a.src, a.dst, unix.IPPROTO_ICMP, a.inside(firstMarker+i))))
	}
	for i := range all {
		errorsSeen(t, pod, firstMarker+i, "")
		errorsSeen(t, west.pods["gw"], firstMarker+i, "")
		send(i)
	}
	_, _, err := inquire(north.pods["worker"], "tcp4", own+":8080")
	require.NoError(t, err)
	for i, a := range all {
		require.Zero(t, errorsSeen(t, pod, firstMarker+i, ""), a.name)
		require.Zero(t, errorsSeen(t, west.pods["gw"], firstMarker+i, ""), a.name)
	}
	t.Log("an error to the pod's own address arrives, and names the pod inside only where it had its global address")
	for k, inside := range [][2]string{{own, west.podIP("worker")}, {"10.0.0.1", "10.0.0.1"}} {
		port := firstMarker - 10 + k
		errorsSeen(t, pod, port, inside[1])
		require.Eventually(t, func() bool {
			forge(t, north.nodes["gw"],
				throughCable(3, nstest.IPv4(from, own, unix.IPPROTO_ICMP, about(inside[0], from)(port))))
			return errorsSeen(t, pod, port, inside[1]) > 0
		}, 10*time.Second, 50*time.Millisecond)
	}
	for _, ns := range west.nodes {
		ns.Run("for o in gateway route; do nft delete table ip submariner-$o-antispoof 2>/dev/null; done; true")
	}
	for i, a := range all {
		if a.tables {
			t.Run(a.name, func(t *testing.T) {
				require.Eventually(t, func() bool {
					send(i)
					return errorsSeen(t, pod, firstMarker+i, "") > 0
				}, 10*time.Second, 50*time.Millisecond, "the attack does not work even without a defense")
			})
		}
	}
}

// Fragments pass no rule that the whole packet does not pass.
func TestHostileFragments(t *testing.T) {
	sides := careless(t, "east", "west", "north")
	east := sides[0]
	west := sides[1]
	north := sides[2]
	pod := west.pods["worker"]
	from := north.ownIP("worker")
	datagram := func(src, dst string, port int) []byte {
		b := nstest.IPv4(src, dst, unix.IPPROTO_UDP, nstest.UDP(9, port, make([]byte, 64)))
		binary.BigEndian.PutUint16(b[4:], uint16(port)) // fragments of different packets do not belong together
		return b
	}
	all := []struct {
		name     string
		src, dst string
		first    int // bytes in the first fragment: 8 are the UDP header
		only     int // the number of the fragment that is sent, from 1; 0 for both
		swapped  bool
		tables   bool // only our tables stop it
	}{
		{"to a pod by its address in its cluster", from, west.podIP("worker"), 16, 0, false, true},
		{"to a pod by its address in its cluster, the second one first", from, west.podIP("worker"), 8, 0, true, true},
		{"in the name of another cluster", east.ownIP("worker"), west.ownIP("worker"), 8, 0, false, true},
		{"to a port that is not exported", from, west.serviceIP(), 8, 0, false, false},
		{"without the one that has the port", from, west.ownIP("worker"), 8, 2, false, false},
		{"without the rest", from, west.ownIP("worker"), 8, 1, false, false},
	}
	send := func(i int) {
		a := all[i]
		parts := nstest.Fragments(datagram(a.src, a.dst, firstMarker+i), a.first)
		if a.swapped {
			parts[0], parts[1] = parts[1], parts[0]
		}
		for k, part := range parts {
			if a.only == 0 || a.only == k+1 {
				forge(t, north.nodes["gw"], throughCable(3, part))
			}
		}
	}
	for i := range all {
		arrived(t, pod, firstMarker+i)
		arrived(t, west.pods["gw"], firstMarker+i)
		send(i)
	}
	t.Log("fragments that belong together arrive")
	const honest = 6991
	arrived(t, pod, honest)
	require.Eventually(t, func() bool {
		for _, part := range nstest.Fragments(datagram(from, west.ownIP("worker"), honest), 8) {
			forge(t, north.nodes["gw"], throughCable(3, part))
		}
		return arrived(t, pod, honest) > 0
	}, 10*time.Second, 50*time.Millisecond)
	for i, a := range all {
		require.Zero(t, arrived(t, pod, firstMarker+i), a.name)
		require.Zero(t, arrived(t, west.pods["gw"], firstMarker+i), a.name)
	}
	for _, ns := range west.nodes {
		ns.Run("for o in gateway route; do nft delete table ip submariner-$o-antispoof 2>/dev/null; done; true")
	}
	for i, a := range all {
		if a.tables {
			t.Run(a.name, func(t *testing.T) {
				require.Eventually(t, func() bool {
					send(i)
					return arrived(t, pod, firstMarker+i) > 0
				}, 10*time.Second, 50*time.Millisecond, "the attack does not work even without a defense")
			})
		}
	}
}

// A pod that uses up all ports of a shared address for one Service stops only the pods that have
// the same address there: neither pods with addresses of their own, nor pods of a GlobalEgressIP,
// nor connections to others. The gateway counts it.
func TestHostilePorts(t *testing.T) {
	fabric := newFabric(t)
	names := []string{"gw", "worker", "third"}
	east := globalSide(t, fabric, 1, "east", 1, names...)
	west := globalSide(t, fabric, 2, "west", 1, nodeNames...)
	east.own("worker")
	west.own("worker")
	west.answer(t)
	group := &submarinerv1.GlobalEgressIP{ObjectMeta: metav1.ObjectMeta{Name: "third", Namespace: "default"}}
	group.Spec.PodSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "third"}}
	group.Status.AllocatedIPs = []string{"242.1.4.1"}
	for _, o := range east.objs {
		if p, is := o.(*corev1.Pod); is {
			p.Labels = map[string]string{"app": p.Name}
		}
	}
	east.objs = append(east.objs, group)
	east.sync(t, west)
	west.sync(t, east)
	to := [4]byte(net.ParseIP(west.serviceIP()).To4())
	const dns = 53
	// only east's connections are of interest
	west.nodes["gw"].Run("iptables -t raw -I PREROUTING -d 242.2.0.0/16 -p udp --dport 53 -s 242.1.1.1 -j DROP")
	attacker := east.pods["gw"]
	attacker.Run("sysctl -qw net.ipv4.ip_local_port_range='1024 65535'")
	attacker.Do(func() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)
		require.NoError(t, err)
		defer unix.Close(fd)
		for port := 1024; port < 65536; port++ {
			packet := nstest.IPv4(east.podIP("gw"), west.serviceIP(), unix.IPPROTO_UDP,
				nstest.UDP(port, dns, []byte("x")))
			require.NoError(t, unix.Sendto(fd, packet, 0, &unix.SockaddrInet4{Addr: to}))
		}
	})
	var flows dataplane.Flows
	east.nodes["gw"].Do(func() {
		h, err := kernel.New(dataplane.GatewayOwner)
		require.NoError(t, err)
		defer h.Close()
		flows, err = h.Flows(
			dataplane.FlowQuery{
				Sources: mesh.PlanOf(east.plans[[2]string{"gw", "gateway"}]).Mesh.Membership.Own.Global,
			})
		require.NoError(t, err)
	})
	require.NotEmpty(t, flows.Sources)
	fullest := flows.Sources[0]
	require.Equal(t, east.egressIP(0), fullest.Source.String())
	require.Equal(t, "udp "+west.serviceIP()+":53", fullest.Busiest())
	require.Greater(t, fullest.Most, submarinerv1.EgressPortsScarce, "the attack does not do what it says")
	west.nodes["gw"].Run("iptables -t raw -D PREROUTING 1")
	for from, client := range map[string]string{"worker": east.ownIP("worker"), "third": "242.1.4.1"} {
		_, seen, err := inquire(east.pods[from], "udp4", west.serviceIP()+":53")
		require.NoError(t, err, from)
		require.Equal(t, client, seen)
	}
	for network, other := range map[string]string{
		"tcp4": west.serviceIP() + ":80",
		"udp4": west.ownIP("worker") + ":5353",
	} {
		_, seen, err := inquire(attacker, network, other)
		require.NoError(t, err, other)
		require.Equal(t, east.egressIP(0), seen)
	}
}

// A broker that gives two clusters the same global network, or one the network of this cluster,
// gains nothing: who had it first keeps it, and the other one is refused.
func TestHostileSameGlobalNetwork(t *testing.T) {
	for _, stolen := range []string{"west", "east"} {
		t.Run("that of "+stolen, func(t *testing.T) {
			fabric := newFabric(t)
			east := globalSide(t, fabric, 1, "east", 1, nodeNames...)
			west := globalSide(t, fabric, 2, "west", 1, nodeNames...)
			thief := globalSide(t, fabric, 3, "thief", 1, nodeNames...)
			west.own("worker")
			west.answer(t)
			thief.global = map[string]string{"west": west.global, "east": east.global}[stolen]
			east.sync(t, west)
			west.sync(t, east)
			reaches := func() {
				t.Helper()
				for _, to := range []string{west.serviceIP() + ":80", west.ownIP("worker") + ":8080"} {
					_, client, err := inquire(east.pods["worker"], "tcp4", to)
					require.NoError(t, err)
					require.Equal(t, east.egressIP(0), client)
				}
			}
			reaches()
			east.incumbents = append(
				east.incumbents,
				mesh.PlanOf(east.plans[[2]string{"gw", "gateway"}]).Mesh.Accepted.Incumbents...)
			west.incumbents = append(
				west.incumbents,
				mesh.PlanOf(west.plans[[2]string{"gw", "gateway"}]).Mesh.Accepted.Incumbents...)
			east.sync(t, west, thief)
			west.sync(t, east, thief)
			var refused []string
			for _, r := range mesh.PlanOf(east.plans[[2]string{"gw", "gateway"}]).Mesh.Cables.Refused {
				refused = append(refused, r.Spec.ClusterID+": "+r.Err.Error())
			}
			require.Len(t, refused, 1)
			require.Contains(t, refused[0], "thief: subnet "+thief.global)
			reaches()
		})
	}
}
