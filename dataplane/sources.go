package dataplane

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// SourcesPriority is the priority of the chain of Sources: before all other chains that
// translate sources, which have 100 ("srcnat") or a little less.
const SourcesPriority = 50

// Sources is an nftables table that preserves the source addresses of packets between the
// networks Local and Remote. The kernel translates the source of a connection once, by the
// first rule that matches: ours comes first, and translates sources to themselves. Only
// the first packet of each connection passes through it.
type Sources struct {
	Table         string
	Local, Remote []netip.Prefix // masked and sorted; no network contains another
	// Masquerades specifies that a connection from Remote whose destination has been translated here, to a pod on another node, gets the
	// node's own address as its source, as the CNI brings it to that node: nobody else can translate the replies back, and they would not find this
	// node. It is the address of the device on which the packets leave, to which the CNI has a way back. Those that leave on IntraDevice or
	// PodDevices keep their source.
	Masquerades bool
	// Here is the network of the node's own pods, if it is known; the zero Prefix otherwise. What Masquerades does is not for them.
	Here netip.Prefix
	// Node is the source of other connections to Remote that belong to the node: of its own
	// processes, and those whose destination has been translated here, such as a client's outside
	// to a node port. It is the node's address among the pods; the zero Addr if it has none.
	// Otherwise kube-proxy would give them the address of a device of ours, or leave the client's,
	// and no answer would find this node. Connections from Remote do not get it: nothing passes
	// from one cluster to another as if it were the node's.
	Node netip.Addr
	// Announced are the networks of this cluster to which other clusters send through cables; no
	// network contains another. A connection from Remote to an address in none of them that does
	// not arrive on a device of ours did not come through a cable: it gets DirectMark. If its
	// destination is translated to a pod, it comes from the node for the pod: nothing tells whether
	// its source is true.
	Announced []netip.Prefix
}

// PodDevices are names of devices that lead to a pod on the node itself: of Calico, of Cilium, and of the reference plugin ptp. A pod
// behind a device of another name counts as one on another node.
var PodDevices = []string{"cali" + DeviceAny, "lxc" + DeviceAny, "veth" + DeviceAny}

// SourcesRule is a rule of Sources: what it matches, and whether it then translates the source to the node's address, or to itself.
type SourcesRule struct {
	Chain       string
	Kind        string       // with the network or the address, it identifies the rule
	From, To    netip.Prefix // one of them is the zero Prefix, which stands for Remote
	Masquerades bool         // only if the destination of the connection has been translated
	NotOn       []string     // devices on which such packets do not leave
	// Node is the source that connections to Remote get that do not come from there, if they are of
	// a process of the node or, with Translated, if their destination has been translated here.
	// From and To are the zero Prefix then.
	Node       netip.Addr
	Translated bool
	Jump       string // a chain, for connections from Remote that do not arrive on devices of ours
	Own        bool   // ends the chain for connections to To
	Mark       bool   // the connection gets DirectMark
	Direct     bool   // connections with DirectMark get the node's address
}

// Kinds of SourcesRule.
const (
	SourcesHere       = "here"
	SourcesMasquerade = "masquerade"
	SourcesFrom       = "from"
	SourcesTo         = "to"
	SourcesProcess    = "process"
	SourcesClient     = "client"
	SourcesDirect     = "direct"
	SourcesOwn        = "own"
	SourcesAsNode     = "as-node"
)

// The chains of Sources. The one without a hook is jumped to.
const (
	SourcesMarking     = "direct"
	SourcesInput       = "input"
	SourcesPostrouting = "postrouting"
)

// SourcesChains are all chains of Sources, in the order in which they are created: the chain that
// is jumped to comes first.
var SourcesChains = []string{SourcesMarking, SourcesInput, SourcesPostrouting}

// Comment identifies the rule.
func (r SourcesRule) Comment() string {
	switch {
	case r.Node.IsValid():
		return r.Kind + " " + r.Node.String()
	case r.From.IsValid():
		return r.Kind + " " + r.From.String()
	case r.To.IsValid():
		return r.Kind + " " + r.To.String()
	}
	return r.Kind
}

// Rules returns the rules, in order.
func (s Sources) Rules() (rules []SourcesRule) {
	if len(s.Announced) > 0 {
		for _, n := range s.Announced {
			rules = append(rules, SourcesRule{Chain: SourcesMarking, Kind: SourcesOwn, To: n, Own: true})
		}
		rules = append(rules, SourcesRule{Chain: SourcesMarking, Kind: SourcesDirect, Mark: true})
		for _, chain := range []string{SourcesInput, SourcesPostrouting} {
			rules = append(rules, SourcesRule{Chain: chain, Kind: SourcesDirect, Jump: SourcesMarking})
		}
		for _, l := range s.Local {
			rules = append(rules, SourcesRule{Chain: SourcesPostrouting, Kind: SourcesAsNode, To: l, Direct: true})
		}
	}
	return append(rules, s.kept()...)
}

// kept returns the rules about connections that take cables.
func (s Sources) kept() (rules []SourcesRule) {
	if s.Masquerades {
		if s.Here.IsValid() {
			rules = append(rules, SourcesRule{Kind: SourcesHere, To: s.Here})
		}
		for _, l := range s.Local {
			rules = append(rules, SourcesRule{
				Kind: SourcesMasquerade, To: l, Masquerades: true, NotOn: append([]string{IntraDevice}, PodDevices...),
			})
		}
	}
	for _, l := range s.Local {
		rules = append(rules, SourcesRule{Kind: SourcesFrom, From: l}, SourcesRule{Kind: SourcesTo, To: l})
	}
	if s.Node.IsValid() {
		rules = append(rules, SourcesRule{Kind: SourcesProcess, Node: s.Node},
			SourcesRule{Kind: SourcesClient, Node: s.Node, Translated: true})
	}
	for i := range rules {
		rules[i].Chain = SourcesPostrouting
	}
	return rules
}

// String returns the rule in the notation of nft.
func (r SourcesRule) String() string {
	switch {
	case r.Translated:
		return fmt.Sprintf("ip saddr != @remote ip daddr @remote ct status dnat snat to %v", r.Node)
	case r.Node.IsValid():
		return fmt.Sprintf("ip saddr != @remote ip daddr @remote fib saddr type local snat to %v", r.Node)
	case r.Own:
		return fmt.Sprintf("ct original ip daddr %v return", r.To)
	case r.Mark:
		return fmt.Sprintf("ct mark set ct mark and %#x xor %#x", ^uint32(ReturnMask), DirectMark)
	case r.Direct:
		return fmt.Sprintf("ct mark and %#x == %#x ip daddr %v masquerade", ReturnMask, DirectMark, r.To)
	case r.Jump != "":
		var others string
		for _, d := range NodeDevices() {
			others += fmt.Sprintf("iifname != %q ", d)
		}
		return "ip saddr @remote " + others + "jump " + r.Jump
	}
	from, to, match, does := "@remote", "@remote", "", "snat to ip saddr"
	if r.From.IsValid() {
		from = r.From.String()
	} else {
		to = r.To.String()
	}
	if r.Masquerades {
		match, does = "ct status dnat ", "masquerade"
	}
	for _, d := range r.NotOn {
		match += fmt.Sprintf("oifname != %q ", d)
	}
	return fmt.Sprintf("ip saddr %s ip daddr %s %s%s", from, to, match, does)
}

// Key implements Object.
func (s Sources) Key() Key { return Key{KindSources, s.Table} }

// Needs implements Object.
func (Sources) Needs() []Key { return nil }

// Equal implements Object.
func (s Sources) Equal(o Object) bool {
	other, ok := o.(Sources)
	return ok && s.Table == other.Table && s.Masquerades == other.Masquerades && s.Here == other.Here &&
		s.Node == other.Node && slices.Equal(s.Announced, other.Announced) &&
		slices.Equal(s.Local, other.Local) && slices.Equal(s.Remote, other.Remote)
}

// String implements Object.
func (s Sources) String() string {
	lines := []string{
		fmt.Sprintf("nft add table ip %s", s.Table),
		fmt.Sprintf("nft 'add set ip %s remote { type ipv4_addr; flags interval; }'", s.Table),
	}
	for _, r := range s.Remote {
		lines = append(lines, fmt.Sprintf("nft 'add element ip %s remote { %v }'", s.Table, r))
	}
	for _, name := range SourcesChains {
		line := fmt.Sprintf("nft add chain ip %s %s", s.Table, name)
		if name != SourcesMarking {
			line = fmt.Sprintf("nft 'add chain ip %s %s { type nat hook %s priority %d; }'", s.Table, name, name,
				SourcesPriority)
		}
		lines = append(lines, line)
	}
	for _, r := range s.Rules() {
		line := fmt.Sprintf("add rule ip %s %s %v", s.Table, r.Chain, r)
		if strings.Contains(line, `"`) {
			line = "'" + line + "'" // the shell knows quotes and asterisks, too
		}
		lines = append(lines, "nft "+line)
	}
	return strings.Join(lines, "\n")
}
