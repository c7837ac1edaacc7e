package agent

import (
	"fmt"
	"maps"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/dataplane"
	"subctl/dataplane/kernel"
	"subctl/internal/nstest"
)

// flat gives the pods of a cluster addresses that the network between all nodes routes, and to
// which its nodes translate nothing: as in a VPC.
func flat(s *side) {
	for i, name := range s.names {
		s.fabric.Run(fmt.Sprintf("ip route add 10.11%d.%d.0/24 via 172.18.%d.%d", s.net, i+1, s.n, 11+i))
		s.nodes[name].Run("iptables -t nat -I POSTROUTING -d 172.18.0.0/16 -j ACCEPT")
	}
}

// loose lets nodes accept packets whose source another device leads to, as most distributions do. A
// stricter kernel drops the packets itself.
func loose(s *side) {
	for _, ns := range s.nodes {
		ns.Run("sysctl -qw net.ipv4.conf.all.rp_filter=2 net.ipv4.conf.eth0.rp_filter=2")
	}
}

// routeDrops returns the packets that the route agent's table on a node has dropped, by cluster.
func routeDrops(t *testing.T, s *side, node string) (drops map[string]uint64) {
	t.Helper()
	s.nodes[node].Do(func() {
		h, err := kernel.New(dataplane.RouteOwner)
		require.NoError(t, err)
		defer h.Close()
		drops, err = h.Drops()
		require.NoError(t, err)
	})
	return drops
}

// dropReasons returns the packets that an agent's tables on a node have dropped, by reason, without
// reasons that have none.
func dropReasons(t *testing.T, s *side, node string, owner dataplane.Owner) (reasons map[string]uint64) {
	t.Helper()
	s.nodes[node].Do(func() {
		h, err := kernel.New(owner)
		require.NoError(t, err)
		defer h.Close()
		reasons, err = h.DropReasons()
		require.NoError(t, err)
	})
	maps.DeleteFunc(reasons, func(_ string, n uint64) bool { return n == 0 })
	return reasons
}

// Where pods of a cluster reached the nodes of another one and their node ports, by the network
// between all nodes, they still do when the two are connected: the nodes accept the packets, and
// answer the way they came. Connections that were open go on.
func TestJoiningAFlatNetwork(t *testing.T) {
	for name, new := range map[string]func(*nstest.NS, int, string) *side{
		"one gateway":  func(f *nstest.NS, n int, id string) *side { return newSide(t, f, n, id) },
		"two gateways": func(f *nstest.NS, n int, id string) *side { return twoGateways(t, f, n, id) },
		"two gateways, and the CNI carries packets to pods": func(f *nstest.NS, n int, id string) *side {
			s := twoGateways(t, f, n, id)
			ownRoutes(s)
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			fabric := newFabric(t)
			east := new(fabric, 1, "east")
			west := new(fabric, 2, "west")
			flat(west)
			loose(east)
			east.answer(t)
			kubeProxy(east, east.podIP("worker"))
			works := func(when string) {
				t.Helper()
				for i, node := range east.names {
					ip := fmt.Sprintf("172.18.%d.%d", east.n, 11+i)
					for _, from := range west.names {
						west.pods[from].Run("ping -c1 -W3 " + ip)
						connect(t, west.pods[from], ip+":8080", east.nodes[node], ip+":8080",
							func(_, _ *net.TCPConn) {})
						for _, network := range []string{"tcp4", "udp4"} {
							who, source, err := inquire(west.pods[from], network, ip+":"+nodePort)
							require.NoError(t, err, "%s: node port of %s over %s, from the pod on %s", when, node,
								network, from)
							require.Equal(t, "worker", who)
							require.NotEqual(t, west.podIP(from), source, "nothing tells whether the address is true")
						}
					}
				}
			}
			works("before")
			open := map[string]*flow{}
			for i, node := range east.names {
				open[node] = echoOf(t, "tcp4", west, east.nodes[node], fmt.Sprintf("172.18.%d.%d", east.n, 11+i))
			}
			moreAnswers(t, open)
			east.sync(t, west)
			west.sync(t, east)
			require.Zero(t, east.sync(t, west)+west.sync(t, east), "the second sync must find nothing to do")
			works("after")
			moreAnswers(t, open)
			reach(t, west, "worker", east, "worker")
			reach(t, east, "worker", west, "worker")
			for _, node := range east.names {
				require.Zero(t, routeDrops(t, east, node)["west"], node)
			}
		})
	}
}

// A host in the network of the nodes sends with the address of a pod of another cluster: nothing
// reaches a pod from this address, neither straight nor by a node port that keeps sources. What is
// dropped is counted for the cluster, on the node that drops it.
func TestHostileSourceInAFlatNetwork(t *testing.T) {
	fabric := newFabric(t)
	east := newSide(t, fabric, 1, "east")
	west := newSide(t, fabric, 2, "west")
	outside := outsider(t, fabric)
	for _, ns := range east.nodes { // as careless as a node may be
		ns.Run("for d in /proc/sys/net/ipv4/conf/*; do echo 0 >$d/rp_filter; done; iptables -P FORWARD ACCEPT")
		// externalTrafficPolicy: Local
		ns.Run("iptables -t nat -A PREROUTING -p udp --dport 30080 -j DNAT --to-destination " +
			east.podIP("worker") + ":5353")
	}
	for i := range east.names {
		fabric.Run(fmt.Sprintf("ip route add 10.111.%d.0/24 via 172.18.1.%d", i+1, 11+i))
	}
	fabric.Run("ip route add 10.101.0.0/16 via 172.18.1.12")
	east.sync(t, west)
	west.sync(t, east)
	victim := east.pods["worker"]
	victim.Run("iptables -t raw -A PREROUTING -s " + west.podIP("worker") + " -p udp --dport 5353; iptables -t raw " +
		"-A PREROUTING -s 10.111.0.0/16 -p udp --dport 5353")
	seen := func(source string) string {
		return strings.Fields(victim.Run("iptables -t raw -nvxL PREROUTING | grep '" + source + ".*dpt:5353'"))[0]
	}
	send := func(to string, port int) {
		forge(t, outside, nstest.IPv4(west.podIP("worker"), to, 17, nstest.UDP(9, port, []byte("x"))))
	}
	for range 3 {
		send(east.podIP("worker"), 5353)
		send("10.111.2.1", 5353)
		send("10.101.0.10", 53)
	}
	require.Eventually(t, func() bool { send("172.18.1.12", 30080); return seen("10.111.0.0/16") != "0" },
		10*time.Second, 50*time.Millisecond)
	require.Equal(t, "0", seen(west.podIP("worker")))
	require.EqualValues(t, 9, routeDrops(t, east, "worker")["west"])
	require.Equal(t, map[string]uint64{dataplane.DropBeside: 9}, dropReasons(t, east, "worker", dataplane.RouteOwner))
	east.nodes["worker"].Run("nft flush chain ip submariner-route-antispoof prerouting; nft flush chain ip " +
		"submariner-route postrouting")
	require.Eventually(t, func() bool { send(east.podIP("worker"), 5353); return seen(west.podIP("worker")) != "0" },
		10*time.Second, 50*time.Millisecond,
		"the attack does not work even without a defense")
}
