package globalnet

import (
	"fmt"
	"net/netip"
	"strconv"

	"subctl/dataplane"
)

// Priorities of the chains.
const (
	// after the table against forged packets (-290), which expects global addresses, and before
	// connection tracking (-200)
	inPriority   = -250
	dnatPriority = -110 // before kube-proxy ("dstnat" is -100), so that only exported Services are reached
	snatPriority = 40   // before kube-proxy and the CNI (100), and before the table of sources (50)
	outPriority  = 250  // after source translation (100), before the table against forged packets (300)
)

// hashSeed is the seed of the hash that chooses an endpoint: "glob" in ASCII. It must never change,
// because all gateways of a cluster must choose the same endpoint, also during an upgrade.
const hashSeed = 0x676c6f62

// maxPool is the maximum number of addresses of a GlobalEgressIP. shares is the number of slots for
// the addresses of all other pods. It is constant, so that the rules do not depend on the number of
// addresses.
const (
	maxPool = 20
	shares  = 64
)

// slotCounts are the possible numbers of slots of a port: 1 for a single endpoint, otherwise a
// power of two. So the rules do not depend on the number of endpoints, and few connections move to
// another endpoint when it changes.
var slotCounts = []int{1, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096}

// slotsOf returns the number of slots for a number of endpoints. Each of several endpoints gets at
// least 8 slots, so that their shares differ by an eighth at most; with more than 512 endpoints it
// gets fewer.
func slotsOf(endpoints int) int {
	if endpoints < 2 {
		return 1
	}
	for _, n := range slotCounts {
		if n >= 8*endpoints {
			return n
		}
	}
	return slotCounts[len(slotCounts)-1]
}

// Elements are the elements of the maps, sorted, in the notation of nft(8).
type Elements struct {
	// Pods map the global address of a pod to the address of the pod; Globals the reverse.
	Pods, Globals []string
	// Answering map a global address to an address of the gateway, which answers pings to it.
	Answering []string
	// Ports map a port of an exported Service to the chain that chooses an endpoint.
	Ports []string
	// Endpoints map a port of an exported Service and a slot to an endpoint. An endpoint has
	// several slots, or none.
	Endpoints []string
	// Exports map an endpoint to the port of its Service. They translate the source of a packet
	// from an endpoint that cannot open a connection: it belongs to a connection to the Service
	// through another gateway, which has failed.
	Exports []string
	// Selected map a pod that a GlobalEgressIP selects to the chain that chooses one of its
	// addresses, and SelectedAddresses map such a pod and a slot to the address.
	Selected          []string
	SelectedAddresses []string
	// SharedAddresses map a slot to an address for all other pods. There are elements for all
	// slots, or none.
	SharedAddresses []string
}

// sets returns the maps. If the type of a map changes, its name must change, too. Otherwise the
// kernel must create the whole table again, and nothing is translated in the meantime.
func (e Elements) sets() []dataplane.RuleSet {
	const port = "ipv4_addr . inet_proto . inet_service"
	return []dataplane.RuleSet{
		{Name: dataplane.GlobalnetAnswering, Type: "ipv4_addr : ipv4_addr", Elements: e.Answering},
		{
			Name: dataplane.GlobalnetEndpoints, Type: port + " . number : ipv4_addr . inet_service",
			// These expressions only specify types. "meta length" is a number of four bytes, like a
			// hash, which has no type in nft 1.0.6. "tcp dport" is a port; nft 1.0.6 cannot list
			// "th dport".
			Typeof:   "ip daddr . meta l4proto . tcp dport . meta length : ip daddr . tcp dport",
			Elements: e.Endpoints,
		},
		{Name: "exports", Type: port + " : ipv4_addr . inet_service", Elements: e.Exports},
		{Name: dataplane.GlobalnetOwners, Type: "ipv4_addr : ipv4_addr", Elements: e.Globals},
		{Name: "pods", Type: "ipv4_addr : ipv4_addr", Elements: e.Pods},
		{Name: dataplane.GlobalnetPorts, Type: port + " : verdict", Elements: e.Ports},
		{Name: "selected", Type: "ipv4_addr : verdict", Elements: e.Selected},
		{
			Name: dataplane.GlobalnetSelected, Type: "ipv4_addr . number : ipv4_addr",
			Typeof: "ip saddr . meta length : ip daddr", Elements: e.SelectedAddresses,
		},
		{
			Name: dataplane.GlobalnetShared, Type: "number : ipv4_addr",
			Typeof: "meta length : ip daddr", Elements: e.SharedAddresses,
		},
	}
}

// Rules returns the table of a gateway that translates between the addresses of this cluster and
// its global addresses, the only addresses that other clusters use for it. The addresses are in
// maps, so the cost of a packet is the same with one address as with 50,000.
//
//   - Pods with a global address of their own (inward, outward): the address is translated without
//     connection state, in both directions, and also inside ICMP errors. So any gateway can
//     translate any packet, and connections do not depend on a gateway.
//   - Exported Services (called, choose): the port of a Service is translated to one of its
//     endpoints, by a hash of the client's address and port. So all gateways choose the same
//     endpoint, and a connection continues through another gateway.
//   - All other packets to a cable (egress): the source becomes one of the addresses of the pod's
//     GlobalEgressIP, or one of the cluster's, by a hash of source and destination.
//
// A rule has no effect if its map has no element for the packet. A packet to a global address that
// is not translated is dropped by the table against forged packets.
//
// All packets of the node pass the chains of type filter, so these have few rules. The chains of
// type nat see only the first packet of each connection.
//
// nets are the global networks of this cluster, pods the networks of its pods, and devices the
// devices of cables, as names in nftables.
func Rules(nets, pods []netip.Prefix, devices []string, e Elements) dataplane.Ruleset {
	t := dataplane.Ruleset{
		Family: dataplane.GlobalnetTable.Family, Table: dataplane.GlobalnetTable.Name, Sets: e.sets(), Pods: pods,
	}
	t.AddChain("prerouting", "filter", "prerouting", inPriority)
	t.AddChain("dstnat", "nat", "prerouting", dnatPriority)
	t.AddChain("srcnat", "nat", "postrouting", snatPriority)
	t.AddChain("postrouting", "filter", "postrouting", outPriority)
	for _, n := range nets {
		t.Add("prerouting", "ip daddr %v goto arrived", n)
		t.Add("dstnat", "ip daddr %v goto called", n)
	}
	for _, d := range devices {
		t.Add("arrived", "iifname %q goto inward", d)
		t.Add("called", "iifname %q goto choose", d)
		t.Add("srcnat", "oifname %q goto egress", d)
		t.Add("postrouting", "oifname %q goto outward", d)
	}
	ownAddresses(&t)
	exported(&t)
	egress(&t, nets)
	outside(&t, nets, pods)
	return t
}

// ownAddresses adds the rules for pods with a global address of their own.
func ownAddresses(t *dataplane.Ruleset) {
	// ICMP errors that contain the packet they are about (RFC 792).
	const errors = "icmp type { destination-unreachable, time-exceeded, parameter-problem }"
	t.Add("inward", "%s jump error-inward", errors)
	t.Add("inward", "ip daddr set ip daddr map @pods")
	t.Add("outward", "%s jump error-outward", errors)
	t.Add("outward", "ip saddr set ip saddr map @globals")
	t.AddInner("error-inward", dataplane.InnerAddress{Map: "pods"})
	// The sender of the error may be a node on the path to the pod, without a global address.
	t.AddInner("error-outward", dataplane.InnerAddress{Map: "globals", Leaves: true})
}

// exported adds the rules for connections to exported Services and to the gateway. The last rule of
// a chain translates a destination to itself, so that kube-proxy does not translate it.
func exported(t *dataplane.Ruleset) {
	const port = "ip daddr . meta l4proto . th dport"
	t.Add("choose", "%s vmap @ports", port)
	t.Add("choose", "icmp type echo-request dnat to ip daddr map @answering")
	t.Add("choose", "dnat to ip daddr")
	// Without ready endpoints, new connections are dropped; existing connections continue.
	t.Add(slotsChain(0, false), "dnat to ip daddr")
	for _, n := range slotCounts {
		t.Add(slotsChain(n, false), "dnat to %s . %s map @endpoints", port, hash("ip saddr . th sport", n))
		t.Add(slotsChain(n, true), "dnat to %s . %s map @endpoints", port, hash("ip saddr", n))
	}
}

// egress adds the rules that choose the source of packets to a cable.
func egress(t *dataplane.Ruleset, nets []netip.Prefix) {
	const chain = "egress"
	for _, d := range dataplane.DeviceNets { // packets to another gateway itself
		t.Add(chain, "ip daddr %v accept", d.Net)
	}
	// Another gateway without cables has translated the packet. The replies arrive here, too.
	for _, n := range nets {
		t.Add(chain, "ip saddr %v snat to ip saddr", n)
	}
	// Pods with an address of their own keep their source here; "outward" translates it. The rule
	// translates the source and translates it back, to test whether the map has an element: Linux
	// 6.1 does not accept the match "ip saddr @globals" for a map.
	t.Add(chain, "ip saddr set ip saddr map @globals ip saddr set ip saddr map @pods snat to ip saddr")
	for _, answers := range []string{"tcp flags ! syn", "meta l4proto udp"} {
		t.Add(chain, "%s snat to ip saddr . meta l4proto . th sport map @exports", answers)
	}
	t.Add(chain, "ip saddr vmap @selected")
	addresses := "ip saddr . ip daddr"
	t.Add(chain, "snat to %s map @shared-addresses", hash(addresses, shares))
	// The gateway has no address for this packet yet. The table against forged packets would drop
	// it, too, but only after connection tracking has stored the wrong source for the connection.
	t.Drop(chain, dataplane.DropNoAddress, "")
	for n := 1; n <= maxPool; n++ {
		t.Add(poolChain(n), "snat to ip saddr . %s map @selected-addresses", hash(addresses, n))
	}
}

// outside adds the rules for exported Services with endpoints outside the pod networks. Such
// endpoints have no route to other clusters, so packets to them get an address of the gateway as
// their source.
func outside(t *dataplane.Ruleset, nets, pods []netip.Prefix) {
	for _, n := range nets {
		t.Add("srcnat", "ct original ip daddr %v goto outside", n)
	}
	for _, n := range pods {
		t.Add("outside", "ip daddr %v accept", n)
	}
	t.Add("outside", "masquerade")
}

// hash returns an expression that computes the number of a slot from fields of a packet.
func hash(of string, slots int) string {
	return fmt.Sprintf("jhash %s mod %d seed %#x", of, slots, uint32(hashSeed))
}

// slotsChain returns the name of the chain that chooses an endpoint by a hash of the client's
// address and port, for a number of slots. If byAddress is set, the hash ignores the port.
func slotsChain(slots int, byAddress bool) string {
	if byAddress {
		return "slots-" + strconv.Itoa(slots) + "-client"
	}
	return "slots-" + strconv.Itoa(slots)
}

// poolChain returns the name of the chain that chooses one of the addresses of a pod.
func poolChain(addresses int) string { return "pool-" + strconv.Itoa(addresses) }

// addrPort returns an address and a port in the notation of nft(8).
func addrPort(a netip.AddrPort) string {
	return a.Addr().String() + " . " + strconv.Itoa(int(a.Port()))
}

// portOf returns an address, a protocol and a port in the notation of nft(8).
func portOf(a netip.Addr, proto uint8, port uint16) string {
	return a.String() + " . " + strconv.Itoa(int(proto)) + " . " + strconv.Itoa(int(port))
}
