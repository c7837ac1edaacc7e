package agent

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/internal/nstest"
)

// The address and the node port of a Service that kubeProxy leads to one endpoint.
const (
	remoteService = ".0.77"
	nodePort      = "30080"
)

// kubeProxy gives all nodes of a cluster the rules that kube-proxy has for a Service with one
// endpoint, at TCP port 8080 and UDP port 5353.
func kubeProxy(s *side, endpoint string) {
	for _, ns := range s.nodes {
		script := `iptables -t nat -N KUBE-SVC
			iptables -t nat -I PREROUTING -j KUBE-SVC
			iptables -t nat -I OUTPUT -j KUBE-SVC
			iptables -t nat -I POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE
			iptables -I FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
			iptables -I FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
			iptables -A FORWARD -m conntrack --ctstate INVALID -j DROP`
		for proto, ports := range map[string][2]string{"tcp": {"80", "8080"}, "udp": {"53", "5353"}} {
			vip := fmt.Sprintf("-d 10.10%d%s -p %s --dport %s", s.net, remoteService, proto, ports[0])
			node := fmt.Sprintf("-m addrtype --dst-type LOCAL -p %s --dport %s", proto, nodePort)
			dnat := fmt.Sprintf("-j DNAT --to-destination %s:%s", endpoint, ports[1])
			for _, rule := range []string{
				fmt.Sprintf("! -s 10.11%d.0.0/16 %s -j MARK --set-xmark 0x4000/0x4000", s.net, vip), vip + " " + dnat,
				node + " -j MARK --set-xmark 0x4000/0x4000", node + " " + dnat,
			} {
				script += "\niptables -t nat -A KUBE-SVC " + rule
			}
		}
		ns.Run(strings.ReplaceAll(script, "\t", ""))
	}
}

// outsider returns a host outside all clusters, to which the routers of all nodes have a route.
func outsider(t *testing.T, fabric *nstest.NS) *nstest.NS {
	t.Helper()
	ns := nstest.New(t, "outside")
	nstest.Join(nstest.End{NS: ns, Dev: "eth0", Addr: "192.0.2.1/24"}, nstest.End{
		NS: fabric, Dev: "outside", Addr: "192.0.2.254/24",
	})
	ns.Run("ip route add default via 192.0.2.254")
	return ns
}

// A Service whose endpoint is a pod of another cluster answers pods, processes of nodes, and
// clients outside that use a node port, on workers and on gateways. Whoever is no pod comes from
// the address of the node among the pods, and answers return to this node.
func TestServiceWithEndpointInAnotherCluster(t *testing.T) {
	for name, new := range map[string]func(*nstest.NS) (east, west *side){
		"one gateway": func(f *nstest.NS) (*side, *side) { return newSide(t, f, 1, "east"), newSide(t, f, 2, "west") },
		"two gateways": func(f *nstest.NS) (*side, *side) {
			return twoGateways(t, f, 1, "east"), twoGateways(t, f, 2, "west")
		},
		"two gateways, and the CNI carries packets to pods": func(f *nstest.NS) (*side, *side) {
			east := twoGateways(t, f, 1, "east")
			west := twoGateways(t, f, 2, "west")
			ownRoutes(east)
			return east, west
		},
		"global networks": func(f *nstest.NS) (*side, *side) {
			return globalSide(t, f, 1, "east", 1, nodeNames...), globalSide(t, f, 2, "west", 1, nodeNames...)
		},
		"global networks, two gateways": func(f *nstest.NS) (*side, *side) {
			names := []string{"gw", "gw2", "worker"}
			return globalSide(t, f, 1, "east", 2, names...), globalSide(t, f, 2, "west", 2, names...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			fabric := newFabric(t)
			east, west := new(fabric)
			client := outsider(t, fabric)
			endpoint := west.podIP("worker")
			if east.global != "" {
				west.own("worker")
				endpoint = west.ownIP("worker")
			}
			kubeProxy(east, endpoint)
			west.answer(t)
			east.sync(t, west)
			west.sync(t, east)
			require.Zero(t, east.sync(t, west), "the second sync must find nothing to do")
			asks := func(from *nstest.NS, to, what string, sources ...string) {
				t.Helper()
				for range 3 { // through both gateways
					for network, port := range map[string]string{"tcp4": "80", "udp4": "53"} {
						if !strings.HasPrefix(to, "10.") {
							port = nodePort
						}
						_, source, err := inquire(from, network, to+":"+port)
						require.NoError(t, err, "%s over %s", what, network)
						require.Contains(t, sources, source, what)
					}
				}
			}
			vip := fmt.Sprintf("10.10%d%s", east.net, remoteService)
			for i, node := range east.names {
				pod := []string{east.podIP(node)}
				own := []string{fmt.Sprintf("10.11%d.%d.1", east.net, i+1)}
				if east.global != "" {
					pod = []string{east.egressIP(0), east.egressIP(1)}
					own = pod
				}
				asks(east.pods[node], vip, "the pod on "+node, pod...)
				asks(east.nodes[node], vip, "a process of "+node, own...)
				asks(client, fmt.Sprintf("172.18.%d.%d", east.n, 11+i), "a client outside by the node port of "+node,
					own...)
			}
			require.Zero(t, isolationDrops(t, east)["west"])
		})
	}
}

// A host outside that sends to another cluster by way of a node, with its own address or with that
// of a pod of a third cluster, is not let through as the node is when it forwards what came by a
// node port: nobody offers this way.
func TestHostileOutsiderThroughNodes(t *testing.T) {
	fabric := newFabric(t)
	hub := newSide(t, fabric, 1, "hub")
	west := newSide(t, fabric, 2, "west")
	north := newSide(t, fabric, 3, "north")
	outside := outsider(t, fabric)
	for _, ns := range hub.nodes { // as careless as a node may be
		ns.Run("for d in /proc/sys/net/ipv4/conf/*; do echo 0 >$d/rp_filter; done; iptables -P FORWARD ACCEPT")
	}
	kubeProxy(hub, north.podIP("worker"))
	for _, ns := range hub.nodes {
		ns.Run("iptables -t nat -I POSTROUTING -p udp --dport 5353 -j MASQUERADE")
	}
	hub.sync(t, west, north)
	west.sync(t, hub)
	north.sync(t, hub)
	reach(t, hub, "worker", north, "worker")
	victim := north.pods["worker"]
	victim.Run("iptables -t raw -A PREROUTING -p udp --dport 5353")
	arrived := func() int {
		var n int
		_, err := fmt.Sscan(victim.Run("iptables -t raw -nvxL PREROUTING | grep dpt:5353"), &n)
		require.NoError(t, err)
		return n
	}
	send := func(src, to string, port int) {
		forge(t, outside, nstest.IPv4(src, to, 17, nstest.UDP(9, port, []byte("x"))))
	}
	for node, ip := range map[string]string{"gw": "172.18.1.11", "worker": "172.18.1.12"} {
		fabric.Run("ip route replace 10.113.0.0/16 via " + ip)
		for range 3 {
			send("192.0.2.1", north.podIP("worker"), 5353)          // straight to the pod
			send(west.podIP("worker"), north.podIP("worker"), 5353) // as a pod of a third cluster
			send(west.podIP("worker"), ip, 30080)                   // by the node port
		}
		reach(t, hub, "worker", north, "worker") // takes longer than a packet on its way
		require.Zero(t, arrived(), node)
	}
	require.Eventually(t, func() bool { send("192.0.2.1", "172.18.1.12", 30080); return arrived() > 0 }, 10*time.Second,
		50*time.Millisecond,
		"a client with its own address is let through")
}
