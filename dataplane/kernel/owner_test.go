//go:build linux

package kernel

import (
	"net/netip"
	"testing"

	"subctl/dataplane"

	"github.com/stretchr/testify/require"
)

// routeAgent returns what the other agent of the node holds: an object of every kind, as
// similar to the gateway's as possible.
func routeAgent(t testing.TB) dataplane.State {
	const dev, mac, peer = dataplane.IntraDevice, "0a:58:ac:12:00:02", "0a:58:ac:12:00:03"
	return state(t,
		set("SUBMARINER-REMOTE", cidr("10.1.0.0/16")),
		dataplane.Chain{
			Table: "mangle", Name: "SUBMARINER-FORWARD", Hook: "FORWARD", Sets: []string{"SUBMARINER-REMOTE"},
			Rules: []string{"-m set --match-set SUBMARINER-REMOTE dst -j RETURN"},
		},
		dataplane.Antispoof{Table: "submariner-route-antispoof", Ports: []int{dataplane.IntraPort}},
		dataplane.Sources{Table: "submariner-route", Local: []netip.Prefix{cidr("10.0.0.0/16")}, Remote: []netip.Prefix{cidr("10.1.0.0/16")}},
		returnsOf(1),
		dataplane.VXLAN{
			Name: dev, MAC: mac, VNI: dataplane.IntraVNI, Local: ip("172.18.0.2"), Port: dataplane.IntraPort, MTU: 1450,
			Conf: dataplane.Conf{RPFilter: 2},
		},
		dataplane.Addr{Dev: dev, Prefix: cidr("240.18.0.2/8")},
		dataplane.FDB{Dev: dev, MAC: peer, Dst: ip("172.18.0.3")},
		dataplane.Neigh{Dev: dev, IP: ip("240.18.0.3"), MAC: peer},
		dataplane.Nexthop{ID: 0x20000001, Via: ip("240.18.0.3"), Dev: dev},
		dataplane.Group{ID: 0x2f000001, Members: []dataplane.Member{{ID: 0x20000001, Weight: 1}}},
		dataplane.Route{Table: dataplane.IntraTable, Dst: cidr("10.1.0.0/16"), Group: 0x2f000001},
		dataplane.Rule{Priority: dataplane.IntraPriority, Table: dataplane.IntraTable},
		dataplane.Route{Table: dataplane.ReturnTable + 1, Dst: cidr("0.0.0.0/0"), Group: 0x2f000001},
		dataplane.MarkRule{Priority: dataplane.ReturnPriority, Mark: 1, Mask: dataplane.ReturnMask, Table: dataplane.ReturnTable + 1},
	)
}

// others adds objects of other programs: objects similar to ours, objects with similar
// names, and routes in our tables.
const others = `
ip link add vxlan-tunnel2 type vxlan id 1002 local 172.18.0.2 dstport 4790 && ip link set vxlan-tunnel2 up
ip addr add 241.99.0.2/16 dev vxlan-tunnel2
ip addr add 172.18.0.99/24 dev eth0
bridge fdb add 0a:58:ac:12:00:03 dev vxlan-tunnel2 dst 172.18.0.3
ip neigh add 241.99.0.3 lladdr 0a:58:ac:12:00:03 dev vxlan-tunnel2 nud permanent
ip neigh add 172.18.0.3 lladdr 0a:58:ac:12:00:03 dev eth0 nud permanent
ip nexthop add id 1 via 172.18.0.3 dev eth0
ip nexthop add id 0x0fffffff group 1
ip nexthop add id 0x40000000 group 1
ip route add 10.9.0.0/16 via 172.18.0.3
ip route add 10.9.0.0/16 via 172.18.0.3 table 99
ip route add 10.9.0.0/16 via 172.18.0.3 table 100
ip route add 10.9.0.0/16 nhid 1 table 101 proto 171
ip route add 10.9.0.0/16 nhid 1 table 110 proto 170
ip route add 10.9.0.0/16 nhid 1 table 300 proto 170
ip route add 10.9.0.0/16 via 172.18.0.3 table 161
ip rule add pref 98 fwmark 0x1/0x3f lookup 161
ip rule add pref 99 fwmark 0x1/0x3f lookup 99
ip rule add pref 100 lookup 99
ip rule add pref 110 lookup 100
ip rule add pref 32000 fwmark 1 lookup 100
iptables -t mangle -N SUBMARINER && iptables -t mangle -A SUBMARINER -j RETURN
iptables -t mangle -N SUBCTL-GW-FORWARD && iptables -t mangle -A FORWARD -j SUBCTL-GW-FORWARD
iptables -t nat -N XSUBMARINER-GW-X && iptables -t nat -A POSTROUTING -s 10.0.0.0/8 -j MASQUERADE
ipset create SUBMARINER hash:net && ipset add SUBMARINER 10.9.0.0/16
ipset create KUBE hash:ip && ipset add KUBE 10.9.0.1
nft add table ip submariner && nft 'add chain ip submariner postrouting { type nat hook postrouting priority 50; }' && nft add rule ip submariner postrouting return
nft add table inet submariner-route-return && nft 'add chain inet submariner-route-return prerouting { type filter hook prerouting priority -150; }'
nft add table ip submariner-route-returns && nft add chain ip submariner-route-returns reply && nft add rule ip submariner-route-returns reply accept
nft add table inet submariner-route && nft 'add set inet submariner-route remote { type ipv4_addr; }'
`

// Two agents and other programs share one node. Each agent observes and changes its own
// objects only, whether it starts, stays or is uninstalled.
func TestOwners(t *testing.T) {
	ns, gateway := node(t, dataplane.GatewayOwner)
	route := host(t, ns, dataplane.RouteOwner)
	ns.Run("set -e\n" + others)
	before := traces(ns)
	require.Empty(t, look(t, ns, gateway), "what is others' is not seen")
	require.Empty(t, look(t, ns, route))

	gatewayWants, routeWants := state(t, one()...), routeAgent(t)
	settle(t, ns, gateway, gatewayWants)
	settle(t, ns, route, routeWants)
	for range 2 { // the agent that syncs last must not change the objects of the other
		require.Empty(t, settle(t, ns, gateway, gatewayWants))
		require.Empty(t, settle(t, ns, route, routeWants))
	}
	require.Equal(t, fingerprints(gatewayWants), fingerprints(look(t, ns, gateway)))
	require.Equal(t, fingerprints(routeWants), fingerprints(look(t, ns, route)))
	require.Subset(t, traces(ns), before)

	settle(t, ns, gateway, nil)
	require.Empty(t, look(t, ns, gateway))
	require.Equal(t, fingerprints(routeWants), fingerprints(look(t, ns, route)), "leaving must not hurt the neighbour")
	settle(t, ns, route, nil)
	require.ElementsMatch(t, before, traces(ns), "strangers are left as they were")
}

// The route of another program to a destination of ours, in our table, is not replaced.
func TestForeignRouteInTheWay(t *testing.T) {
	ns, h := node(t, dataplane.GatewayOwner)
	ns.Run("ip route add 10.1.0.0/16 via 172.18.0.1 table 100")
	var err error
	ns.Do(func() { _, err = dataplane.Sync(t.Context(), h, state(t, one()...)) })
	require.ErrorIs(t, err, dataplane.ErrDrift)
	require.ErrorContains(t, err, "there is a route of another program")
	require.ErrorContains(t, err, "10.1.0.0/16 table 100")
	require.Contains(t, ns.Run("ip route show table 100"), "10.1.0.0/16 via 172.18.0.1")
	ns.Run("ip route del 10.1.0.0/16 table 100")
	settle(t, ns, h, state(t, one()...))
}
