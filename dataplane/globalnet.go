package dataplane

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// Globalnet is an nftables table of a gateway that translates between the addresses of this cluster
// and its global addresses, which are all that other clusters see of it. What it translates is in
// maps, so a packet costs the same with one address as with 50,000.
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
// What arrives for a global address and is not translated keeps its destination, which the table against forged packets
// drops.
type Globalnet struct {
	Table   string
	Nets    []netip.Prefix // the global networks of this cluster, sorted
	Devices []string       // of the cables, as names in rules
	// Pods are the networks of this cluster's pods. What an exported Service leads to outside of
	// them has no route to other clusters, so the gateway is the source of the packets.
	Pods     []netip.Prefix
	Own      []GlobalAddr    // addresses of pods' own, sorted
	Echoes   []GlobalAddr    // addresses at which an address of the gateway answers pings, sorted
	Services []GlobalService // ports of exported Services, sorted
	Backends []GlobalBackend // where they lead, sorted
	Replies  []GlobalReply   // what Backends send, if the connection is not known, sorted
	Pools    []GlobalPool    // pods that share addresses with some other pods only, sorted
	Sources  []GlobalSource  // these addresses, sorted
	Shared   []GlobalShare   // the addresses of all others, for all of GlobalShares slots or none, sorted
	// Seen is the fingerprint of a table that was observed, and empty in a plan. It is "damaged" if
	// rules, chains or maps were added or removed.
	Seen string
}

// GlobalAddr is a global address and the address of this cluster that it stands for.
type GlobalAddr struct{ Global, Local netip.Addr }

// GlobalService is a port of an exported Service.
type GlobalService struct {
	Addr  netip.Addr // global
	Proto uint8      // of IP
	Port  uint16
	// Slots is the number of its Backends, one of GlobalSlots: an endpoint has several slots, or
	// none. It is 0 without endpoints: new connections are dropped, and those to endpoints that
	// were ready before go on.
	Slots uint16
	// Client specifies that the address of a client alone chooses the endpoint, and not its port as
	// well.
	Client bool
}

// GlobalBackend is a slot of a GlobalService.
type GlobalBackend struct {
	Addr  netip.Addr // global
	Proto uint8
	Port  uint16
	Slot  uint16
	To    netip.AddrPort
}

// GlobalReply is the port of an exported Service for an endpoint. What the endpoint sends belongs
// to a connection to the Service if it cannot begin one: the gateway that knew the connection is
// gone.
type GlobalReply struct {
	From  netip.AddrPort // the endpoint
	Proto uint8
	As    netip.AddrPort // global
}

// GlobalPool is a pod and the number of its Sources, 1 to MaxGlobalPool.
type GlobalPool struct {
	Pod   netip.Addr
	Count uint8
}

// GlobalSource is a source address of a pod's packets.
type GlobalSource struct {
	Pod    netip.Addr
	Slot   uint8
	Global netip.Addr
}

// GlobalShare is a source address of all other packets.
type GlobalShare struct {
	Slot   uint8
	Global netip.Addr
}

// MaxGlobalPool is the greatest number of addresses of a pod. GlobalShares is the number of slots
// of Shared, so that the rules do not depend on the number of addresses.
const (
	MaxGlobalPool = 20
	GlobalShares  = 64
)

// GlobalSlots are the numbers of slots that a GlobalService with endpoints may have: one for a
// single endpoint, or else a power of two, so that the rules do not depend on the number of
// endpoints, and few connections move when it changes.
var GlobalSlots = []uint16{1, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096}

// SlotsOf returns the number of slots for a number of endpoints: at least 8 for each of several, so
// that their shares differ by an eighth at most, as far as there are as many.
func SlotsOf(endpoints int) uint16 {
	if endpoints < 2 {
		return 1
	}
	for _, n := range GlobalSlots {
		if int(n) >= 8*endpoints {
			return n
		}
	}
	return GlobalSlots[len(GlobalSlots)-1]
}

// Fingerprint returns 16 hexadecimal digits of the SHA-256 of the rules, without the elements of
// maps.
func (g Globalnet) Fingerprint() string {
	if g.Seen != "" {
		return g.Seen
	}
	h := sha256.New()
	for _, r := range g.Rules() {
		fmt.Fprintf(h, "%s %v\n", r.Chain, r)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// Key implements Object.
func (g Globalnet) Key() Key { return Key{KindGlobalnet, g.Table} }

// Needs implements Object.
func (Globalnet) Needs() []Key { return nil }

// Equal implements Object.
func (g Globalnet) Equal(o Object) bool {
	other, ok := o.(Globalnet)
	return ok && g.Table == other.Table && g.Fingerprint() == other.Fingerprint() && slices.Equal(g.Own, other.Own) &&
		slices.Equal(g.Echoes, other.Echoes) &&
		slices.Equal(g.Services, other.Services) && slices.Equal(g.Backends, other.Backends) &&
		slices.Equal(g.Replies, other.Replies) &&
		slices.Equal(g.Pools, other.Pools) && slices.Equal(g.Sources, other.Sources) &&
		slices.Equal(g.Shared, other.Shared)
}

// The maps of Globalnet. "own" and "owners" have the same pairs, in either direction.
const (
	GlobalnetOwn      = "own"
	GlobalnetOwners   = "owners"
	GlobalnetEchoes   = "echoes"
	GlobalnetServices = "services"
	GlobalnetBackends = "backends"
	GlobalnetReplies  = "replies"
	GlobalnetPools    = "pools"
	GlobalnetSources  = "sources"
	GlobalnetShared   = "shared"
)

// globalnetTypes are the types of the maps, in the order in which they are created.
var globalnetTypes = []struct{ name, typ string }{
	{GlobalnetOwn, "ipv4_addr : ipv4_addr"},
	{GlobalnetOwners, "ipv4_addr : ipv4_addr"},
	{GlobalnetEchoes, "ipv4_addr : ipv4_addr"},
	{GlobalnetServices, "ipv4_addr . inet_proto . inet_service : verdict"},
	{GlobalnetBackends, "ipv4_addr . inet_proto . inet_service . mark : ipv4_addr . inet_service"},
	{GlobalnetReplies, "ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service"},
	{GlobalnetPools, "ipv4_addr : verdict"},
	{GlobalnetSources, "ipv4_addr . mark : ipv4_addr"},
	{GlobalnetShared, "mark : ipv4_addr"},
}

// GlobalnetMaps returns the names of the maps, in the order in which they are created.
func GlobalnetMaps() (out []string) {
	for _, m := range globalnetTypes {
		out = append(out, m.name)
	}
	return out
}

// Compare orders GlobalAddrs by the global address.
func (a GlobalAddr) Compare(b GlobalAddr) int {
	return cmp.Or(a.Global.Compare(b.Global), a.Local.Compare(b.Local))
}

// Compare orders GlobalServices by address, protocol and port.
func (s GlobalService) Compare(o GlobalService) int {
	return cmp.Or(s.Addr.Compare(o.Addr), cmp.Compare(s.Proto, o.Proto), cmp.Compare(s.Port, o.Port),
		cmp.Compare(s.Slots, o.Slots), compareBool(s.Client, o.Client))
}

// Class returns the name of the chain that chooses an endpoint.
func (s GlobalService) Class() string {
	if s.Client {
		return fmt.Sprintf("slots-%d-client", s.Slots)
	}
	return fmt.Sprintf("slots-%d", s.Slots)
}

// Compare orders GlobalBackends by address, protocol, port and slot.
func (b GlobalBackend) Compare(o GlobalBackend) int {
	return cmp.Or(b.Addr.Compare(o.Addr), cmp.Compare(b.Proto, o.Proto), cmp.Compare(b.Port, o.Port),
		cmp.Compare(b.Slot, o.Slot), b.To.Compare(o.To))
}

// Compare orders GlobalReplies by endpoint and protocol.
func (r GlobalReply) Compare(o GlobalReply) int {
	return cmp.Or(r.From.Compare(o.From), cmp.Compare(r.Proto, o.Proto), r.As.Compare(o.As))
}

// Class returns the name of the chain that chooses a source.
func (p GlobalPool) Class() string { return fmt.Sprintf("pool-%d", p.Count) }

// Compare orders GlobalPools by pod.
func (p GlobalPool) Compare(o GlobalPool) int {
	return cmp.Or(p.Pod.Compare(o.Pod), cmp.Compare(p.Count, o.Count))
}

// Compare orders GlobalSources by pod and slot.
func (s GlobalSource) Compare(o GlobalSource) int {
	return cmp.Or(s.Pod.Compare(o.Pod), cmp.Compare(s.Slot, o.Slot), s.Global.Compare(o.Global))
}

// Compare orders GlobalShares by slot.
func (s GlobalShare) Compare(o GlobalShare) int {
	return cmp.Or(cmp.Compare(s.Slot, o.Slot), s.Global.Compare(o.Global))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// NetMask returns the mask of an IPv4 network with so many bits; the zero Addr if there is none.
func NetMask(bits int) netip.Addr {
	mask, _ := netip.AddrFromSlice(net.CIDRMask(bits, 32))
	return mask
}
