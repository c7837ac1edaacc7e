package dataplane

import (
	"fmt"
	"net"
	"net/netip"
)

// Match is a condition of an AntispoofRule. One of its fields is set.
type Match struct {
	UDP         bool
	DPort       int          // destination port of UDP
	TCPPorts    Range        // destination ports of TCP
	OpensNot    bool         // the TCP packet opens no connection: it is no SYN without ACK
	Pong        bool         // the answer to a ping
	Reply       bool         // it answers the first packet of its connection
	Translated  bool         // the destination of its connection has been translated here
	Unasked     bool         // connection tracking knows no packet that this one answers
	DAddr       netip.Prefix // network of the destination
	DAddrIn     string       // set of the destination
	DAddrNot    netip.Prefix // network without the destination
	DAddrNotIn  string       // set without the destination
	SAddr       netip.Prefix // network of the source
	SAddrNot    netip.Prefix // network without the source
	SAddrIn     string       // set of the source
	SAddrNotIn  string       // set without the source
	IIF         string       // name of the input device
	IIFNot      string       // name that the input device does not have
	OIF         string       // name of the output device
	SameIn      string       // set of the source and the destination, together
	KnownWay    bool         // the device on which the packet arrived is remembered for its source
	WrongWay    bool         // the packet did not arrive on the device that leads to its source
	NotIPv4     bool         // the VXLAN packet contains no IPv4 packet
	NexthopIn   string       // set of the next hop
	MaskedBits  int          // the source is in one of the networks of Remote with so many bits
	InnerFrom   netip.Addr   // the source inside the VXLAN packet
	InnerNot    netip.Prefix // network without the source inside the VXLAN packet
	InnerNotIn  string       // set without the source inside the VXLAN packet
	InnerToIn   string       // set of the destination inside the VXLAN packet
	InnerSameIn string       // set of the source and the destination inside the VXLAN packet, together
	// destination port of a UDP packet inside the VXLAN packet, without IP options, not cut into
	// fragments
	InnerPort int
	// the source inside the VXLAN packet is in a network with so many bits, and its sender and way
	// are remembered
	KnownBits int
	InnerBits int // the source inside the VXLAN packet is in one of the networks of Inner with so many bits

	ICMP      bool  // any ICMP packet
	ICMPTypes Range // type of ICMP
	// the destination inside the ICMP error is in a network of Behind with so many bits, of the
	// cluster that is the priority of the packet
	ErrorBits int

	Rest bool // the packet is a fragment, and not the first one
	// the source is in one of the networks of Inner with so many bits, of the sender that is the
	// priority of the packet
	SenderBits int
	SenderIn   string // set of the sender that is the priority of the packet
	// the destination inside the ICMP error is in one of the networks of Inner with so many bits,
	// of the sender that is the priority of the packet
	SenderErrorBits int
	ErrorTo         netip.Addr // the destination inside the ICMP error
}

// Bits of the payload of UDP, after its header of 8 bytes and the VXLAN header of 8 bytes: the
// EtherType of the Ethernet frame inside, and of the IPv4 packet in it, fields of the header and
// the destination port of UDP.
const (
	InnerTypeOffset        = 8 + 8 + 12
	InnerHeaderOffset      = 8 + 8 + 14 // version and length of the header
	InnerFragmentOffset    = InnerHeaderOffset + 6
	InnerProtocolOffset    = InnerHeaderOffset + 9
	InnerSourceOffset      = InnerHeaderOffset + 12
	InnerDestinationOffset = InnerHeaderOffset + 16
	InnerPortOffset        = InnerHeaderOffset + 20 + 2
)

// String returns the match in the notation of nft.
func (m Match) String() string {
	switch {
	case m.ICMP:
		return "ip protocol icmp"
	case m.ICMPTypes.Max != 0:
		return fmt.Sprintf("icmp type %d-%d", m.ICMPTypes.Min, m.ICMPTypes.Max)
	case m.ErrorBits != 0:
		return fmt.Sprintf("meta priority . @th,%d,32 & %[2]v . %[2]v @%s", 8*ErrorDestination, NetMask(m.ErrorBits),
			AntispoofSetBehind)
	case m.Rest:
		return "ip frag-off & 0x1fff != 0"
	case m.SenderBits != 0:
		return fmt.Sprintf("meta priority . ip saddr & %[1]v . %[1]v @%[2]s", NetMask(m.SenderBits), AntispoofSetInner)
	case m.SenderIn != "":
		return "meta priority @" + m.SenderIn
	case m.SenderErrorBits != 0:
		return fmt.Sprintf("meta priority . @th,%d,32 & %[2]v . %[2]v @%s", 8*ErrorDestination,
			NetMask(m.SenderErrorBits), AntispoofSetInner)
	case m.ErrorTo.IsValid():
		return fmt.Sprintf("@th,%d,32 == %#x", 8*ErrorDestination, m.ErrorTo.AsSlice())
	case m.UDP:
		return "ip protocol udp"
	case m.DPort != 0:
		return fmt.Sprintf("udp dport %d", m.DPort)
	case m.TCPPorts.Max != 0:
		return fmt.Sprintf("tcp dport %d-%d", m.TCPPorts.Min, m.TCPPorts.Max)
	case m.OpensNot:
		return "tcp flags & (syn | ack) != syn"
	case m.Pong:
		return "icmp type echo-reply"
	case m.Reply:
		return "ct direction reply"
	case m.Translated:
		return "ct status dnat"
	case m.Unasked:
		return "ct state invalid"
	case m.DAddr.IsValid():
		return fmt.Sprintf("ip daddr %v", m.DAddr)
	case m.DAddrIn != "":
		return "ip daddr @" + m.DAddrIn
	case m.DAddrNot.IsValid():
		return fmt.Sprintf("ip daddr != %v", m.DAddrNot)
	case m.DAddrNotIn != "":
		return "ip daddr != @" + m.DAddrNotIn
	case m.SAddr.IsValid():
		return fmt.Sprintf("ip saddr %v", m.SAddr)
	case m.SAddrNot.IsValid():
		return fmt.Sprintf("ip saddr != %v", m.SAddrNot)
	case m.SAddrIn != "":
		return "ip saddr @" + m.SAddrIn
	case m.SAddrNotIn != "":
		return "ip saddr != @" + m.SAddrNotIn
	case m.SameIn != "":
		return "ip saddr . ip daddr @" + m.SameIn
	case m.MaskedBits != 0:
		return fmt.Sprintf("ip saddr & %[1]v . %[1]v @%[2]s", NetMask(m.MaskedBits), AntispoofSetMasked)
	case m.IIF != "":
		return fmt.Sprintf("iifname %q", m.IIF)
	case m.IIFNot != "":
		return fmt.Sprintf("iifname != %q", m.IIFNot)
	case m.OIF != "":
		return fmt.Sprintf("oifname %q", m.OIF)
	case m.KnownWay:
		return "ip saddr . iif @" + AntispoofSetWays
	case m.WrongWay:
		return "fib saddr . iif oif missing"
	case m.NexthopIn != "":
		return "rt ip nexthop @" + m.NexthopIn
	case m.InnerFrom.IsValid():
		return fmt.Sprintf("@th,%d,32 == %#x", 8*InnerSourceOffset, m.InnerFrom.AsSlice())
	case m.InnerNot.IsValid():
		return inner(InnerSourceOffset, "!=", m.InnerNot)
	case m.InnerNotIn != "":
		return fmt.Sprintf("@th,%d,32 != @%s", 8*InnerSourceOffset, m.InnerNotIn)
	case m.InnerToIn != "":
		return fmt.Sprintf("@th,%d,32 @%s", 8*InnerDestinationOffset, m.InnerToIn)
	case m.InnerSameIn != "":
		return fmt.Sprintf("@th,%d,32 . @th,%d,32 @%s", 8*InnerSourceOffset, 8*InnerDestinationOffset, m.InnerSameIn)
	case m.InnerPort != 0:
		return fmt.Sprintf("@th,%d,8 0x45 @th,%d,16 & 0x3fff == 0 @th,%d,8 17 @th,%d,16 %d",
			8*InnerHeaderOffset, 8*InnerFragmentOffset, 8*InnerProtocolOffset, 8*InnerPortOffset, m.InnerPort)
	case m.KnownBits != 0:
		return fmt.Sprintf("%s @%s", known(m.KnownBits), AntispoofSetKnown)
	case m.NotIPv4:
		return fmt.Sprintf("@th,%d,16 != 0x0800", 8*InnerTypeOffset)
	}
	return fmt.Sprintf("ip saddr . @th,%d,32 & %[2]v . %[2]v @%s", 8*InnerSourceOffset, NetMask(m.InnerBits),
		AntispoofSetInner)
}

// known returns the key of the set "known" for a mask with so many bits.
func known(bits int) string {
	return fmt.Sprintf("ip saddr . iif . @th,%d,32 & %[2]v . %[2]v", 8*InnerSourceOffset, NetMask(bits))
}

// inner returns the comparison of an address inside a VXLAN packet, at an offset, with a network:
// of the bytes that count, if the network ends at one.
func inner(offset int, op string, n netip.Prefix) string {
	if n.Bits()%8 == 0 && n.Bits() > 0 {
		return fmt.Sprintf("@th,%d,%d %s %#x", 8*offset, n.Bits(), op, n.Addr().AsSlice()[:n.Bits()/8])
	}
	return fmt.Sprintf("@th,%d,32 & %v %s %#x", 8*offset, NetMask(n.Bits()), op, n.Addr().AsSlice())
}

// NetMask returns the mask of an IPv4 network with so many bits; the zero Addr if there is none.
// The zero InnerSource, for one, has none, which may be printed.
func NetMask(bits int) netip.Addr {
	mask, _ := netip.AddrFromSlice(net.CIDRMask(bits, 32))
	return mask
}
