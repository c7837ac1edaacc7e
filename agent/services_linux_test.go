package agent

import (
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ownRoutes gives a cluster a CNI that leads to the pods of all nodes itself. As Calico, it accepts
// packets from and to the devices of pods, and leaves what a gateway forwards to the pods of other
// nodes to others.
func ownRoutes(s *side) {
	s.carries = true
	for _, ns := range s.nodes {
		ns.Run("sysctl -qw net.ipv4.conf.eth0.rp_filter=2; ip link set cni0 down; ip link set cni0 name cali0; ip " +
			"link set cali0 up; iptables -A FORWARD -i cali0 -j ACCEPT; iptables -A FORWARD -o cali0 -j ACCEPT")
	}
}

// Where the CNI leads to the pods of other nodes, and a cluster has two active gateways, all
// connections to its Services work. A pod sees the address of the gateway as the source, unless it
// is on the gateway itself. Connections to pods keep the client's.
func TestServicesBehindTheCNI(t *testing.T) {
	fabric := newFabric(t)
	east := twoGateways(t, fabric, 1, "east")
	west := twoGateways(t, fabric, 2, "west")
	ownRoutes(west)
	east.sync(t, west)
	west.sync(t, east)
	require.Zero(t, east.sync(t, west)+west.sync(t, east), "the second sync must find nothing to do")
	says := func(from, to *net.TCPConn) {
		require.NoError(t, to.SetDeadline(time.Now().Add(20*time.Second)))
		text := strings.Repeat("word", 10_000) // many packets
		go io.WriteString(from, text)          // an error makes the other end wait in vain
		got := make([]byte, len(text))
		_, err := io.ReadFull(to, got)
		require.NoError(t, err)
		require.Equal(t, text, string(got))
	}
	for node, want := range map[string]func(client string) []string{
		"worker": func(string) []string { return []string{"172.18.2.11", "172.18.2.12"} },
		"gw":     func(client string) []string { return []string{client, "172.18.2.12"} },
	} {
		seen := map[bool]int{} // whether the gateway is gw
		for i := range 20 {
			service := fmt.Sprintf("10.102.0.%d", 10+i)
			from := east.names[i%len(east.names)]
			for _, gw := range west.names[:west.gateways] {
				west.nodes[gw].Run(
					fmt.Sprintf(
						"iptables -t nat -A PREROUTING -d %s/32 -p tcp --dport 80 -j DNAT --to-destination %s:8080",
						service, west.podIP(node)),
				)
			}
			connect(
				t,
				east.pods[from],
				service+":80",
				west.pods[node],
				west.podIP(node)+":8080",
				func(c, s *net.TCPConn) {
					source := s.RemoteAddr().(*net.TCPAddr).IP.String()
					sources := want(east.podIP(from))
					require.Contains(t, sources, source, "pod on %s", node)
					seen[source == sources[0]]++
					says(c, s)
					says(s, c)
				},
			)
		}
		require.Len(t, seen, 2, "both gateways translate some connections to the pod on %s", node)
		for _, gw := range west.names[:west.gateways] {
			west.nodes[gw].Run("iptables -t nat -F PREROUTING")
		}
	}
	for _, from := range east.names {
		for _, to := range west.names {
			at := west.podIP(to) + ":8080"
			connect(t, east.pods[from], at, west.pods[to], at, func(c, s *net.TCPConn) {
				require.Equal(t, east.podIP(from), s.RemoteAddr().(*net.TCPAddr).IP.String(),
					"the client's own address")
				says(c, s)
				says(s, c)
			})
		}
	}
	east.leave(t)
	west.leave(t)
}

// The same holds for exported Services of a cluster with a global network. Pods with an address of
// their own see the client's.
func TestGlobalServicesBehindTheCNI(t *testing.T) {
	fabric := newFabric(t)
	east := globalSide(t, fabric, 1, "east", 2, "gw", "gw2", "worker")
	west := globalSide(t, fabric, 2, "west", 2, "gw", "gw2", "worker")
	ownRoutes(west)
	west.own("worker")
	west.answer(t)
	east.sync(t, west)
	west.sync(t, east)
	clients := []string{east.egressIP(0), east.egressIP(1)}
	seen := map[bool]int{} // whether the pod sees the client
	for i := range 20 {
		from := east.pods[east.names[i%len(east.names)]]
		for port, network := range map[string]string{":80": "tcp4", ":53": "udp4"} {
			_, source, err := inquire(from, network, west.serviceIP()+port)
			require.NoError(t, err)
			require.Contains(t, append([]string{"172.18.2.11", "172.18.2.12"}, clients...), source)
			seen[slices.Contains(clients, source)]++
		}
		_, source, err := inquire(from, "tcp4", west.ownIP("worker")+":8080")
		require.NoError(t, err)
		require.Contains(t, clients, source)
	}
	require.Len(t, seen, 2, "pods on the gateway that translates, and on others")
}
