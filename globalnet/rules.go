package globalnet

import (
	"fmt"
	"net/netip"
	"strconv"

	"subctl/dataplane"
)

// Priorities of the chains.
const (
	// after the table against forged packets (-290), which sees global addresses, and before
	// connection tracking (-200)
	inPriority   = -250
	dnatPriority = -110 // before kube-proxy ("dstnat" is -100): only exported Services are reached
	snatPriority = 40   // before cable/rules_sources.go (50), which keeps sources, kube-proxy and the CNI
	outPriority  = 250  // after all source translation (100), and before the table against forged packets (300)
)

// hashSeed is the seed of the hash that chooses an endpoint. It must never change: all gateways of
// a cluster choose the same endpoint, also during an upgrade. ("glob" in ASCII.)
const hashSeed = 0x676c6f62

// maxPool is the greatest number of addresses of a pod that a GlobalEgressIP selects. shares is the
// number of slots of the addresses of all other pods, so that the rules do not depend on the number
// of addresses.
const (
	maxPool = 20
	shares  = 64
)

// slotCounts are the numbers of slots that a port with endpoints may have: one for a single
// endpoint, or else a power of two, so that the rules do not depend on the number of endpoints, and
// few connections move when it changes.
var slotCounts = []int{1, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096}

// slotsOf returns the number of slots for a number of endpoints: at least 8 for each of several, so
// that their shares differ by an eighth at most, as far as there are as many.
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
	// Pods are the addresses of pods' own ("global : pod"), and Globals the same the other way
	// round.
	Pods, Globals []string
	Answering     []string // global addresses at which an address of the gateway answers pings
	Ports         []string // of exported Services, and the chains that choose an endpoint
	Endpoints     []string // where these lead: an endpoint has several slots, or none
	// Exports are the ports of Services, for endpoints. What an endpoint sends belongs to a
	// connection to the Service if it cannot begin one: the gateway that knew the connection is
	// gone.
	Exports           []string
	Selected          []string // pods that a GlobalEgressIP selects, and the chains that choose an address
	SelectedAddresses []string // these addresses
	SharedAddresses   []string // the addresses of all others: of all slots, or none
}

// sets returns the maps. If the type of one changes, so must its name: a table in which a map has
// another type is made anew, and nothing is translated meanwhile.
func (e Elements) sets() []dataplane.RuleSet {
	const port = "ipv4_addr . inet_proto . inet_service"
	return []dataplane.RuleSet{
		{Name: dataplane.GlobalnetAnswering, Type: "ipv4_addr : ipv4_addr", Elements: e.Answering},
		{
			Name: dataplane.GlobalnetEndpoints, Type: port + " . number : ipv4_addr . inet_service",
			// These are here for their types. "meta length" is a number of four bytes, as a hash
			// has no type in nft 1.0.6, which cannot read "th dport" back from the kernel.
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
// its global addresses, which are all that other clusters see of it. What it translates is in maps,
// so a packet costs the same with one address as with 50,000.
//
//   - An address of a pod's own is translated without state, in both directions, and in the packets
//     inside ICMP errors. So any gateway can translate any packet, and no connection depends on a
//     gateway.
//   - The port of an exported Service leads to one of its endpoints, which a hash of the client's
//     address and port chooses. So all gateways choose the same endpoint, and a connection
//     continues through another gateway.
//   - All other packets that leave on a cable get one of the addresses of the pod as their source,
//     or else one of the gateway's, by a hash of source and destination.
//
// What arrives for a global address and is not translated keeps its destination, which the table
// against forged packets drops. A rule does nothing if the map has no element for the packet.
//
// All packets of the node pass the chains without state, so these have few rules; the chains of
// type nat see the first packet of each connection only. Nets are the global networks of this
// cluster, pods the networks of its pods, and devices those of the cables, as names in nftables.
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

// ownAddresses adds the rules that translate without state.
func ownAddresses(t *dataplane.Ruleset) {
	// The ICMP errors that contain the packet that they are about (RFC 792).
	const errors = "icmp type { destination-unreachable, time-exceeded, parameter-problem }"
	t.Add("inward", "%s jump error-inward", errors)
	t.Add("inward", "ip daddr set ip daddr map @pods")
	t.Add("outward", "%s jump error-outward", errors)
	t.Add("outward", "ip saddr set ip saddr map @globals")
	t.AddInner("error-inward", dataplane.InnerAddress{Map: "pods"})
	// The error may come from a node on the way to the pod.
	t.AddInner("error-outward", dataplane.InnerAddress{Map: "globals", Leaves: true})
}

// exported adds the rules about connections to exported Services and to the gateway. The last rule
// of a chain translates a destination to itself, so that nobody else translates it.
func exported(t *dataplane.Ruleset) {
	const port = "ip daddr . meta l4proto . th dport"
	t.Add("choose", "%s vmap @ports", port)
	t.Add("choose", "icmp type echo-request dnat to ip daddr map @answering")
	t.Add("choose", "dnat to ip daddr")
	// Without endpoints, new connections are dropped, and those to endpoints that were ready before
	// go on.
	t.Add(slotsChain(0, false), "dnat to ip daddr")
	for _, n := range slotCounts {
		t.Add(slotsChain(n, false), "dnat to %s . %s map @endpoints", port, hash("ip saddr . th sport", n))
		t.Add(slotsChain(n, true), "dnat to %s . %s map @endpoints", port, hash("ip saddr", n))
	}
}

// egress adds the rules that choose the source of what leaves on a cable.
func egress(t *dataplane.Ruleset, nets []netip.Prefix) {
	const chain = "egress"
	for _, d := range dataplane.DeviceNets { // from gateway to gateway
		t.Add(chain, "ip daddr %v accept", d.Net)
	}
	// of another gateway, which has translated it and lost its cables: the replies pass here, too
	for _, n := range nets {
		t.Add(chain, "ip saddr %v snat to ip saddr", n)
	}
	// Pods with an address of their own keep their source until the chain without state. The rule
	// translates it and back: whether a map has an element cannot be asked in any other way, as
	// Linux 6.1 refuses "ip saddr @globals" for a map.
	t.Add(chain, "ip saddr set ip saddr map @globals ip saddr set ip saddr map @pods snat to ip saddr")
	for _, answers := range []string{"tcp flags ! syn", "meta l4proto udp"} {
		t.Add(chain, "%s snat to ip saddr . meta l4proto . th sport map @exports", answers)
	}
	t.Add(chain, "ip saddr vmap @selected")
	addresses := "ip saddr . ip daddr"
	t.Add(chain, "snat to %s map @shared-addresses", hash(addresses, shares))
	// The gateway has no address for it yet. The table against forged packets would drop it, too,
	// but conntrack would keep the source, also once the gateway has one.
	t.Drop(chain, dataplane.DropNoAddress, "")
	for n := 1; n <= maxPool; n++ {
		t.Add(poolChain(n), "snat to ip saddr . %s map @selected-addresses", hash(addresses, n))
	}
}

// outside adds the rules about exported Services that lead outside of the networks of pods. There
// is no route from there to other clusters, so the gateway is the source of the packets.
func outside(t *dataplane.Ruleset, nets, pods []netip.Prefix) {
	for _, n := range nets {
		t.Add("srcnat", "ct original ip daddr %v goto outside", n)
	}
	for _, n := range pods {
		t.Add("outside", "ip daddr %v accept", n)
	}
	t.Add("outside", "masquerade")
}

// hash returns the number of a slot by fields of a packet.
func hash(of string, slots int) string {
	return fmt.Sprintf("jhash %s mod %d seed %#x", of, slots, uint32(hashSeed))
}

// slotsChain returns the name of the chain that chooses an endpoint among so many slots, by the
// client's address alone or also by its port.
func slotsChain(slots int, client bool) string {
	if client {
		return "slots-" + strconv.Itoa(slots) + "-client"
	}
	return "slots-" + strconv.Itoa(slots)
}

// poolChain returns the name of the chain that chooses one of the addresses of a pod.
func poolChain(addresses int) string { return "pool-" + strconv.Itoa(addresses) }

// addrPort returns the notation of an address and a port.
func addrPort(a netip.AddrPort) string {
	return a.Addr().String() + " . " + strconv.Itoa(int(a.Port()))
}

// portOf returns the notation of the port of an address.
func portOf(a netip.Addr, proto uint8, port uint16) string {
	return a.String() + " . " + strconv.Itoa(int(proto)) + " . " + strconv.Itoa(int(port))
}
