package dataplanetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"subctl/dataplane"

	"github.com/stretchr/testify/require"
)

// NodeIP is the address that the node of Walk has on a device of its own.
const NodeIP = "172.18.0.2"

// Walk makes target hold random states of dataplane.GatewayOwner, with dataplane.ReturnsTable, one
// after the other, which depend on seed: any plan may follow any other, also after steps that
// failed. It requires that each State is reached, that a second Sync finds nothing to do, that
// Ahead is right about what the target holds, and that nothing is left in the end. On a real kernel
// the node must have the address NodeIP, and no other agent.
func Walk(t testing.TB, target dataplane.Target, seed uint64, steps int) {
	t.Helper()
	walk(t, target, seed, steps, randomState)
}

// WalkCNF is Walk with states of dataplane.CNFOwner.
func WalkCNF(t testing.TB, target dataplane.Target, seed uint64, steps int) {
	t.Helper()
	walk(t, target, seed, steps, randomCNF)
}

func walk(t testing.TB, target dataplane.Target, seed uint64, steps int, randomState func(*rand.Rand) dataplane.State) {
	t.Helper()
	ctx := context.Background()
	r := rand.New(rand.NewPCG(seed, 0))
	faults := rand.New(rand.NewPCG(seed, 1))
	before := dataplane.State{}
	for step := range steps {
		want := randomState(r)
		if r.IntN(8) == 0 {
			want = dataplane.State{}
		}
		say := func() string { return fmt.Sprintf("seed %d, step %d\nfrom\n%vto\n%v", seed, step, before, want) }
		ahead(t, target, dataplane.Held(before, nil), want, say)
		if faults.IntN(4) == 0 {
			syncFaulty(t, target, faults, before, want, say)
		}
		if _, err := dataplane.Sync(ctx, target, want); err != nil {
			require.NoError(t, err, say())
		}
		ops, err := dataplane.Sync(ctx, target, want)
		if err != nil || len(ops) > 0 {
			require.NoError(t, err, say())
			require.Empty(t, ops, "a second sync had something to do: %s", say())
		}
		got, err := target.Observe(ctx)
		require.NoError(t, err)
		if len(got) != len(want) {
			require.Len(t, got, len(want), say())
		}
		before = want
	}
	_, err := dataplane.Sync(ctx, target, dataplane.State{})
	require.NoError(t, err)
	left, err := target.Observe(ctx)
	require.NoError(t, err)
	require.Empty(t, left, "the empty state must leave nothing")
}

// RandomState returns a plan that a gateway could have, which depends on seed.
func RandomState(seed uint64) dataplane.State { return randomState(rand.New(rand.NewPCG(seed, 0))) }

// randomState returns a plan that a gateway could have, by independent choices.
func randomState(r *rand.Rand) dataplane.State {
	s := dataplane.State{}
	add := func(objs ...dataplane.Object) {
		if err := s.Add(objs...); err != nil {
			panic(err) // an error in this function
		}
	}
	add(randomFilter(r)...)
	for i := range pick(r, 0, 1, 2) {
		add(dataplane.Rule{
			Priority: 100 + i, Table: pick(r, dataplane.CableTable, dataplane.CableTable+1), Specific: r.IntN(2) == 0,
		})
		add(dataplane.Throw{
			Table: pick(r, dataplane.CableTable, dataplane.CableTable+1),
			Dst:   netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(100 + i), 0, 0}), 16),
		})
		add(dataplane.MarkRule{
			Priority: 106 + i, Mark: pick[uint32](r, 1, 2), Mask: pick[uint32](r, 0x3, 0x3f),
			Table: pick(r, dataplane.CableTable, dataplane.CableTable+1),
		})
		add(dataplane.Arrival{
			Priority: 103 + i, Table: pick(r, dataplane.CableTable, dataplane.CableTable+1, dataplane.IntraTable),
			Dev: pick(r, "eth0", "vx-submariner"), Specific: r.IntN(2) == 0,
		})
	}
	if r.IntN(2) == 0 {
		add(randomReturns(r))
	}
	if r.IntN(2) == 0 {
		add(randomGlobalnet(r))
	}
	over := ""
	if r.IntN(4) > 0 {
		add(randomWireGuard(r)...)
		over = pick(r, "", dataplane.WireGuardDevice)
	}
	if r.IntN(4) > 0 {
		add(randomCables(r, over)...)
	}
	if r.IntN(2) == 0 {
		add(randomForged(r))
	}
	return s
}

// randomForged returns a table against forged packets, with some of the rules and sets of
// cable/rules_forged.go: one remembers elements of another, and connections end with elements.
func randomForged(r *rand.Rand) dataplane.Object {
	const (
		source = "@th,336,32 & 0xffff0000"
		from   = "sources16"
	)
	t := dataplane.Ruleset{
		Family: "ip", Table: dataplane.GatewayOwner.Antispoof,
		Ends: dataplane.ClusterConnections{Clusters: "clusters", Gateways: "senders"},
	}
	t.AddChain("input", "filter", "input", -10)
	t.Add("input", "udp dport %d jump vxlan-in", pick(r, 4500, 4502))
	t.Add("vxlan-in", "meta priority set ip saddr map @senders")
	t.Add("vxlan-in", "ip saddr . iif . %s @known16 accept", source)
	t.Add("vxlan-in", "meta priority . %s @sources16 add @known16 { ip saddr . iif . %[1]s }", source)
	t.Drop("vxlan-in", dataplane.DropForged, "ip saddr @clusters")
	senders := dataplane.RuleSet{Name: "senders", Type: "ipv4_addr : classid"}
	networks := dataplane.RuleSet{Name: from, Type: "classid . integer", Typeof: "meta priority . @nh,96,32"}
	clusters := dataplane.RuleSet{Name: "clusters", Type: "ipv4_addr", Flags: "interval", Counter: true}
	for i := range 1 + r.IntN(3) {
		class := fmt.Sprintf("ac12:%x", 20+i)
		n := dataplane.ClusterNet{
			Net:     netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(20 + 2*i + r.IntN(2)), 0, 0}), 16),
			Cluster: pick(r, "east", "west", ""),
		}
		senders.Elements = append(senders.Elements, fmt.Sprintf("172.18.0.%d : %s", 20+i, class))
		networks.Elements = append(networks.Elements, fmt.Sprintf("%s . %#x", class, n.Net.Addr().AsSlice()))
		clusters.Elements = append(clusters.Elements, n.Element())
	}
	known := dataplane.RuleSet{
		Name: "known16", Typeof: "ip saddr . iif . @nh,96,32", Flags: "dynamic,timeout", Timeout: 10 * time.Second,
		Remembers: from,
	}
	for _, set := range []dataplane.RuleSet{senders, networks, clusters, known} {
		t.AddSet(set)
	}
	return t
}

// randomReturns returns a table for the replies to connections of some gateways, with a set of
// networks and a map that leads to chains.
func randomReturns(r *rand.Rand) dataplane.Object {
	out := dataplane.Ruleset{Family: dataplane.ReturnsTable.Family, Table: dataplane.ReturnsTable.Name}
	out.AddChain("prerouting", "filter", "prerouting", pick(r, -150, -149))
	out.Add("prerouting", "iifname %q goto arrived", pick(r, "eth0", "vx-submariner"))
	nets := dataplane.RuleSet{Name: "nets", Type: "ipv4_addr", Flags: "interval"}
	leads := dataplane.RuleSet{Name: "leads", Type: "ipv4_addr . mark : verdict"}
	for i := range pick(r, 0, 1, 3) {
		out.Add("arrived", "ether saddr 02:73:f0:12:00:%02x ct mark set %#x accept", i, i+pick(r, 1, 2))
		gateway := fmt.Sprint("gateway", i)
		out.Add(gateway, "counter drop")
		nets.Elements = append(nets.Elements, fmt.Sprintf("10.%d.0.0/%d", 32*i, pick(r, 12, 16)))
		leads.Elements = append(leads.Elements, fmt.Sprintf("192.0.2.%d . 7 : goto %s", i, gateway))
	}
	out.Add("arrived", "ip saddr 10.0.0.1 accept")
	if r.IntN(2) == 0 {
		out.Sets = append(out.Sets, leads)
		out.Add("arrived", "ip saddr . meta mark vmap @leads")
	}
	if r.IntN(2) == 0 {
		out.Sets = append(out.Sets, nets)
		out.Add("arrived", "ip saddr @nets drop")
	}
	return out
}

// randomGlobalnet returns a table that translates some addresses as globalnet/rules.go does, mostly
// with the same rules, so that most plans differ in elements only.
func randomGlobalnet(r *rand.Rand) dataplane.Object {
	out := dataplane.Ruleset{
		Family: dataplane.GlobalnetTable.Family, Table: dataplane.GlobalnetTable.Name,
		Pods: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")},
	}
	out.AddChain("prerouting", "filter", "prerouting", -250)
	out.AddChain("dstnat", "nat", "prerouting", -110)
	out.AddChain("srcnat", "nat", "postrouting", 40)
	out.Add("prerouting", "ip daddr %s jump error-inward", pick(r, "242.1.0.0/16", "242.1.0.0/16", "242.0.0.0/8"))
	out.Add("prerouting", "ip daddr set ip daddr map @pods")
	out.AddInner("error-inward", dataplane.InnerAddress{Map: "pods", Leaves: r.IntN(8) == 0})
	out.Add("dstnat", "ip daddr . meta l4proto . th dport vmap @ports")
	out.Add("srcnat", "snat to jhash ip saddr . ip daddr mod 8 seed 0x1 map @shared-addresses")
	pods := dataplane.RuleSet{Name: "pods", Type: "ipv4_addr : ipv4_addr"}
	globals := dataplane.RuleSet{Name: dataplane.GlobalnetOwners, Type: "ipv4_addr : ipv4_addr"}
	for i := range r.IntN(4) {
		global := 20 + 2*i + r.IntN(2)
		pods.Elements = append(pods.Elements, fmt.Sprintf("242.1.0.%d : 10.0.1.%d", global, i))
		globals.Elements = append(globals.Elements, fmt.Sprintf("10.0.1.%d : 242.1.0.%d", i, global))
	}
	const port = "ipv4_addr . inet_proto . inet_service"
	ports := dataplane.RuleSet{Name: dataplane.GlobalnetPorts, Type: port + " : verdict"}
	endpoints := dataplane.RuleSet{
		Name: dataplane.GlobalnetEndpoints, Type: port + " . number : ipv4_addr . inet_service",
		Typeof: "ip daddr . meta l4proto . tcp dport . meta length : ip daddr . tcp dport",
	}
	for i := range r.IntN(4) {
		at := fmt.Sprintf("242.1.0.%d . %s", 40+i, pick(r, "6 . 80", "17 . 53"))
		slots := pick(r, 0, 1, 16)
		chain := fmt.Sprintf("slots-%d", slots)
		out.Add(chain, "dnat to ip daddr . meta l4proto . th dport . jhash ip saddr mod %d seed 0x1 map @endpoints",
			slots+1)
		ports.Elements = append(ports.Elements, at+" : goto "+chain)
		for slot := range slots {
			endpoints.Elements = append(endpoints.Elements,
				fmt.Sprintf("%s . %d : 10.0.0.%d . 8080", at, slot, r.IntN(8)))
		}
	}
	shared := dataplane.RuleSet{
		Name: dataplane.GlobalnetShared, Type: "number : ipv4_addr", Typeof: "meta length : ip daddr",
	}
	for slot := range pick(r, 0, 8) {
		shared.Elements = append(shared.Elements, fmt.Sprintf("%d : 242.1.0.%d", slot, slot+r.IntN(2)))
	}
	out.Sets = []dataplane.RuleSet{endpoints, globals, pods, ports, shared}
	for _, s := range out.Sets {
		slices.Sort(s.Elements)
	}
	return out
}

// randomCables returns a device, over another device or any, and objects that use it.
func randomCables(r *rand.Rand, over string) (out []dataplane.Object) {
	const dev = dataplane.VXLANDevice
	local := pick(r, NodeIP, "172.18.0.9")
	vtep := netip.MustParsePrefix(pick(r, "241.18.0.2/8", "241.18.0.9/8", "241.18.0.9/16"))
	out = append(out, dataplane.VXLAN{
		Name: dev, Dev: over, MAC: pick(r, "0a:58:ac:12:00:02", "0a:58:ac:12:00:09"), VNI: dataplane.CableVNI,
		Local: netip.MustParseAddr(local), Port: pick(r, 4500, 4501), MTU: pick(r, 1300, 1350),
		Conf: dataplane.Conf{RPFilter: pick(r, 0, 2), Forwarding: pick(r, 0, 1)},
	}, dataplane.Addr{Dev: dev, Prefix: vtep})
	var hops []uint32
	var own []dataplane.Hop // of routes that have next hops themselves
	for i := range pick(r, 0, 1, 2, 5) {
		n := byte(20 + i)
		mac := fmt.Sprintf("0a:58:ac:12:%02x:%02x", pick(r, 0, 1), n)
		ip := netip.AddrFrom4([4]byte{241, 18, 0, n})
		id := uint32(dataplane.VXLANNexthopID<<24) + uint32(n)
		hops = append(hops, id)
		out = append(out,
			dataplane.FDB{Dev: dev, MAC: mac, Dst: netip.AddrFrom4([4]byte{172, 18, pick[byte](r, 0, 1), n})},
			dataplane.Neigh{Dev: dev, IP: ip, MAC: mac})
		if r.IntN(5) == 0 { // a next hop of the node's own network
			out = append(out, dataplane.Nexthop{ID: id, Via: netip.AddrFrom4([4]byte{172, 18, 0, n}), Dev: "eth0"})
			continue
		}
		out = append(out, dataplane.Nexthop{ID: id, Via: ip, Dev: dev})
		own = append(own, dataplane.Hop{Via: ip, Dev: dev, Weight: pick(r, 1, 2, 256)})
	}
	if len(hops) == 0 {
		return out
	}
	for i := range pick(r, 1, 2, 3) {
		g := dataplane.Group{ID: uint32(dataplane.CableGroupID<<24) + uint32(i)}
		for _, h := range hops[r.IntN(len(hops)):] {
			g.Members = append(g.Members, dataplane.Member{ID: h, Weight: pick(r, 1, 2, 256)})
		}
		if r.IntN(2) == 0 {
			g.Buckets = pick(r, 16, 32)
			g.Idle = pick(r, time.Second, 1500*time.Millisecond)
		}
		route := dataplane.Route{
			Table: pick(r, dataplane.CableTable, dataplane.CableTable+1),
			Dst:   netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), 0, 0}), 16), Group: g.ID,
		}
		route.Src = pick(r, netip.Addr{}, netip.MustParseAddr(NodeIP), vtep.Addr())
		out = append(out, g, dataplane.Blackhole{
			Table: pick(r, dataplane.CableTable, dataplane.CableTable+1), Dst: route.Dst,
		})
		if r.IntN(2) == 0 {
			out = append(out, dataplane.Detour{
				Table: pick(r, dataplane.CableTable, dataplane.CableTable+1), Dst: route.Dst,
				Hop: hops[r.IntN(len(hops))], Src: route.Src, MTU: pick(r, 0, 1400),
			})
		}
		switch {
		case len(own) == 0 || r.IntN(3) > 0:
			out = append(out, route)
		default:
			if len(own) == 1 {
				own[0].Weight = 1 // the kernel keeps none for one next hop
			}
			out = append(out, dataplane.Multipath{Table: route.Table, Dst: route.Dst, Hops: own, Src: route.Src})
		}
	}
	return out
}

// randomWireGuard returns a WireGuard device with peers, among which networks move.
func randomWireGuard(r *rand.Rand) (out []dataplane.Object) {
	const dev = dataplane.WireGuardDevice
	out = append(out, dataplane.WireGuard{
		Name:    dev,
		Private: dataplane.Secret{pick[byte](r, 8, 16)}.Clamp(),
		Port:    pick(r, 4511, 4512),
		MTU:     pick(r, 1400, 1440),
		Conf:    dataplane.Conf{RPFilter: pick(r, 0, 2), Forwarding: pick(r, 0, 1)},
	}, dataplane.Addr{Dev: dev, Prefix: netip.MustParsePrefix(pick(r, "244.18.0.2/8", "244.18.0.9/8"))})
	peers := make([]dataplane.WireGuardPeer, pick(r, 0, 1, 2, 4))
	for i := range peers {
		n := byte(20 + i)
		peers[i] = dataplane.WireGuardPeer{
			Dev:       dev,
			Public:    dataplane.PublicKey{n},
			Preshared: dataplane.Secret{n, pick[byte](r, 1, 2)},
			Keepalive: pick(r, 0, 25),
			Endpoint:  netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 18, pick[byte](r, 0, 1), n}), 4501),
		}
		id := uint32(dataplane.WireGuardNexthopID<<24) + uint32(n)
		out = append(out, dataplane.Nexthop{ID: id, Dev: dev})
	}
	for i := range pick(r, 0, 4) * min(len(peers), 1) {
		p := &peers[r.IntN(len(peers))]
		p.Allowed = append(p.Allowed, netip.PrefixFrom(netip.AddrFrom4([4]byte{20, byte(i), 0, 0}), 16))
	}
	for _, p := range peers {
		out = append(out, p)
	}
	return out
}

// randomFilter returns sets and chains.
func randomFilter(r *rand.Rand) (out []dataplane.Object) {
	const name = "SUBMARINER-GW-REMOTE"
	if r.IntN(2) == 0 {
		return nil
	}
	var members []netip.Prefix
	for i := range pick(r, 0, 1, 3) {
		members = append(members,
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i + r.IntN(3)*8), 0, 0}), pick(r, 13, 16)).Masked())
	}
	slices.SortFunc(members, netip.Prefix.Compare)
	out = append(out, dataplane.Set{Name: name, Members: slices.Compact(members)})
	for range pick(r, 0, 1, 2) {
		c := dataplane.Chain{
			Table: pick(r, "nat", "mangle"),
			Name:  "SUBMARINER-GW-" + pick(r, "A", "B"),
			Hook:  pick(r, "", "POSTROUTING", "OUTPUT"),
		}
		if r.IntN(2) == 0 {
			c.Rules = append(c.Rules, "-m set --match-set "+name+" src -j RETURN")
			c.Sets = []string{name}
		}
		if r.IntN(2) == 0 {
			c.Rules = append(c.Rules, "-s 10.0.0.1 -j ACCEPT")
		}
		if !slices.ContainsFunc(out, func(o dataplane.Object) bool { return o.Key() == c.Key() }) {
			out = append(out, c)
		}
	}
	return out
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }
