package dataplane

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// ReturnsPriority is the priority of the chains of Returns: after connection tracking (-200), before
// the translation of destinations (-100), like "mangle" of iptables.
const ReturnsPriority = -150

// Returns is an nftables table that remembers through which gateway of its own cluster a connection
// from another cluster arrives, and marks its replies, so that a MarkRule routes them to this gateway: it may
// have translated the connection's destination, and nobody else can translate the replies back.
//
// The gateway is remembered in bits of the connection mark: that of the gateway that sent the last
// packet in the original direction. So a connection that continues through another gateway is
// answered through that one.
//
// A reply does not go back to the gateway that has just sent it: that one remembers no gateway for the connection, or this
// one, and the packet would go round in circles.
//
// An ICMP error that belongs to a connection does not change the connection's mark: it may take another
// way than the connection. If it goes in the direction of the replies, it gets their mark, as the
// gateway translates the packet inside it, too.
//
// A worker also chooses a gateway for each new connection to another cluster, at random, by the weights of the gateways, and
// remembers it in the same bits. So connections between the same two hosts spread over the gateways, which a next hop
// group does by addresses only, unless the node says otherwise (net.ipv4.fib_multipath_hash_policy); and no connection
// moves because a gateway comes, returns, or gets another weight. If a gateway is Down, the next packet
// of each of its connections chooses another one.
//
// Once it is routed, a packet loses the mark: a VXLAN device also routes the packet around it by the mark
// (vxlan_get_route in drivers/net/vxlan/vxlan_core.c), which would lead back to the device.
//
// The value of a rule is a constant: only since Linux 6.13 can nftables combine the bits of two marks, or of a mark
// and a map. So there are rules for each gateway.
type Returns struct {
	Table string
	// Dev is the device on which the packets of gateways arrive. Replies that arrive on it are marked at a gateway only: those to a
	// connection that another gateway has handed over.
	Dev string
	// Mask has the bits of both marks that belong to the table. Other bits stay as they are.
	Mask uint32
	// Cables are devices on which packets of other clusters arrive at a gateway. A connection that arrives on
	// them arrives through no other gateway. Replies are not marked: a connection from a pod may come from another
	// gateway that has lost its cable, and its replies go straight to the pod. DeviceAny is allowed.
	Cables   []string
	Gateways []ReturnGateway
	// Near is the network of Dev, to whose addresses packets go straight: no gateway is chosen for them.
	Near netip.Prefix
	// Direct is the mark of connections that did not arrive through a gateway: their answers get
	// it, too. 0 for none. Nothing else in the table is about them. Without Gateways, the table has
	// nothing else.
	Direct uint32
	// Seen is the fingerprint of a table that was observed, and empty in a plan. It is "damaged" if
	// rules or chains were added or removed.
	Seen string
}

// ReturnGateway is a gateway of this cluster.
type ReturnGateway struct {
	MAC  string // of its Returns.Dev
	Mark uint32 // bits of Returns.Mask, not 0
	// Weight is its share of the new connections of this node, as part of the sum of all weights. With 0, it gets none.
	Weight int
	// Down specifies that the connections of this node that go through it choose again, if another one has a weight. A gateway that has not
	// answered for a short time only is not Down: it has no weight, and the connections take other gateways by the group of its routes.
	Down bool
}

// The chains of Returns. Those without a hook are jumped to.
const (
	ReturnsPrerouting = "prerouting"
	ReturnsOutput     = "output"
	ReturnsRouted     = "postrouting"
	ReturnsArrived    = "arrived"
	ReturnsMarked     = "marked"
	ReturnsChosen     = "chosen"
)

// ReturnsChains are all chains of Returns, in the order in which they are created: chains that are jumped to
// come first.
var ReturnsChains = []string{ReturnsArrived, ReturnsChosen, ReturnsMarked, ReturnsPrerouting, ReturnsOutput, ReturnsRouted}

// ReturnsHook returns the type of a chain and its hook; both are empty for a chain that is jumped to. The
// type "route" looks the route up again if the mark has changed: the packets of the node itself already have one.
func ReturnsHook(chain string) (typ, hook string) {
	switch chain {
	case ReturnsPrerouting, ReturnsRouted:
		return "filter", chain
	case ReturnsOutput:
		return "route", chain
	}
	return "", ""
}

// Chains returns the names of the chains that have rules or to which rules jump, in the order in
// which they are created.
func (r Returns) Chains() []string {
	rules := r.Rules()
	return slices.DeleteFunc(slices.Clone(ReturnsChains), func(name string) bool {
		return !slices.ContainsFunc(rules, func(rule ReturnsRule) bool {
			return rule.Chain == name || rule.Goto == name
		})
	})
}

// ReturnsRule is a rule of Returns: what it matches, and what it then does.
type ReturnsRule struct {
	Chain string

	IIF             string       // name of the input device; empty for any
	OIF             string       // name of the output device; empty for any
	Routed          bool         // the packet has bits of Mask
	Original, Reply bool         // the direction of the packet
	New             bool         // the connection has no packet yet in reply direction
	Related         bool         // the packet is no packet of the connection itself
	Routes          string       // name of the device over which the packet will be routed, which is not known yet; empty for any
	Far             netip.Prefix // the packet's destination is elsewhere; the zero Prefix for any
	MAC             string       // sender; empty for any
	Marked          bool         // the connection has bits of Mask
	Mark            uint32       // the connection has these bits of Mask; 0 for any
	Of, Below       uint32       // a random number from 0 to Of - 1 is below Below; 0 for always

	Goto   string // a chain
	Accept bool
	// Connection and Packet set the bits of Mask of the two marks to Value, and end the chain.
	Connection, Packet bool
	Value, Mask        uint32
}

// Rules returns the rules, in order. Most packets of a node have nothing to do with other clusters, and
// pass three rules.
func (r Returns) Rules() (rules []ReturnsRule) {
	add := func(rule ReturnsRule) {
		rule.Mask = r.Mask
		rules = append(rules, rule)
	}
	sum := 0
	for _, g := range r.Gateways {
		sum += g.Weight
	}
	chooses := sum > 0
	if r.Direct != 0 {
		add(ReturnsRule{Chain: ReturnsMarked, Mark: r.Direct, Reply: true, Packet: true, Value: r.Direct})
		add(ReturnsRule{Chain: ReturnsMarked, Mark: r.Direct, Accept: true})
	}
	if len(r.Gateways) == 0 {
		add(ReturnsRule{Chain: ReturnsPrerouting, Marked: true, Goto: ReturnsMarked})
		add(ReturnsRule{Chain: ReturnsOutput, Marked: true, Goto: ReturnsMarked})
		return rules
	}
	add(ReturnsRule{Chain: ReturnsArrived, Reply: true, Accept: true})
	add(ReturnsRule{Chain: ReturnsArrived, Related: true, Accept: true})
	for _, g := range r.Gateways {
		add(ReturnsRule{Chain: ReturnsArrived, MAC: g.MAC, Mark: g.Mark, Accept: true})
		add(ReturnsRule{Chain: ReturnsArrived, MAC: g.MAC, Connection: true, Value: g.Mark})
	}
	add(ReturnsRule{Chain: ReturnsArrived, Marked: true, Connection: true}) // now from no gateway
	for _, c := range r.Cables {
		add(ReturnsRule{Chain: ReturnsMarked, IIF: c, Goto: ReturnsArrived})
	}
	if !chooses {
		add(ReturnsRule{Chain: ReturnsMarked, Original: true, Accept: true})
	}
	for _, g := range r.Gateways {
		if len(r.Cables) > 0 {
			add(ReturnsRule{Chain: ReturnsMarked, IIF: r.Dev, MAC: g.MAC, Mark: g.Mark, Accept: true})
		}
		add(ReturnsRule{Chain: ReturnsMarked, Mark: g.Mark, Packet: true, Value: g.Mark})
		left := sum
		if sum -= g.Weight; g.Weight == 0 {
			continue
		}
		rule := ReturnsRule{Chain: ReturnsChosen, Connection: true, Packet: true, Value: g.Mark}
		if sum > 0 { // the last one needs no number
			rule.Of, rule.Below = uint32(left), uint32(g.Weight)
		}
		add(rule)
	}
	if len(r.Cables) > 0 {
		add(ReturnsRule{Chain: ReturnsPrerouting, IIF: r.Dev, Reply: true, Marked: true, Goto: ReturnsMarked})
	}
	add(ReturnsRule{Chain: ReturnsPrerouting, IIF: r.Dev, Goto: ReturnsArrived})
	forwarded := ReturnsRule{Chain: ReturnsPrerouting, Routes: r.Dev, Far: r.Near, Goto: ReturnsChosen}
	sent := ReturnsRule{Chain: ReturnsOutput, OIF: r.Dev, Far: r.Near, Goto: ReturnsChosen}
	for _, rule := range []ReturnsRule{forwarded, sent} {
		for _, g := range r.Gateways {
			if g.Down && chooses {
				rule.Mark, rule.Original = g.Mark, true
				add(rule)
			}
		}
		rule.Mark, rule.Original = 0, false
		add(ReturnsRule{Chain: rule.Chain, Marked: true, Goto: ReturnsMarked})
		if rule.New = true; chooses {
			add(rule)
		}
	}
	add(ReturnsRule{Chain: ReturnsRouted, Routed: true, OIF: r.Dev, Packet: true})
	return rules
}

// String returns the rule in the notation of nft.
func (r ReturnsRule) String() string {
	var words []string
	add := func(is bool, format string, args ...any) {
		if is {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	add(r.IIF != "", "iifname %q", r.IIF)
	add(r.Routed, "meta mark and %#x != 0x0", r.Mask)
	add(r.OIF != "", "oifname %q", r.OIF)
	add(r.Marked, "ct mark and %#x != 0x0", r.Mask)
	add(r.Original, "ct direction original")
	add(r.Reply, "ct direction reply")
	add(r.New, "ct state new")
	add(r.Related, "ct state related")
	add(r.MAC != "", "ether saddr %s", r.MAC)
	add(r.Mark != 0, "ct mark and %#x == %#x", r.Mask, r.Mark)
	add(r.Far.IsValid(), "ip daddr != %v", r.Far)
	add(r.Routes != "", "fib daddr oifname %q", r.Routes)
	add(r.Of != 0, "numgen random mod %d < %d", r.Of, r.Below)
	const set = "%[1]s mark set %[1]s mark and %#[2]x xor %#[3]x"
	add(r.Connection, set, "ct", ^r.Mask, r.Value)
	add(r.Packet, set, "meta", ^r.Mask, r.Value)
	add(r.Connection || r.Packet || r.Accept, "accept")
	add(r.Goto != "", "goto %s", r.Goto)
	return strings.Join(words, " ")
}

// Fingerprint returns 16 hexadecimal digits of the SHA-256 of the rules.
func (r Returns) Fingerprint() string {
	if r.Seen != "" {
		return r.Seen
	}
	h := sha256.New()
	for _, rule := range r.Rules() {
		fmt.Fprintf(h, "%s %v\n", rule.Chain, rule)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// Key implements Object.
func (r Returns) Key() Key { return Key{KindReturns, r.Table} }

// Needs implements Object.
func (Returns) Needs() []Key { return nil }

// Equal implements Object.
func (r Returns) Equal(o Object) bool {
	other, ok := o.(Returns)
	return ok && r.Table == other.Table && r.Fingerprint() == other.Fingerprint()
}

// String implements Object.
func (r Returns) String() string {
	lines := []string{"nft add table ip " + r.Table}
	for _, name := range r.Chains() {
		line := fmt.Sprintf("nft add chain ip %s %s", r.Table, name)
		if typ, hook := ReturnsHook(name); hook != "" {
			line = fmt.Sprintf("nft 'add chain ip %s %s { type %s hook %s priority %d; }'", r.Table, name, typ, hook, ReturnsPriority)
		}
		lines = append(lines, line)
	}
	for _, rule := range r.Rules() {
		lines = append(lines, fmt.Sprintf("nft 'add rule ip %s %s %v'", r.Table, rule.Chain, rule))
	}
	return strings.Join(lines, "\n")
}
