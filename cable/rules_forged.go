package cable

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"subctl/dataplane"
)

// remembered is the time for which the sets "known-paths" and "known16" contain the device on which
// the packets of a sender arrive. A lookup in a set is several times faster than a lookup of the
// route to the sender, which evaluates all routing rules of the node. If the route changes to
// another device, packets on the old device are accepted for this time.
//
// Sets to which packets add elements have no size. The default of the kernel is 65535
// (nft_dynset_init in net/netfilter/nft_dynset.c), more than the senders that a node can have. For
// a set with a size, the kernel allocates a hash table of 1 MiB at once, and scans it every second
// for expired elements.
const remembered = 10 * time.Second

// EchoRate is the maximum number of echoes, and of answers to pings, that each node or gateway may
// send back to this node in a second: more than this node sends. All packets that come back share
// the buffer of one socket. Without a limit for each sender, one member could displace the echoes
// of other gateways, which would then seem to be down. echoSenders is the time for which the kernel
// counts for a sender.
const (
	EchoRate    = 500
	echoSenders = time.Minute
)

// Priorities of the chains. At the hooks "input", "forward" and "output" they come before the
// chains of iptables, whose priority is 0 ("filter").
const (
	antispoofPriority = -10
	inPriority        = -290 // after "raw" (-300), before connection tracking (-200)
	outPriority       = 300  // after all source translation ("srcnat" is 100): the source is final
	decapPriority     = -450 // before defragmentation (-400): each fragment has its own sender
)

// Fields of the packet inside a VXLAN packet, in bits from the beginning of the outer UDP header:
// the UDP header has 8 bytes, the VXLAN header 8, and the Ethernet header 14. nft(8) 1.0.6 has no
// names for these fields, and treats them as numbers.
const (
	insideType        = "@th,224,16" // EtherType
	insideHeader      = "@th,240,8"  // version and length of the IPv4 header
	insideFragment    = "@th,288,16"
	insideProtocol    = "@th,312,8"
	insideSource      = "@th,336,32"
	insideDestination = "@th,368,32"
	insidePort        = "@th,416,16" // destination port of UDP, if the header has no options
)

// errorDestination is the destination of the packet inside an ICMP error, in bits from the
// beginning of the ICMP header, which has 8 bytes (RFC 792).
const errorDestination = "@th,192,32"

// The source and the destination of a packet as numbers. Sets that also contain addresses of
// packets inside VXLAN packets need this notation.
const (
	sourceNumber      = "@nh,96,32"
	destinationNumber = "@nh,128,32"
)

// number returns an IPv4 address as a number in the notation of nft(8).
func number(ip netip.Addr) string { return fmt.Sprintf("%#x", ip.AsSlice()) }

// class returns an IPv4 address as a packet priority in the notation of nft(8): two hexadecimal
// numbers.
func class(ip netip.Addr) string {
	b := ip.As4()
	return fmt.Sprintf("%x:%x", int(b[0])<<8|int(b[1]), int(b[2])<<8|int(b[3]))
}

// masked returns a numeric expression, limited to the bits of a mask.
func masked(key string, bits int) string {
	if bits == 32 {
		return key
	}
	return fmt.Sprintf("%s & %#x", key, uint32(0xffffffff)<<(32-bits))
}

// inNetwork compares a 32-bit field of a packet with a network. If the mask ends at a byte, the
// rule loads only the bytes of the mask.
func inNetwork(key, op string, n netip.Prefix) string {
	if n.Bits()%8 == 0 && n.Bits() > 0 {
		key = strings.TrimSuffix(key, "32") + fmt.Sprint(n.Bits())
		return fmt.Sprintf("%s %s %#x", key, op, n.Addr().AsSlice()[:n.Bits()/8])
	}
	return fmt.Sprintf("%s %s %s", masked(key, n.Bits()), op, number(n.Addr()))
}

// vxlanIn adds the rules for VXLAN packets to this node. They check the device on which the packet
// arrives and the source of the packet inside, and limit how many of this node's echoes a sender
// returns. The rules of decapsulated check the rest of the packet inside.
//
// The priority of the packet is set to the address of the sender, for the rules of decapsulated. It
// is reset first: a process on this machine may have set the priority of a packet without a known
// sender.
func (a Antispoof) vxlanIn(t *dataplane.Ruleset) {
	if len(a.VXLANPorts) == 0 {
		return
	}
	ends := ""
	if len(a.TunnelEndpoints) > 0 { // only for known senders, so that the set cannot fill up
		ends = "ip saddr @tunnel-endpoints "
	}
	var echoes []string
	for _, e := range a.Echoes {
		if e.Own.IsValid() && !a.checksInside() { // otherwise decapsulated limits them
			echoes = append(echoes, fmt.Sprintf("%s %s %s%s jump drop-source", insideSource, number(e.Own), ends,
				overEchoRate("echo-rates", "ip saddr")))
		}
	}
	to := "reverse-path"
	if len(a.InnerSources) > 0 || len(echoes) > 0 {
		to = "vxlan-in"
	}
	for _, p := range a.VXLANPorts {
		t.Add("input", "udp dport %d jump %s", p, to)
	}
	masks := a.innerMasks()
	if len(masks) > 0 {
		t.Add("vxlan-in", "%s != 0x0800 jump drop-source", insideType)
		t.Add("vxlan-in", "meta priority set 0:0")
		t.Add("vxlan-in", "meta priority set ip saddr map @senders")
	}
	key := func(bits int) string { return "ip saddr . iif . " + masked(insideSource, bits) }
	for _, bits := range masks {
		if bits < 32 { // single addresses are few
			t.Add("vxlan-in", "%s @known%d accept", key(bits), bits)
		}
	}
	for _, e := range echoes {
		t.Add("vxlan-in", "%s", e)
	}
	for _, bits := range masks {
		from := fromSender(insideSource, bits)
		if bits == 32 {
			t.Add("vxlan-in", "%s jump reverse-path", from)
			continue
		}
		t.Drop("vxlan-in", dataplane.DropForged, from+" fib saddr . iif oif missing")
		t.Add("vxlan-in", "%s add @known%d { %s }", from, bits, key(bits))
		t.Add("vxlan-in", "%s accept", from) // also if the set is full
	}
	switch {
	case len(masks) > 0:
		t.Add("vxlan-in", "jump drop-source")
	case len(echoes) > 0:
		t.Add("vxlan-in", "jump reverse-path")
	}
	t.Add("reverse-path", "ip saddr . iif @known-paths accept")
	t.Drop("reverse-path", dataplane.DropForged, "fib saddr . iif oif missing")
	t.Add("reverse-path", "%sadd @known-paths { ip saddr . iif }", ends)
	t.Add("reverse-path", "accept") // also if the set is full
}

// fromSender matches packets with an address that belongs to a network of their sender, if the mask
// of the network has this number of bits. The sender is the priority of the packet.
func fromSender(address string, bits int) string {
	return fmt.Sprintf("meta priority . %s @sources%d", masked(address, bits), bits)
}

// overEchoRate matches the packets of a sender that exceed EchoRate.
func overEchoRate(set, sender string) string {
	return fmt.Sprintf("update @%s { %s limit rate over %d/second burst %[3]d packets }", set, sender, EchoRate)
}

// errorTypes match ICMP errors (RFC 792), which contain the beginning of another packet:
// destination unreachable (3), source quench (4), redirect (5), time exceeded (11) and parameter
// problem (12). Connection tracking treats an error as part of the connection of the packet inside
// it.
var errorTypes = []string{"icmp type 3-5", "icmp type 11-12"}

// decapsulated adds the rules for packets that were inside VXLAN packets, when they arrive on a
// device of DecapDevices. A packet must have a destination in OwnNetworks and a source of its
// sender, and an ICMP error must be about a packet to its sender.
//
// The rules of vxlanIn check the source, too, but at "input" several VXLAN packets may look like
// one. If the sender uses segmentation (UDP_SEGMENT of udp(7)), datagrams of one size arrive as a
// single packet over veth and virtio. The rules at "input" then see only the first datagram, and
// the kernel splits the packet afterwards, before VXLAN removes the headers. No rule can
// distinguish such a packet from a long TCP segment: the length in the inner header is also chosen
// by the sender.
//
// The check in vxlanIn is necessary, too. The kernel merges segments of a TCP connection before
// "prerouting" (GRO) and keeps the priority of the first one. Without that check, one member could
// add a segment to a connection of another member.
//
// The sender is known here by the priority of the packet, which VXLAN preserves, and which the
// kernel does not use before it sets it in ip_forward (net/ipv4/ip_forward.c). A packet that did
// not pass the rules at "input" has no sender as its priority, and is dropped.
//
// For IPv6 see ipv6, for ARP see dataplane.Conf.ARPIgnore.
//
// The kernel of a remote gateway sends ICMP redirects about the echoes of this node, because it
// forwards them back on the same device. Such redirects are normal, so they are dropped without a
// reason that users see.
//
// The rules see fragments before defragmentation. Only the first fragment of an ICMP error contains
// the addresses.
func (a Antispoof) decapsulated(t *dataplane.Ruleset) {
	if !a.checksInside() || len(a.DecapDevices) == 0 {
		return
	}
	t.AddChain("decapsulated", "filter", "prerouting", decapPriority)
	t.Add("decapsulated", "%s accept", notOn("iifname", a.DecapDevices))
	t.Add("decapsulated", "ip protocol icmp jump decapsulated-icmp")
	t.Add("decapsulated-icmp", "ip frag-off & 0x1fff != 0 return")
	for _, types := range errorTypes {
		t.Add("decapsulated-icmp", "%s jump decapsulated-errors", types)
	}
	for _, e := range a.Echoes {
		if !e.Own.IsValid() {
			continue
		}
		t.Drop("decapsulated-errors", "", fmt.Sprintf("icmp type redirect %s %s", errorDestination, number(e.Own)))
		t.Add("decapsulated-errors", "%s %s jump drop-forged", errorDestination, number(e.Own))
		t.Add("decapsulated", "ip saddr %v jump only-own-echoes", e.Own)
		t.Add("only-own-echoes", "ip saddr %v %s jump drop-forged", e.Own, overEchoRate("echo-rates-inside", "meta priority"))
		t.Add("only-own-echoes", "ip saddr %v ip daddr %[1]v udp dport %d return", e.Own, e.Port)
	}
	if t.Chain("only-own-echoes") != nil {
		t.Add("only-own-echoes", "jump drop-forged")
	}
	for _, bits := range a.innerMasks() {
		t.Add("decapsulated-errors", "%s return", fromSender(errorDestination, bits))
	}
	t.Add("decapsulated-errors", "jump drop-forged")
	if len(a.OwnNetworks) > 0 {
		t.Add("decapsulated", "%s jump only-peer-echoes", a.notOwn("ip daddr"))
		for _, port := range a.echoPorts() {
			t.Add("only-peer-echoes", "%s . %s @echo-peers udp dport %d return", sourceNumber, destinationNumber, port)
		}
		t.Add("only-peer-echoes", "jump drop-forged")
	}
	for _, bits := range a.innerMasks() {
		t.Add("decapsulated", "%s accept", fromSender(sourceNumber, bits))
	}
	t.Add("decapsulated", "jump drop-forged")
}

// icmpErrors adds the rules for ICMP errors that arrive on Layer3Devices: the destination of the
// packet inside must belong to the cluster that sends the error. Otherwise a member could end
// connections between two other members, or lower their path MTU, because connection tracking finds
// the connection by the packet inside.
//
// The rules come before all translation, so both addresses are the same as in the cable. The
// priority of the packet temporarily identifies the cluster of its source, because nft(8) cannot
// list a rule that uses the result of one lookup as the key of another. The kernel sets the
// priority of forwarded packets later (ip_forward in net/ipv4/ip_forward.c), and ignores it for
// packets to the node itself.
func (a Antispoof) icmpErrors(t *dataplane.Ruleset) {
	if len(a.PeerNetworks) == 0 || len(a.Layer3Devices) == 0 {
		return
	}
	t.Add("prerouting", "ip protocol icmp jump any-icmp")
	for _, types := range errorTypes {
		t.Add("any-icmp", "%s jump icmp-errors", types)
	}
	t.Add("icmp-errors", "%s return", notOn("iifname", a.Layer3Devices))
	t.Add("icmp-errors", "meta priority set 0:0")
	t.Add("icmp-errors", "meta priority set ip saddr map @peers")
	nets := make([]netip.Prefix, len(a.PeerNetworks))
	for i, n := range a.PeerNetworks {
		nets[i] = n.Net
	}
	for _, bits := range masks(nets) {
		t.Add("icmp-errors", "meta priority . %s @peer-networks%d return", masked(errorDestination, bits), bits)
	}
	t.Add("icmp-errors", "jump drop-source")
}

// ownEchoes adds the rules for packets whose source is the own address of this node. Its own echoes
// are accepted, with another source: see Echo.Returned. Other such packets are dropped.
func (a Antispoof) ownEchoes(t *dataplane.Ruleset) {
	if a.checksInside() {
		return
	}
	for _, e := range a.Echoes {
		if !e.Own.IsValid() {
			continue
		}
		t.Add("prerouting", "ip saddr %v iifname %q jump own-echoes", e.Own, e.Dev)
		t.Add("own-echoes", "iifname %q udp dport %d ip daddr %v ip saddr set %v accept", e.Dev, e.Port, e.Own,
			e.Returned())
	}
	if t.Chain("own-echoes") != nil {
		t.Drop("own-echoes", dataplane.DropAnswer, "")
	}
}

// passEchoes adds an exception for the echoes of EchoPeers to a chain that drops packets. keys are
// "iifname", "oifname" or both.
func (a Antispoof) passEchoes(t *dataplane.Ruleset, chain string, keys ...string) {
	for _, e := range a.Echoes {
		var on []string
		for _, key := range keys {
			on = append(on, fmt.Sprintf("%s %q", key, e.Dev))
		}
		match := fmt.Sprintf("%s udp dport %d", strings.Join(on, " "), e.Port)
		switch {
		case !e.Own.IsValid():
			t.Add(chain, "%s accept", match)
		case len(a.EchoPeers) > 0:
			t.Add(chain, "%s ip daddr %v %s . %s @echo-peers accept", match, e.Net(), sourceNumber, destinationNumber)
		}
	}
}

// echoPorts returns the ports of the echoes of EchoPeers. It is nil if EchoPeers is empty.
func (a Antispoof) echoPorts() (ports []int) {
	for _, e := range a.Echoes {
		if e.Own.IsValid() && len(a.EchoPeers) > 0 && !slices.Contains(ports, e.Port) {
			ports = append(ports, e.Port)
		}
	}
	return ports
}

// echoReplies adds the rules that drop answers to pings that the node did not send. All answers
// share the buffer of the agent's socket, so a flood from one cluster would displace the answers of
// the others.
func (a Antispoof) echoReplies(t *dataplane.Ruleset) {
	if len(a.PingDevices) == 0 {
		return
	}
	t.Add("input", "icmp type echo-reply jump echo-replies")
	t.Drop("echo-replies", dataplane.DropAnswer, "ct state invalid")
	if len(a.DeviceNetworks) > 0 {
		others := notOn("iifname", append([]string{"lo"}, a.PingDevices...))
		t.Drop("echo-replies", dataplane.DropAnswer, fmt.Sprintf("%s%s", around("ip saddr", a.DeviceNetworks), others))
	}
	t.Drop("echo-replies", dataplane.DropAnswer, overEchoRate("echo-rates", "ip saddr"))
}

// innerMasks returns the numbers of mask bits in InnerSources, sorted. Pods, which send most
// packets, are in the widest networks.
func (a Antispoof) innerMasks() []int {
	nets := make([]netip.Prefix, len(a.InnerSources))
	for i, s := range a.InnerSources {
		nets[i] = s.Net
	}
	return masks(nets)
}

// masks returns the numbers of mask bits of networks, sorted, each once.
func masks(nets []netip.Prefix) (out []int) {
	var has [33]bool
	for _, n := range nets {
		has[max(0, n.Bits())] = true
	}
	for bits, has := range has {
		if has {
			out = append(out, bits)
		}
	}
	return out
}
