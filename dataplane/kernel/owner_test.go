//go:build linux

package kernel

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"subctl/cable"
	"subctl/dataplane"

	"github.com/stretchr/testify/require"
)

// routeAgent returns what the other agent of the node holds: an object of every kind, as
// similar to the gateway's as possible.
func routeAgent(t testing.TB) dataplane.State {
	const dev, mac, peer = dataplane.IntraDevice, "0a:58:ac:12:00:02", "0a:58:ac:12:00:03"
	return state(
		t,
		set("SUBMARINER-REMOTE", cidr("10.1.0.0/16")),
		dataplane.Chain{
			Table: "mangle", Name: "SUBMARINER-FORWARD", Hook: "FORWARD", Sets: []string{"SUBMARINER-REMOTE"},
			Rules: []string{"-m set --match-set SUBMARINER-REMOTE dst -j RETURN"},
		},
		tables(cable.Antispoof{Table: "submariner-route-antispoof", VXLANPorts: []int{dataplane.IntraPort}})[0],
		sourcesOf(cidr("10.1.0.0/16")),
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
		dataplane.Rule{Priority: dataplane.IntraPriority, Table: dataplane.IntraTable, Specific: true},
		dataplane.Route{Table: dataplane.ReturnTable + 1, Dst: cidr("0.0.0.0/0"), Group: 0x2f000001},
		dataplane.MarkRule{
			Priority: dataplane.ReturnPriority,
			Mark:     1,
			Mask:     dataplane.ReturnMask,
			Table:    dataplane.ReturnTable + 1,
		},
	)
}

// others adds objects of other programs: objects similar to ours, objects with similar names, rules
// and next hops with our numbers, and routes in our tables.
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
ip nexthop add id 0x10000077 via 172.18.0.3 dev eth0 proto 99
ip nexthop add id 0x1f000077 group 1
ip nexthop add id 0x20000077 via 172.18.0.3 dev eth0 proto 99
ip nexthop add id 0x2e000000 group 1
ip route add 10.9.0.0/16 via 172.18.0.3
for table in 99 100 150 161 300 170171100 170171150 170171161; do
	ip route add 10.9.0.0/16 via 172.18.0.3 table $table
	ip route add 10.8.0.0/16 nhid 1 table $table proto 99
done
for table in 100 101 150 151 170171101 170171151; do
	ip route add default via 172.18.0.3 table $table
	ip route add local 10.0.0.0/8 dev lo table $table proto 99
done
ip route add 10.7.0.0/16 nhid 1 table 101 proto 171
ip route add 10.7.0.0/16 nhid 1 table 110 proto 170
ip route add 10.7.0.0/16 nhid 1 table 300 proto 170
for pref in 98 99 100 101 105 109 110 150 151 152 153 159 32000; do
	for table in 99 100 150 161 200 170171100 170171150 170171161; do
		ip rule add pref $pref from 192.0.2.9 lookup $table
		ip rule add pref $pref fwmark 0x1/0x3f lookup $table protocol 99
		ip rule add pref $pref to 192.0.2.0/24 iif eth0 ipproto tcp dport 80 lookup $table protocol kernel
	done
done
ip rule add pref 100 fwmark 7 lookup 100
ip rule add pref 150 lookup 170171150 suppress_prefixlength 0
ip rule add pref 100 lookup 170171100 suppress_prefixlength 0 protocol 99
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

	gatewayWants := state(t, one()...)
	routeWants := routeAgent(t)
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
	ns.Run("ip route add 10.1.0.0/16 via 172.18.0.1 table 170171100")
	var err error
	ns.Do(func() { _, err = dataplane.Sync(t.Context(), h, state(t, one()...)) })
	require.ErrorIs(t, err, dataplane.ErrDrift)
	require.ErrorContains(t, err, "there is a route of another program")
	require.ErrorContains(t, err, "10.1.0.0/16 table 170171100")
	require.Contains(t, ns.Run("ip route show table 170171100"), "10.1.0.0/16 via 172.18.0.1")
	ns.Run("ip route del 10.1.0.0/16 table 170171100")
	settle(t, ns, h, state(t, one()...))
}

// The next hop or group of another program with an ID of ours is neither replaced, used nor
// removed, the error names it, and the rest is in force.
func TestForeignNexthop(t *testing.T) {
	for name, foreign := range map[string]string{
		"next hop": "ip nexthop add id 0x10000001 via 172.18.0.9 dev eth0 proto 99",
		"group":    "ip nexthop add id 7 via 172.18.0.9 dev eth0 && ip nexthop add id 0x1f000001 group 7 proto 99",
		"taken":    "ip nexthop add id 0x1f000001 blackhole proto 99",
	} {
		t.Run(name, func(t *testing.T) {
			ns, h := node(t, dataplane.GatewayOwner)
			ns.Run(foreign)
			before := ns.Run("ip nexthop show")
			want := state(t, one()...)
			var err error
			ns.Do(func() { _, err = dataplane.Sync(t.Context(), h, want) })
			require.ErrorContains(t, err, "belongs to another program (protocol 99)")
			require.ErrorContains(t, err, "ip nexthop del id ")
			require.Subset(t, lines(ns.Run("ip nexthop show")), lines(before))
			require.NotContains(t, ns.Run("ip route show table 170171100"), "10.1.0.0/16 nhid 520093697")
			require.Contains(t, ns.Run("ip rule"), "lookup 170171100", "the rest is in force")
			settle(t, ns, h, nil)
			require.ElementsMatch(t, lines(before), lines(ns.Run("ip nexthop show")))
		})
	}
}

// A device of another program with a name of ours is neither changed, used nor removed, whatever
// its kind. The error names it, and what does not depend on the device is in force.
func TestForeignDevice(t *testing.T) {
	for name, c := range map[string]struct{ device, add string }{
		"of another kind": {dataplane.VXLANDevice, "type veth peer name x"},
		"a bridge":        {dataplane.WireGuardDevice, "type bridge"},
		"of another VNI":  {dataplane.VXLANDevice, "type vxlan id 7 dstport 4789"},
	} {
		t.Run(name, func(t *testing.T) {
			ns, h := node(t, dataplane.GatewayOwner)
			ns.Run(fmt.Sprintf(
				"ip link add %s %s && ip link set %[1]s up && sleep 0.1 && ip addr add 192.0.2.1/24 "+
					"dev %[1]s && ip neigh add 192.0.2.7 lladdr 0a:58:ac:12:00:03 dev %[1]s nud permanent",
				c.device,
				c.add,
			))
			show := fmt.Sprintf("ip link show %s; ip -4 addr show %[1]s; ip neigh show dev %[1]s", c.device)
			before := ns.Run(show)
			want := state(t, one()...)
			var err error
			ns.Do(func() { _, err = dataplane.Sync(t.Context(), h, want) })
			require.ErrorContains(t, err, "device "+c.device+" belongs to another program")
			require.ErrorContains(t, err, "ip link del "+c.device)
			require.Contains(t, ns.Run("ip rule"), "lookup 170171100", "the rest is in force")
			require.Equal(t, before, ns.Run(show))
			settle(t, ns, h, nil)
			require.Equal(t, before, ns.Run(show), "uninstalling")
			ns.Run("ip link del " + c.device)
			settle(t, ns, h, want)
		})
	}
}

// Routes of other programs in our tables, and their rules that come before ours or select the same
// packets, are named with the remedy. Others are not.
func TestConflicts(t *testing.T) {
	ns, gateway := node(t, dataplane.GatewayOwner)
	route := host(t, ns, dataplane.RouteOwner)
	settle(t, ns, gateway, state(t, one()...))
	settle(t, ns, route, routeAgent(t))
	conflicts := func() string {
		look(t, ns, gateway)
		look(t, ns, route)
		return strings.Join(slices.Concat(gateway.Conflicts(), route.Conflicts()), "\n")
	}
	ns.Run("ip rule add pref 100 lookup local && ip rule add pref 30 fwmark 0x174041 lookup 7 && ip rule add pref " +
		"5000 lookup 100 && ip rule add pref 98 from 192.0.2.1 lookup 98 && ip route add default via 172.18.0.9 " +
		"table 100 && ip rule add pref 97 lookup main suppress_prefixlength 0")
	require.Empty(t, conflicts(), "what does no harm")
	for name, c := range map[string]struct{ foreign, undo, want string }{
		"a route": {
			"ip route add 198.51.100.0/24 via 172.18.0.1 table 170171100 proto 99",
			"ip route del 198.51.100.0/24 table 170171100 proto 99",
			"ip route del 198.51.100.0/24 table 170171100 proto 99",
		},
		"the route of a transparent proxy": {
			"ip route add local 0.0.0.0/0 dev lo table 170171151", "ip route del local 0.0.0.0/0 table 170171151",
			"ip route del local 0.0.0.0/0 table 170171151 proto 3",
		},
		"a rule that comes first": {
			"ip rule add pref 50 lookup 300", "ip rule del pref 50",
			"(pref 50 lookup 300 protocol 0) comes before ours",
		},
		"a rule with our priority": {
			"ip rule add pref 100 from 10.0.2.5 lookup 200", "ip rule del from 10.0.2.5",
			"(pref 100 from 10.0.2.5/32 lookup 200 protocol 0) has the same priority",
		},
		"a mark of ours": {
			"ip rule add pref 5001 fwmark 1 lookup 300", "ip rule del pref 5001",
			"(pref 5001 fwmark 0x1/0xffffffff lookup 300 protocol 0) selects the same",
		},
		"a mark of ours, first": {
			"ip rule add pref 31 fwmark 1/1 lookup 300", "ip rule del pref 31",
			"(pref 31 fwmark 0x1/0x1 lookup 300 protocol 0) selects the same",
		},
	} {
		t.Run(name, func(t *testing.T) {
			ns.Run(c.foreign)
			require.Contains(t, conflicts(), c.want)
			ns.Run(c.undo)
			require.Empty(t, conflicts())
		})
	}
}

func lines(text string) (out []string) {
	for line := range strings.Lines(text) {
		out = append(out, strings.TrimSpace(line))
	}
	return out
}

// Whatever routes other programs have in the tables that they like and in ours, a node's own paths
// stay as they were.
func TestForeignRoutesAreNotUsed(t *testing.T) {
	ns, gateway := node(t, dataplane.GatewayOwner)
	route := host(t, ns, dataplane.RouteOwner)
	ns.Run("ip link set lo up && ip route add 10.0.2.0/24 via 172.18.0.7") // to the pods of a worker
	paths := func() string {
		return ns.Run("for ip in 10.0.2.9 172.18.0.3 198.51.100.9; do ip route get $ip; done; ip route get 10.0.2.9 " +
			"from 10.1.9.9 iif vxlan-tunnel; ip route get 10.0.2.9 from 10.1.9.9 iif vx-submariner")
	}
	settle(t, ns, gateway, state(t, slices.DeleteFunc(one(), func(o dataplane.Object) bool {
		return o.Key() == dataplane.Route{Table: dataplane.CableTable, Dst: cidr("0.0.0.0/0")}.Key()
	})...))
	settle(t, ns, route, routeAgent(t))
	ns.Run("sysctl -qw net.ipv4.ip_forward=1")
	before := paths()
	for _, table := range []int{
		100, 150, 151, 152, dataplane.CableTable, dataplane.IntraTable, dataplane.DropTable, dataplane.NearTable,
	} {
		ns.Run(fmt.Sprintf("ip route add default via 172.18.0.9 dev eth0 table %d proto 99 && ip route add local "+
			"0.0.0.0/0 dev lo metric 9 table %[1]d", table))
		require.Equal(t, before, paths(), table)
	}
}
