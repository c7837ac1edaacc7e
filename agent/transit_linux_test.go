package agent

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
	"subctl/internal/nstest"
)

// datagram sends a datagram from a network namespace.
func datagram(t *testing.T, from *nstest.NS, to string) {
	t.Helper()
	from.Do(func() {
		c, err := net.Dial("udp4", to)
		require.NoError(t, err)
		defer c.Close()
		_, err = c.Write([]byte("x"))
		require.NoError(t, err)
	})
}

// arrivals returns a function that reports whether datagrams to port 8080 have arrived in a network
// namespace since.
func arrivals(ns *nstest.NS) func() bool {
	ns.Run("iptables -t raw -A PREROUTING -p udp --dport 8080")
	return func() bool {
		return strings.Fields(ns.Run("iptables -t raw -nvxL PREROUTING | grep dpt:8080"))[0] != "0"
	}
}

// A port of a worker whose Service has a pod of another cluster, and whose packets the CNI
// translates to come from the worker, is no way from one cable to another: the worker sends back to
// a gateway nothing that came from one.
func TestHostileTransitThroughWorker(t *testing.T) {
	fabric := newFabric(t)
	hub := newSide(t, fabric, 1, "hub")
	west := newSide(t, fabric, 2, "west")
	north := newSide(t, fabric, 3, "north")
	hub.sync(t, west, north)
	west.sync(t, hub)
	north.sync(t, hub)
	reach(t, west, "worker", hub, "worker")
	reach(t, hub, "worker", north, "worker")
	worker := hub.nodes["worker"]
	victim := north.pods["worker"]
	worker.Run(
		"iptables -P FORWARD ACCEPT; iptables -t nat -A PREROUTING -p udp --dport 30080 -j DNAT --to-destination " +
			north.podIP(
				"worker") + ":8080; iptables -t nat -I POSTROUTING -p udp --dport 8080 -j SNAT --to-source 10.111.2.1",
	)
	seen := arrivals(victim)
	send := func() { datagram(t, west.pods["worker"], "10.111.2.1:30080") } // the worker's own address among the pods
	for range 5 {
		send()
	}
	reach(t, west, "worker", hub, "worker") // takes longer than a packet on its way
	require.False(t, seen())
	require.Contains(t, worker.Run("nft list set ip submariner-route-antispoof clusters"), `counter packets 5 `,
		"the worker has dropped them")
	worker.Run("nft flush chain ip submariner-route-antispoof forward")
	require.Eventually(t, func() bool { send(); return seen() }, 10*time.Second, 100*time.Millisecond,
		"the attack does not work even without a defense")
}

// A packet of a cluster may arrive at one gateway, for the pods of another one. If a port there
// belongs to a Service with a pod in a third cluster, the packet ends there, whatever kube-proxy or
// the CNI make of its source.
func TestHostileTransitThroughSibling(t *testing.T) {
	fabric := newFabric(t)
	hub := twoGateways(t, fabric, 1, "hub")
	west := newSide(t, fabric, 2, "west")
	north := newSide(t, fabric, 3, "north")
	// all packets take the other one
	west.health["gw"] = map[string]role.Health{
		hub.cableOf(1) + " over vxlan-tunnel": {Status: submarinerv1.ConnectionError},
	}
	hub.sync(t, west, north)
	west.sync(t, hub)
	north.sync(t, hub)
	reach(t, west, "worker", hub, "gw2")
	reach(t, hub, "worker", north, "worker")
	sibling := hub.nodes["gw2"]
	victim := north.pods["worker"]
	sibling.Run(
		"iptables -P FORWARD ACCEPT; iptables -t nat -A PREROUTING -p udp --dport 30080 -j DNAT --to-destination " +
			north.podIP("worker") + ":8080",
	)
	arrived := arrivals(victim)
	atGateway := arrivals(north.nodes["gw"])
	send := func() { datagram(t, west.pods["worker"], "10.111.2.1:30080") } // the gateway's own address among the pods
	for name, rule := range map[string]string{
		"the CNI translates the source to an address among the pods": "SNAT --to-source 10.111.2.1",
		"kube-proxy translates it to the address on the device":      "MASQUERADE",
		"nobody translates it": "ACCEPT",
	} {
		t.Run(name, func(t *testing.T) {
			sibling.Run("iptables -t nat -I POSTROUTING -p udp --dport 8080 -j " + rule)
			for range 5 {
				send()
			}
			reach(t, west, "worker", hub, "gw2") // takes longer than a packet on its way
			require.False(t, arrived())
			require.False(t, atGateway())
			sibling.Run("iptables -t nat -D POSTROUTING 1")
		})
	}
	require.Contains(t, sibling.Run("nft list set ip submariner-route-antispoof clusters"), `counter packets 15 `,
		"the sibling has dropped them")
	reach(t, hub, "worker", north, "worker")
	sibling.Run(
		"nft flush chain ip submariner-route-antispoof forward; nft flush chain ip submariner-gateway-antispoof forward; iptables -t nat -I POSTROUTING -p udp --dport 8080 -j SNAT --to-source 10.111.2.1")
	require.Eventually(t, func() bool { send(); return arrived() }, 10*time.Second, 100*time.Millisecond,
		"the attack does not work even without a defense")
}

// A node port of a gateway may belong to a Service with a pod of another cluster. What came through
// a cable is not sent there, whatever kube-proxy makes of its source. A client outside is let
// through, also one in the network of another cluster's nodes: the cluster offers the port, and the
// packets go as the node (TestHostileOutsiderThroughNodes has what is not let through).
func TestHostileTransitThroughNodePort(t *testing.T) {
	fabric := newFabric(t)
	hub := newSide(t, fabric, 1, "hub")
	west := newSide(t, fabric, 2, "west")
	north := newSide(t, fabric, 3, "north")
	hub.sync(t, west, north)
	west.sync(t, hub)
	north.sync(t, hub)
	reach(t, hub, "gw", north, "worker")
	reach(t, west, "worker", hub, "gw")
	gateway := hub.nodes["gw"]
	gateway.Run(
		"iptables -P FORWARD ACCEPT; iptables -t nat -A PREROUTING -p udp --dport 30080 -j DNAT --to-destination " +
			north.podIP("worker") + ":8080; iptables -t nat -I POSTROUTING -p udp --dport 8080 -j MASQUERADE",
	)
	arrived := arrivals(north.nodes["gw"])
	delivered := arrivals(north.pods["worker"])
	send := func() { datagram(t, west.pods["worker"], "10.111.1.1:30080") } // the gateway's own address among the pods
	for range 5 {
		send()
	}
	require.Eventually(t, func() bool { return isolationDrops(t, hub)["west"] == 5 }, 10*time.Second,
		100*time.Millisecond, "the gateway counts what it drops")
	reach(t, hub, "gw", north, "worker")
	require.False(t, arrived())
	require.Equal(t, map[string]uint64{dataplane.DropFromElsewhere: 5},
		dropReasons(t, hub, "gw", dataplane.GatewayOwner))
	require.Eventually(t, func() bool { datagram(t, west.nodes["worker"], "172.18.1.11:30080"); return delivered() },
		10*time.Second, 100*time.Millisecond)
	gateway.Run("for c in forward out-of-vxlan-tunnel; do nft flush chain ip submariner-gateway-antispoof $c; done")
	north.nodes["gw"].Run("iptables -t raw -F PREROUTING")
	arrived = arrivals(north.nodes["gw"])
	require.Eventually(t, func() bool { send(); return arrived() }, 10*time.Second, 100*time.Millisecond,
		"the attack does not work even without a defense")
}
