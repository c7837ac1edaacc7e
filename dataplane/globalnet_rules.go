package dataplane

import (
	"fmt"
	"net/netip"
	"strings"
)

// The chains of Globalnet. Those without a hook are jumped to; so is one for each class of
// Services.
const (
	GlobalnetIn       = "prerouting" // without state, before connection tracking sees the packet
	GlobalnetArrived  = "arrived"
	GlobalnetInward   = "inward"
	GlobalnetErrorsIn = "errors-in"
	GlobalnetDNAT     = "dstnat"
	GlobalnetCalled   = "called"
	GlobalnetChoose   = "choose"
	GlobalnetSNAT     = "srcnat"
	GlobalnetEgress   = "egress"
	GlobalnetOutside  = "outside"
	GlobalnetOut      = "postrouting" // without state, after connection tracking has translated the packet
	GlobalnetOutward  = "outward"
	GlobalnetErrorsUp = "errors-out"
)

// Priorities of the chains of Globalnet.
const (
	// after the table against forged packets (-290), which sees global addresses, and before connection tracking (-200)
	GlobalnetInPriority   = -250
	GlobalnetDNATPriority = -110 // before kube-proxy ("dstnat" is -100): only exported Services are reached
	GlobalnetSNATPriority = 40   // before Sources (50), which keeps sources, and before kube-proxy and the CNI
	GlobalnetOutPriority  = 250  // after all source translation (100), and before that table (300)
)

// GlobalnetSeed is the seed of the hash that chooses an endpoint. It must never change: all
// gateways of a cluster choose the same endpoint, also during an upgrade. ("glob" in ASCII.)
const GlobalnetSeed = 0x676c6f62

// GlobalnetHook returns the type of a chain, its hook and its priority; all empty for a chain that
// is jumped to.
func GlobalnetHook(chain string) (typ, hook string, priority int) {
	switch chain {
	case GlobalnetIn:
		return "filter", "prerouting", GlobalnetInPriority
	case GlobalnetDNAT:
		return "nat", "prerouting", GlobalnetDNATPriority
	case GlobalnetSNAT:
		return "nat", "postrouting", GlobalnetSNATPriority
	case GlobalnetOut:
		return "filter", "postrouting", GlobalnetOutPriority
	}
	return "", "", 0
}

// GlobalClasses returns the classes of Services.
func GlobalClasses() (out []GlobalService) {
	out = append(out, GlobalService{}) // without endpoints
	for _, n := range GlobalSlots {
		out = append(out, GlobalService{Slots: n}, GlobalService{Slots: n, Client: true})
	}
	return out
}

// GlobalPools returns the classes of pods with addresses of some pods.
func GlobalPools() (out []GlobalPool) {
	for n := uint8(1); n <= MaxGlobalPool; n++ {
		out = append(out, GlobalPool{Count: n})
	}
	return out
}

// GlobalnetChains returns all chains, in the order in which they are created: chains that are
// jumped to come first.
func GlobalnetChains() (out []string) {
	for _, c := range GlobalClasses() {
		out = append(out, c.Class())
	}
	for _, p := range GlobalPools() {
		out = append(out, p.Class())
	}
	return append(out, GlobalnetErrorsIn, GlobalnetInward, GlobalnetArrived, GlobalnetChoose, GlobalnetCalled,
		GlobalnetEgress, GlobalnetOutside, GlobalnetErrorsUp, GlobalnetOutward, GlobalnetIn, GlobalnetDNAT,
		GlobalnetSNAT, GlobalnetOut)
}

// GlobalnetAction is the action of a rule on a packet. The rule does nothing if the map has no
// element for the packet.
type GlobalnetAction uint8

// The actions.
const (
	GlobalnetNothing      GlobalnetAction = iota
	GlobalnetAccept                       // ends the chain
	GlobalnetToOwner                      // the destination becomes the address of the pod
	GlobalnetInnerToOwner                 // so does the source of the packet inside an ICMP error
	GlobalnetFromOwn                      // the source becomes the global address of the pod
	// so does the destination of the packet inside an ICMP error, and the source of the error
	GlobalnetInnerFromOwn
	GlobalnetClassify        // goes to the chain of the class of the Service
	GlobalnetToBackend       // DNAT to an endpoint
	GlobalnetToEcho          // DNAT to the address that answers
	GlobalnetKeepDestination // DNAT to the same address, so that nobody else translates it
	GlobalnetKeepSource      // SNAT to the same address, which another gateway has given to the packet
	GlobalnetKeepOwn         // SNAT to the same address, for pods with a global address of their own
	GlobalnetReplyFrom       // SNAT to the port of the Service
	GlobalnetPool            // goes to the chain of the class of the pod
	GlobalnetFromSource      // SNAT to one of the pod's addresses
	GlobalnetFromShared      // SNAT to one of the addresses of all others
	GlobalnetMasquerade      // SNAT to an address of the gateway
	GlobalnetDrop            // drops the packet
)

// ICMP errors that contain the packet that they are about (RFC 792): destination unreachable, time
// exceeded, parameter problem.
var icmpErrors = []uint8{3, 11, 12}

// Bytes from the ICMP header (8) on to fields of the packet inside an ICMP error.
const (
	ErrorChecksum    = 8 + 10
	ErrorSource      = 8 + 12
	ErrorDestination = 8 + 16
)

// GlobalnetRule is a rule of Globalnet: what it matches, and what it then does.
type GlobalnetRule struct {
	Chain string

	IIF, OIF  string       // names of devices; empty for any
	From, To  netip.Prefix // networks of the source and of the destination; the zero Prefix for any
	First     netip.Prefix // network of the destination of the connection, before translation
	ICMP, UDP bool
	Midway    bool  // a TCP packet that begins no connection
	Echo      bool  // an ICMP echo request
	Error     uint8 // type of an ICMP error

	Jump, Goto string // a chain
	Do         GlobalnetAction
	Slots      uint16 // of GlobalnetToBackend and GlobalnetFromSource
	Client     bool
}

// Rules returns the rules, in order. All packets of the node pass the chains without state, so
// these have few matches; the other two see the first packet of each connection only.
func (g Globalnet) Rules() (rules []GlobalnetRule) {
	add := func(r GlobalnetRule) { rules = append(rules, r) }
	for _, n := range g.Nets {
		add(GlobalnetRule{Chain: GlobalnetIn, To: n, Goto: GlobalnetArrived})
		add(GlobalnetRule{Chain: GlobalnetDNAT, To: n, Goto: GlobalnetCalled})
	}
	for _, d := range g.Devices {
		add(GlobalnetRule{Chain: GlobalnetArrived, IIF: d, Goto: GlobalnetInward})
		add(GlobalnetRule{Chain: GlobalnetCalled, IIF: d, Goto: GlobalnetChoose})
		add(GlobalnetRule{Chain: GlobalnetSNAT, OIF: d, Goto: GlobalnetEgress})
		add(GlobalnetRule{Chain: GlobalnetOut, OIF: d, Goto: GlobalnetOutward})
	}
	add(GlobalnetRule{Chain: GlobalnetInward, ICMP: true, Jump: GlobalnetErrorsIn})
	add(GlobalnetRule{Chain: GlobalnetInward, Do: GlobalnetToOwner})
	add(GlobalnetRule{Chain: GlobalnetOutward, ICMP: true, Jump: GlobalnetErrorsUp})
	add(GlobalnetRule{Chain: GlobalnetOutward, Do: GlobalnetFromOwn})
	for _, e := range icmpErrors {
		add(GlobalnetRule{Chain: GlobalnetErrorsIn, Error: e, Do: GlobalnetInnerToOwner})
		add(GlobalnetRule{Chain: GlobalnetErrorsUp, Error: e, Do: GlobalnetInnerFromOwn})
	}
	add(GlobalnetRule{Chain: GlobalnetChoose, Do: GlobalnetClassify})
	add(GlobalnetRule{Chain: GlobalnetChoose, Echo: true, Do: GlobalnetToEcho})
	add(GlobalnetRule{Chain: GlobalnetChoose, Do: GlobalnetKeepDestination})
	for _, c := range GlobalClasses() {
		if c.Slots == 0 {
			add(GlobalnetRule{Chain: c.Class(), Do: GlobalnetKeepDestination})
			continue
		}
		add(GlobalnetRule{Chain: c.Class(), Do: GlobalnetToBackend, Slots: c.Slots, Client: c.Client})
	}
	for _, d := range DeviceNets { // from gateway to gateway
		add(GlobalnetRule{Chain: GlobalnetEgress, To: d.Net, Do: GlobalnetAccept})
	}
	// of another gateway, which has translated it and lost its cables: the replies pass here, too
	for _, n := range g.Nets {
		add(GlobalnetRule{Chain: GlobalnetEgress, From: n, Do: GlobalnetKeepSource})
	}
	add(GlobalnetRule{Chain: GlobalnetEgress, Do: GlobalnetKeepOwn})
	add(GlobalnetRule{Chain: GlobalnetEgress, Midway: true, Do: GlobalnetReplyFrom})
	add(GlobalnetRule{Chain: GlobalnetEgress, UDP: true, Do: GlobalnetReplyFrom})
	add(GlobalnetRule{Chain: GlobalnetEgress, Do: GlobalnetPool})
	add(GlobalnetRule{Chain: GlobalnetEgress, Do: GlobalnetFromShared, Slots: GlobalShares})
	// The gateway has no address for it yet. The table against forged packets would drop it, too,
	// but conntrack would keep the source, also once the gateway has one.
	add(GlobalnetRule{Chain: GlobalnetEgress, Do: GlobalnetDrop})
	for _, p := range GlobalPools() {
		add(GlobalnetRule{Chain: p.Class(), Do: GlobalnetFromSource, Slots: uint16(p.Count)})
	}
	for _, n := range g.Nets {
		add(GlobalnetRule{Chain: GlobalnetSNAT, First: n, Goto: GlobalnetOutside})
	}
	for _, n := range g.Pods {
		add(GlobalnetRule{Chain: GlobalnetOutside, To: n, Do: GlobalnetAccept})
	}
	add(GlobalnetRule{Chain: GlobalnetOutside, Do: GlobalnetMasquerade})
	return rules
}

// String returns the rule in the notation of nft.
func (r GlobalnetRule) String() string {
	var words []string
	add := func(is bool, format string, args ...any) {
		if is {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	add(r.IIF != "", "iifname %q", r.IIF)
	add(r.OIF != "", "oifname %q", r.OIF)
	add(r.First.IsValid(), "ct original ip daddr %v", r.First)
	add(r.From.IsValid(), "ip saddr %v", r.From)
	add(r.To.IsValid(), "ip daddr %v", r.To)
	add(r.ICMP, "meta l4proto icmp")
	add(r.UDP, "meta l4proto udp")
	add(r.Midway, "tcp flags ! syn")
	add(r.Echo, "icmp type echo-request")
	add(r.Error != 0, "icmp type %d", r.Error)
	add(r.Jump != "", "jump %s", r.Jump)
	add(r.Goto != "", "goto %s", r.Goto)
	const l4 = "meta l4proto . th"
	slot := func(of string) string {
		return fmt.Sprintf("jhash %s mod %d seed %#x", of, r.Slots, uint32(GlobalnetSeed))
	}
	endpoint := slot("ip saddr . th sport")
	if r.Client {
		endpoint = slot("ip saddr")
	}
	source := slot("ip saddr . ip daddr")
	words = append(words, map[GlobalnetAction]string{
		GlobalnetNothing:      "",
		GlobalnetAccept:       "accept",
		GlobalnetToOwner:      "ip daddr set ip daddr map @" + GlobalnetOwn,
		GlobalnetInnerToOwner: fmt.Sprintf("@th,%[1]d,32 set @th,%[1]d,32 map @%[2]s", 8*ErrorSource, GlobalnetOwn),
		GlobalnetFromOwn:      "ip saddr set ip saddr map @" + GlobalnetOwners,
		GlobalnetInnerFromOwn: fmt.Sprintf("@th,%[1]d,32 set @th,%[1]d,32 map @%[2]s ip saddr set @th,%[1]d,32",
			8*ErrorDestination, GlobalnetOwners),
		GlobalnetClassify:        fmt.Sprintf("ip daddr . %s dport vmap @%s", l4, GlobalnetServices),
		GlobalnetToBackend:       fmt.Sprintf("dnat to ip daddr . %s dport . %s map @%s", l4, endpoint, GlobalnetBackends),
		GlobalnetToEcho:          "dnat to ip daddr map @" + GlobalnetEchoes,
		GlobalnetKeepDestination: "dnat to ip daddr",
		GlobalnetKeepSource:      "snat to ip saddr",
		GlobalnetKeepOwn:         fmt.Sprintf("ip saddr @%s snat to ip saddr", GlobalnetOwners),
		GlobalnetReplyFrom:       fmt.Sprintf("snat to ip saddr . %s sport map @%s", l4, GlobalnetReplies),
		GlobalnetPool:            "ip saddr vmap @" + GlobalnetPools,
		GlobalnetFromSource:      fmt.Sprintf("snat to ip saddr . %s map @%s", source, GlobalnetSources),
		GlobalnetFromShared:      fmt.Sprintf("snat to %s map @%s", source, GlobalnetShared),
		GlobalnetMasquerade:      "masquerade",
		GlobalnetDrop:            "counter drop",
	}[r.Do])
	return strings.TrimSpace(strings.Join(words, " "))
}
