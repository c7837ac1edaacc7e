package cnf

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/dataplane"
	kernelprobe "subctl/dataplane/kernel/probe"
	"subctl/sdewan/rest"
)

// Tunnels for networks in which the CNF itself has no address, such as those behind another router
// of its LAN. It takes none of their addresses for its own: each may be a host's.
func TestIPsecNetworkWithoutAnAddress(t *testing.T) {
	hub, edge := sites(t)
	pair(hub, edge)
	hub.app.Run(
		"ip addr add 10.1.0.128/24 dev eth0; ip addr add 10.1.0.130/24 dev eth0; ip addr add 10.1.1.7/24 dev eth0")
	hub.ns.Run("ip route add 10.1.1.0/24 via 10.1.0.2")
	reached := ""
	// Also a single host, and a network of which the first address is a host's; and again while
	// there is a tunnel.
	for network, hosts := range map[string]string{"10.1.0.128/25": "10.1.0.130 10.1.0.128", "10.1.1.7": "10.1.1.7"} {
		hub.config.Remotes[0].Connections[0].LocalSubnet = network
		edge.config.Remotes[0].Connections[0].RemoteSubnet = network
		hub.sync()
		edge.sync()
		edge.up()
		hub.up()
		for _, host := range strings.Fields(hosts) {
			reached = host
			edge.private(edge.app, host, true)
			hub.private(hub.app, "-I "+host+" 10.2.0.2", true)
			hub.ns.Run("ping -c1 -W2 " + host)
			require.NotContains(t, hub.ns.Run("ip route get "+host), "local", "the CNF takes the address of a host")
		}
		require.Empty(t, hub.sync(), "a second sync has nothing to do")
		if hub.world.IPsec.Name != dataplane.EngineKernel {
			require.Equal(t, 1, strings.Count(hub.ns.Run("ip -4 addr show dev "+dataplane.CNFStandInDevice), "inet "),
				"an address of a former network stays")
		}
	}
	require.Contains(t, hub.ns.Run("ip route get 10.2.0.2"), "src 10.1.0.1 ",
		"the sources of the CNF's own packets are its own addresses")
	if hub.world.IPsec.Name == dataplane.EngineKernel {
		return
	}
	// The address goes with its connection, while there is another one.
	standsIn := func() string {
		return hub.ns.Run(
			"ip -4 addr show dev " + dataplane.CNFStandInDevice + "; ip route show table all dev " +
				dataplane.CNFStandInDevice,
		)
	}
	other := hub.config.Remotes[0]
	other.Name = "other"
	other.RemoteID = "other.test"
	other.Connections = []rest.Connection{
		{Name: "a", Type: "tunnel", Mode: "add", LocalSubnet: "10.9.0.0/24", RemoteSubnet: "10.3.0.0/24"},
	}
	hub.config.Remotes = append(hub.config.Remotes, other)
	hub.sync()
	require.Contains(t, standsIn(), "10.9.0.0")
	hub.config.Remotes = hub.config.Remotes[:1]
	hub.sync()
	require.NotContains(t, standsIn(), "10.9.0.0")
	require.Contains(t, standsIn(), "inet ")
	hub.ns.Run("ip addr add 10.9.0.0/32 dev " + dataplane.CNFStandInDevice) // could not be removed
	require.Len(t, hub.sync(), 1)
	require.NotContains(t, standsIn(), "10.9.0.0")
	require.Empty(t, hub.sync())
	edge.private(edge.app, reached, true)
}

// The other end may select a part of a network, for which this end has no address: its status has
// the reason.
func TestIPsecPartOfANetwork(t *testing.T) {
	hub, edge := sites(t)
	pair(hub, edge)
	edge.config.Remotes[0].Connections[0].RemoteSubnet = "10.1.0.128/25"
	hub.sync()
	edge.sync()
	if hub.world.IPsec.Name == dataplane.EngineKernel {
		edge.up() // it needs no address
		return
	}
	require.Eventually(t, func() bool {
		return edge.remote("hub").Message != "" && hub.remote("edge-1").Message != ""
	}, 20*time.Second, 100*time.Millisecond)
	require.Contains(t, edge.remote("hub").Message, "its own status says so")
	require.Contains(t, hub.remote("edge-1").Message, "in which this end has no address")
}

// An end that was killed has forgotten the tunnel: it is back within about 20 seconds, also if its
// new pod, with another MAC address, is announced.
func TestIPsecOtherEndIsKilled(t *testing.T) {
	hub, edge := sites(t)
	pair(hub, edge)
	hub.sync()
	edge.sync()
	edge.up()
	hub.ns.Run(
		`for p in $(pidof charon-systemd); do [ "$(readlink /proc/$p/ns/net)" != "$(readlink /proc/self/ns/net)" ] || { kill -9 $p; while [ -e /proc/$p ]; do sleep 0.05; done; }; done`)
	killed := time.Now()
	hub.ns.Run("ip link set wan address 02:00:00:00:00:02")
	// otherwise it might ask anyway
	edge.ns.Run("ip neigh replace 192.0.2.1 dev wan lladdr 02:00:00:00:00:01 nud reachable")
	hub.ns.Do(func() { require.NoError(t, kernelprobe.Announce("wan", netip.MustParseAddr("192.0.2.1"))) })
	hub.sync()
	hub.up()
	t.Logf("the tunnel is back after %v", time.Since(killed))
	require.Less(t, time.Since(killed), 40*time.Second) // with upstream's times: more than 45 s
	edge.private(edge.app, "10.1.0.2", true)
}
