package dataplane

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Antispoof is an nftables table that drops packets with forged source addresses. A rule exists
// only if the fields that it refers to are not empty. All lists that grow with the number of
// clusters or nodes are sets, so the cost of a packet does not grow with them.
type Antispoof struct {
	Table string
	// Ports are UDP ports of VXLAN packets for this node. Such packets must arrive on the device
	// that leads to their source.
	Ports []int
	// Inner are the accepted sources inside the packets for Ports, sorted; empty for any. If there
	// are any, the packets inside must be IPv4.
	Inner []InnerSource
	// Transit are UDP ports of VXLAN packets that this node forwards. Packets for one of Ends must
	// come from one of Ends, and arrive on the device that leads there. So no pod can send such
	// packets, neither with a forged source nor with its own, which the CNI may translate to the
	// node's.
	Transit []int
	Ends    []netip.Prefix // sorted; no network contains another
	// Unforwarded are networks to which this node forwards nothing.
	Unforwarded []netip.Prefix
	// Remote are networks whose packets must arrive on one of the devices In, if there are any, and
	// never reach the TCP ports Closed of this node.
	Remote []netip.Prefix // sorted; no network contains another
	In     []string
	Closed Range
	// Out are devices on which all packets must leave with a source in Own.
	Out []string
	Own []netip.Prefix // sorted; no network contains another
	// Seen is the fingerprint of a table that was observed, and empty in a plan. It is "damaged" if
	// rules, chains or sets were added or removed.
	Seen string
}

// InnerSource is a network from which a sender of VXLAN packets may send packets inside them.
type InnerSource struct {
	Outer netip.Addr   // source of the VXLAN packet
	Net   netip.Prefix // masked
}

// AntispoofPriority is the priority of the chains at the hooks "input" and "forward": before the
// chains of iptables, which have 0 ("filter").
const AntispoofPriority = -10

// Priorities of the chains at the other hooks of Antispoof: as early as possible, and with the
// source that a packet leaves with.
const (
	AntispoofInPriority  = -290 // after "raw" (-300), before connection tracking (-200)
	AntispoofOutPriority = 300  // after all source translation ("srcnat" is 100)
)

// DeviceAny ends the name of a device in Antispoof that stands for all devices with the prefix.
const DeviceAny = "*"

// The chains of Antispoof. Those without a hook are jumped to.
const (
	AntispoofInput   = "input"
	AntispoofVXLAN   = "vxlan"
	AntispoofForward = "forward"
	AntispoofTransit = "transit"
	AntispoofIn      = "prerouting"
	AntispoofOut     = "postrouting"
)

// AntispoofChains are all chains that an Antispoof may have.
var AntispoofChains = []string{AntispoofInput, AntispoofVXLAN, AntispoofForward, AntispoofTransit, AntispoofIn, AntispoofOut}

// AntispoofRule is a rule of Antispoof. It drops the packets that match, unless Jump is a chain.
type AntispoofRule struct {
	Chain   string
	Matches []Match
	Jump    string
}

// String returns the rule in the notation of nft.
func (r AntispoofRule) String() string {
	verdict := "drop"
	if r.Jump != "" {
		verdict = "jump " + r.Jump
	}
	var b strings.Builder
	for _, m := range r.Matches {
		b.WriteString(m.String() + " ")
	}
	return b.String() + verdict
}

// Match is a condition of an AntispoofRule. One of its fields is set.
type Match struct {
	DPort      int          // destination port of UDP
	TCPPorts   Range        // destination ports of TCP
	DAddr      netip.Prefix // network of the destination
	DAddrIn    string       // set of the destination
	SAddrIn    string       // set of the source
	SAddrNotIn string       // set without the source
	IIFNot     string       // name that the input device does not have
	OIF        string       // name of the output device
	WrongWay   bool         // the packet did not arrive on the device that leads to its source
	NotIPv4    bool         // the VXLAN packet contains no IPv4 packet
	NotInner   bool         // the source inside the VXLAN packet is not one of Inner
}

// Bits of the payload of UDP, after its header of 8 bytes and the VXLAN header of 8 bytes: the
// EtherType of the Ethernet frame inside, and the source address of the IPv4 packet in it.
const (
	InnerTypeOffset   = 8 + 8 + 12
	InnerSourceOffset = 8 + 8 + 14 + 12
)

// String returns the match in the notation of nft.
func (m Match) String() string {
	switch {
	case m.DPort != 0:
		return fmt.Sprintf("udp dport %d", m.DPort)
	case m.TCPPorts.Max != 0:
		return fmt.Sprintf("tcp dport %d-%d", m.TCPPorts.Min, m.TCPPorts.Max)
	case m.DAddr.IsValid():
		return fmt.Sprintf("ip daddr %v", m.DAddr)
	case m.DAddrIn != "":
		return "ip daddr @" + m.DAddrIn
	case m.SAddrIn != "":
		return "ip saddr @" + m.SAddrIn
	case m.SAddrNotIn != "":
		return "ip saddr != @" + m.SAddrNotIn
	case m.IIFNot != "":
		return fmt.Sprintf("iifname != %q", m.IIFNot)
	case m.OIF != "":
		return fmt.Sprintf("oifname %q", m.OIF)
	case m.WrongWay:
		return "fib saddr . iif oif missing"
	case m.NotIPv4:
		return fmt.Sprintf("@th,%d,16 != 0x0800", 8*InnerTypeOffset)
	}
	return fmt.Sprintf("ip saddr . @th,%d,32 != @%s", 8*InnerSourceOffset, AntispoofSetInner)
}

// The sets of Antispoof.
const (
	AntispoofSetInner  = "inner"
	AntispoofSetEnds   = "ends"
	AntispoofSetRemote = "remote"
	AntispoofSetOwn    = "own"
)

// Sets returns the sets of networks that have elements, in the order in which they are created.
func (a Antispoof) Sets() (sets []Set) {
	for _, s := range []Set{{AntispoofSetEnds, a.Ends}, {AntispoofSetRemote, a.Remote}, {AntispoofSetOwn, a.Own}} {
		if len(s.Members) > 0 {
			sets = append(sets, s)
		}
	}
	return sets
}

// Rules returns the rules, in order.
func (a Antispoof) Rules() (rules []AntispoofRule) {
	add := func(chain, jump string, ms ...Match) { rules = append(rules, AntispoofRule{chain, ms, jump}) }
	for _, p := range a.Ports {
		add(AntispoofInput, AntispoofVXLAN, Match{DPort: p})
	}
	if len(a.Ports) > 0 {
		add(AntispoofVXLAN, "", Match{WrongWay: true})
	}
	if len(a.Ports) > 0 && len(a.Inner) > 0 {
		add(AntispoofVXLAN, "", Match{NotIPv4: true})
		add(AntispoofVXLAN, "", Match{NotInner: true})
	}
	for _, n := range a.Unforwarded {
		add(AntispoofForward, "", Match{DAddr: n})
	}
	if len(a.Ends) > 0 {
		for _, p := range a.Transit {
			add(AntispoofForward, AntispoofTransit, Match{DPort: p}, Match{DAddrIn: AntispoofSetEnds})
		}
		add(AntispoofTransit, "", Match{SAddrNotIn: AntispoofSetEnds})
		add(AntispoofTransit, "", Match{WrongWay: true})
	}
	if len(a.Remote) > 0 && a.Closed.Max != 0 {
		add(AntispoofInput, "", Match{TCPPorts: a.Closed}, Match{SAddrIn: AntispoofSetRemote})
	}
	if len(a.Remote) > 0 && len(a.In) > 0 {
		var ms []Match
		for _, d := range a.In {
			ms = append(ms, Match{IIFNot: d})
		}
		add(AntispoofIn, "", append(ms, Match{SAddrIn: AntispoofSetRemote})...)
	}
	if len(a.Own) > 0 {
		for _, d := range a.Out {
			add(AntispoofOut, "", Match{OIF: d}, Match{SAddrNotIn: AntispoofSetOwn})
		}
	}
	return rules
}

// Fingerprint returns 16 hexadecimal digits of the SHA-256 of the rules, without the elements of
// sets.
func (a Antispoof) Fingerprint() string {
	if a.Seen != "" {
		return a.Seen
	}
	h := sha256.New()
	for _, r := range a.Rules() {
		fmt.Fprintf(h, "%s %v\n", r.Chain, r)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// Key implements Object.
func (a Antispoof) Key() Key { return Key{KindAntispoof, a.Table} }

// Needs implements Object.
func (Antispoof) Needs() []Key { return nil }

// Equal implements Object.
func (a Antispoof) Equal(o Object) bool {
	other, ok := o.(Antispoof)
	return ok && a.Table == other.Table && a.Fingerprint() == other.Fingerprint() && slices.Equal(a.Inner, other.Inner) &&
		slices.Equal(a.Ends, other.Ends) && slices.Equal(a.Remote, other.Remote) && slices.Equal(a.Own, other.Own)
}

// AntispoofHook returns the hook of a chain and its priority; an empty hook for a chain that is
// jumped to.
func AntispoofHook(chain string) (hook string, priority int) {
	switch chain {
	case AntispoofVXLAN, AntispoofTransit:
		return "", 0
	case AntispoofIn:
		return chain, AntispoofInPriority
	case AntispoofOut:
		return chain, AntispoofOutPriority
	}
	return chain, AntispoofPriority
}

// Chains returns the names of the chains that have rules, in order of their first rules; a chain
// that is jumped to comes first.
func (a Antispoof) Chains() (names []string) {
	for _, r := range a.Rules() {
		for _, name := range []string{r.Jump, r.Chain} {
			if name != "" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// String implements Object.
func (a Antispoof) String() string {
	lines := []string{"nft add table ip " + a.Table}
	if len(a.Inner) > 0 {
		lines = append(lines, fmt.Sprintf("nft 'add set ip %s %s { type ipv4_addr . ipv4_addr; flags interval; }'", a.Table, AntispoofSetInner))
		for _, s := range a.Inner {
			lines = append(lines, fmt.Sprintf("nft 'add element ip %s %s { %v . %v }'", a.Table, AntispoofSetInner, s.Outer, s.Net))
		}
	}
	for _, s := range a.Sets() {
		lines = append(lines, fmt.Sprintf("nft 'add set ip %s %s { type ipv4_addr; flags interval; }'", a.Table, s.Name))
		for _, n := range s.Members {
			lines = append(lines, fmt.Sprintf("nft 'add element ip %s %s { %v }'", a.Table, s.Name, n))
		}
	}
	for _, name := range a.Chains() {
		line := fmt.Sprintf("nft add chain ip %s %s", a.Table, name)
		if hook, priority := AntispoofHook(name); hook != "" {
			line = fmt.Sprintf("nft 'add chain ip %s %s { type filter hook %s priority %d; }'", a.Table, name, hook, priority)
		}
		lines = append(lines, line)
	}
	for _, r := range a.Rules() {
		lines = append(lines, fmt.Sprintf("nft 'add rule ip %s %s %v'", a.Table, r.Chain, r))
	}
	return strings.Join(lines, "\n")
}

// Compare orders InnerSources by Outer, then by Net.
func (s InnerSource) Compare(other InnerSource) int {
	if c := s.Outer.Compare(other.Outer); c != 0 {
		return c
	}
	return s.Net.Compare(other.Net)
}
