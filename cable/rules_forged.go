package cable

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"subctl/dataplane"
)

// Antispoof is what decides about forged packets and about packets between clusters: see Tables. A
// rule exists only if the fields that it refers to are not empty. All lists that grow with the
// number of clusters or nodes are sets, so the cost of a packet does not grow with them. A name of
// a device that ends in dataplane.DeviceAny stands for all devices with the prefix.
//
// The rules about forged packets are in this file, those that keep clusters apart in
// rules_isolation.go.
type Antispoof struct {
	Table string
	// Ports are UDP ports of VXLAN packets for this node. Such packets must arrive on the device
	// that leads to their source. A device that did is remembered for remembered.
	Ports []int
	// Inner are the accepted sources inside the packets for Ports, sorted; empty for any. If there
	// are any, the packets inside must be IPv4.
	Inner []InnerSource
	// Inside are the devices on which the packets inside arrive. These are checked once more there,
	// one by one: what passes as one VXLAN packet may be several, see arriving. IPv6 packets on
	// these devices are dropped.
	Inside []string
	// Transit are UDP ports of VXLAN packets that this node forwards. Packets for one of Ends must
	// come from one of Ends, and arrive on the device that leads there. So no pod can send such
	// packets, neither with a forged source nor with its own, which the CNI may translate to the
	// node's.
	Transit []int
	Ends    []netip.Prefix // no network contains another
	// Unforwarded are networks to which this node forwards nothing.
	Unforwarded []netip.Prefix
	// Remote are networks whose packets to Protected must arrive on one of the devices In, if there
	// are any. Neither they nor Unforwarded reach the TCP ports Closed of this node, and nothing
	// that arrives on the devices ClosedOn does, except answers to connections that the node has
	// opened from these ports.
	Remote []netip.Prefix // sorted; no network contains another
	In     []string
	// Protected are the networks of this cluster that other clusters reach through cables only; no
	// network contains another. If there are none, it is all addresses.
	Protected []netip.Prefix
	// Usual are the devices among In on which such packets usually arrive.
	Usual    []string
	Closed   dataplane.Range
	ClosedOn []string
	// Out are devices on which all packets must leave with a source in Own, and arrive with a
	// destination in Own. So must the packets inside VXLAN packets that this node sends to Ports,
	// or that arrive for them: their devices are not among Out.
	Out []string
	Own []netip.Prefix // sorted; no network contains another
	// Behind are the networks of other clusters behind the devices Out; none contains another. An
	// ICMP error that arrives on one of these devices is about a packet to the cluster that sends
	// it.
	Behind []PeerNet
	// Usually are the networks of this cluster that most packets are from and for.
	Usually []netip.Prefix
	// Apart are devices between which nothing is forwarded. Where there is a Local, no connection
	// is forwarded to them except from its networks: kube-proxy would otherwise send packets of
	// others there, and translate their source later. A connection whose destination has been
	// translated here is one that the cluster offers, such as a node port: it is forwarded with any
	// source except those of other clusters, unless it comes from another node of this cluster, on
	// a device of Nodes. The rules about sources give it one in Local.
	Apart []string
	Local []netip.Prefix
	Nodes []string
	// Global are networks to which nothing that arrives on a device of Apart or Between is
	// forwarded: Globalnet has not translated it. Answers are forwarded from Apart to Between:
	// another gateway of this cluster, whose device that is, has translated the connection.
	Global  []netip.Prefix
	Between []string
	// Siblings are devices on which other gateways of this cluster send packets. What arrives on
	// them from Remote is not forwarded to the devices Cables.
	Siblings, Cables []string
	// Pongs are the devices on which the nodes and gateways that this node pings answer, with
	// addresses in Unforwarded; if there are any, only answers that the node has asked for reach
	// it, on these devices, and of each sender no more than EchoRate.
	Pongs []string
	// Clusters are the networks and addresses of other clusters; none contains another. Packets
	// that are dropped because of Inner, Out or Apart are counted for them. When a network is
	// added, is removed or passes to another cluster, its conntrack entries are deleted: see
	// dataplane.Ruleset.Ended.
	Clusters []dataplane.ClusterNet
	// Echoes are the devices with echoes, and Echoing the addresses on them of the nodes whose
	// echoes this node forwards back.
	Echoes  []Echo
	Echoing []netip.Addr
}

// InnerSource is a network from which a sender of VXLAN packets may send packets inside them.
type InnerSource struct {
	Outer netip.Addr   // source of the VXLAN packet
	Net   netip.Prefix // masked
}

// Compare orders InnerSources by Outer, then by Net.
func (s InnerSource) Compare(other InnerSource) int {
	if c := s.Outer.Compare(other.Outer); c != 0 {
		return c
	}
	return s.Net.Compare(other.Net)
}

// PeerNet is a network of another cluster, and an address that stands for the cluster: the same one
// for all its networks.
type PeerNet struct {
	Net  netip.Prefix // masked
	Peer netip.Addr
}

// Echo is a device on which nodes send each other echoes: datagrams that the other node's kernel
// forwards back. Source and destination are the sender's own address on the device, and the
// Ethernet frame is for the other node.
type Echo struct {
	Dev  string
	Port int // UDP port of the destination
	// Own is the node's own address on the device; the zero Addr if the table of another owner has
	// it, and decides whose echoes are forwarded.
	Own netip.Addr
}

// Returned returns the source that an echo gets when it has come back. The kernel accepts no packet
// from another node that has an address of its own as source.
func (e Echo) Returned() netip.Addr {
	return netip.AddrFrom4([4]byte{e.Own.As4()[0], 255, 255, 254})
}

// Net returns the network of the addresses on the device.
func (e Echo) Net() netip.Prefix { return netip.PrefixFrom(e.Own, 8).Masked() }

// remembered is the time for which the kernel remembers, in the sets "ways" and "known", on which
// device the packets of a sender arrive. To look up the route to the sender takes several times as
// long as to look into the set, as it evaluates all routing rules of the node. If the route changes
// to another device, packets on the old device are accepted for this time.
//
// Sets to which packets add elements have no size: the kernel's own is 65535 (nft_dynset_init in
// net/netfilter/nft_dynset.c), more than the senders that a node can have. With a size, a set has a
// hash table for so many elements from the beginning, of 1 MiB, which the kernel goes through every
// second for elements that have expired.
const remembered = 10 * time.Second

// EchoRate is the maximum number of this node's echoes that each node or gateway may send back in a
// second, and of its answers to this node's pings: more than are sent to it. All packets that come
// back share the buffer of a socket. Without a limit for each sender, a member could displace the
// echoes from others, whose gateways would then seem to be down. echoSenders is the time for which
// the kernel remembers the senders.
const (
	EchoRate    = 500
	echoSenders = time.Minute
)

// Priorities of the chains: at the hooks "input", "forward" and "output" before the chains of
// iptables, which have 0 ("filter"); at the others as early as possible, and with the source that a
// packet leaves with.
const (
	antispoofPriority = -10
	inPriority        = -290 // after "raw" (-300), before connection tracking (-200)
	outPriority       = 300  // after all source translation ("srcnat" is 100)
	arrivingPriority  = -450 // before fragments are put together (-400): each has its own sender
)

// Parts of the packet inside a VXLAN packet, for rules that see the VXLAN packet, as bits after the
// beginning of the UDP header: this has 8 bytes, the VXLAN header 8, and the Ethernet header 14.
// nft(8) 1.0.6 has no names for them, and takes them for numbers.
const (
	insideType        = "@th,224,16" // EtherType
	insideHeader      = "@th,240,8"  // version and length of the IPv4 header
	insideFragment    = "@th,288,16"
	insideProtocol    = "@th,312,8"
	insideSource      = "@th,336,32"
	insideDestination = "@th,368,32"
	insidePort        = "@th,416,16" // destination port of UDP, if the header has no options
)

// errorDestination is the destination of the packet inside an ICMP error, as bits after the
// beginning of the ICMP header, which has 8 bytes (RFC 792).
const errorDestination = "@th,192,32"

// The source and the destination of a packet as numbers, for sets that also have the addresses of
// packets inside.
const (
	sourceNumber      = "@nh,96,32"
	destinationNumber = "@nh,128,32"
)

// number returns an IPv4 address as a number in the notation of nft(8).
func number(ip netip.Addr) string { return fmt.Sprintf("%#x", ip.AsSlice()) }

// class returns an IPv4 address as a priority in the notation of nft(8): two hexadecimal numbers.
func class(ip netip.Addr) string {
	b := ip.As4()
	return fmt.Sprintf("%x:%x", int(b[0])<<8|int(b[1]), int(b[2])<<8|int(b[3]))
}

// masked returns an expression that is a number, without the bits beyond a mask.
func masked(key string, bits int) string {
	if bits == 32 {
		return key
	}
	return fmt.Sprintf("%s & %#x", key, uint32(0xffffffff)<<(32-bits))
}

// inNetwork compares an expression that is a number of 32 bits in a packet with a network: the
// bytes that count, if the network ends at one.
func inNetwork(key, op string, n netip.Prefix) string {
	if n.Bits()%8 == 0 && n.Bits() > 0 {
		key = strings.TrimSuffix(key, "32") + fmt.Sprint(n.Bits())
		return fmt.Sprintf("%s %s %#x", key, op, n.Addr().AsSlice()[:n.Bits()/8])
	}
	return fmt.Sprintf("%s %s %s", masked(key, n.Bits()), op, number(n.Addr()))
}

// Tables returns the tables: of family ip, and of ip6 if there are devices Inside. All packets of
// the node pass the chains with hooks, so these have few rules, and those for most packets come
// first.
func (a Antispoof) Tables() []dataplane.Ruleset {
	t := dataplane.Ruleset{Family: "ip", Table: a.Table}
	a.returned(&t)
	a.isolation(&t)
	a.errors(&t)
	a.vxlan(&t)
	a.arriving(&t)
	a.unforwarded(&t)
	a.transit(&t)
	a.closed(&t)
	a.pongs(&t)
	a.foreign(&t)
	a.counting(&t)
	for name, priority := range map[string]int{
		"prerouting": inPriority, "input": antispoofPriority, "forward": antispoofPriority,
		"output": antispoofPriority, "postrouting": outPriority,
	} {
		if t.Chain(name) != nil {
			t.AddChain(name, "filter", name, priority)
		}
	}
	a.sets(&t)
	t.Ends = dataplane.ClusterConnections{
		Clusters: "clusters", Gateways: "senders", Announced: slices.Concat(a.Protected, a.Local),
	}
	if !a.checksInside() || len(a.Inside) == 0 {
		return []dataplane.Ruleset{t}
	}
	return []dataplane.Ruleset{t, a.ipv6(t.Key())}
}

// ipv6 returns the table that drops IPv6 packets, which cables do not carry, on the devices Inside:
// what a sender has hidden in a VXLAN packet.
func (a Antispoof) ipv6(guard dataplane.Key) dataplane.Ruleset {
	t := dataplane.Ruleset{Family: "ip6", Table: a.Table, Guard: guard}
	t.AddChain("arriving-ipv6", "filter", "prerouting", arrivingPriority)
	for _, d := range a.Inside {
		t.Drop("arriving-ipv6", dataplane.DropIPv6, fmt.Sprintf("iifname %q", d))
	}
	return t
}

// sets adds the sets whose elements a plan knows, and those to which the rules add elements.
//
// A sender of VXLAN packets accompanies the packets inside as their priority: see arriving. The map
// "senders" has the priority for each sender: its address. For each mask in use, such as of 16
// bits, "from16" has the senders with the networks of the sources inside. The kernel hashes them,
// which takes less time, for packets and for changes, than a set of intervals. "known16" has, for
// remembered, the senders of VXLAN packets, the devices on which these arrived, and the networks of
// the sources inside: one lookup instead of one in "from16" and one in "ways". When a network
// leaves, the set is emptied.
//
// "peers" has the priority that stands for the cluster of each network of Behind, and "behind16"
// the networks again, with it. If Remote has few masks, its networks are in "remote16" and the
// like, and else in "remote". The elements of "echo" are an address twice: rules cannot compare
// source and destination. Each element of "clusters" has a counter; "forged" counts for senders.
func (a Antispoof) sets(t *dataplane.Ruleset) {
	const interval = "interval"
	networks := func(name string, nets []netip.Prefix) {
		t.AddSet(dataplane.RuleSet{
			Name: name, Type: "ipv4_addr", Flags: interval, Elements: dataplane.Networks(nets),
		})
	}
	remote, _ := a.remoteSets()
	networks("ends", a.Ends)
	networks("own", a.Own)
	networks("remote", remote)
	for bits, nets := range a.remoteByMask() {
		var elements []string
		for _, n := range nets {
			elements = append(elements, n.Addr().String())
		}
		t.AddSet(dataplane.RuleSet{Name: fmt.Sprint("remote", bits), Type: "ipv4_addr", Elements: elements})
	}
	a.senderSets(t)
	var peers []string
	behind := map[int][]string{}
	for _, n := range a.Behind {
		peers = append(peers, fmt.Sprintf("%v : %s", n.Net, class(n.Peer)))
		behind[n.Net.Bits()] = append(behind[n.Net.Bits()], class(n.Peer)+" . "+number(n.Net.Addr()))
	}
	t.AddSet(dataplane.RuleSet{Name: "peers", Type: "ipv4_addr : classid", Flags: interval, Elements: peers})
	for bits, elements := range behind {
		t.AddSet(prioritySet(fmt.Sprint("behind", bits), elements))
	}
	var echo []string
	for _, ip := range a.Echoing {
		echo = append(echo, number(ip)+" . "+number(ip))
	}
	t.AddSet(dataplane.RuleSet{
		Name: "echo", Type: "integer . integer", Typeof: sourceNumber + " . " + destinationNumber, Elements: echo,
	})
	clusters := make([]string, len(a.Clusters))
	for i, n := range a.Clusters {
		clusters[i] = n.Element()
	}
	t.AddSet(dataplane.RuleSet{
		Name: "clusters", Type: "ipv4_addr", Flags: interval, Counter: true, Elements: clusters,
	})
	for name, s := range map[string]dataplane.RuleSet{
		"ways":          {Typeof: "ip saddr . iif", Timeout: remembered},
		"echoes":        {Type: "ipv4_addr", Timeout: echoSenders},
		"echoes-inside": {Type: "classid", Timeout: echoSenders},
		"forged":        {Type: "classid"},
	} {
		if !t.Mentions("@" + name + " {") {
			continue
		}
		s.Name = name
		s.Flags = "dynamic"
		if s.Timeout > 0 {
			s.Flags = "dynamic,timeout"
		}
		t.AddSet(s)
	}
}

// senderSets adds the sets of the senders of VXLAN packets.
func (a Antispoof) senderSets(t *dataplane.Ruleset) {
	var senders []string
	from := map[int][]string{}
	for i, s := range a.Inner {
		if i == 0 || a.Inner[i-1].Outer != s.Outer {
			senders = append(senders, s.Outer.String()+" : "+class(s.Outer))
		}
		from[s.Net.Bits()] = append(from[s.Net.Bits()], class(s.Outer)+" . "+number(s.Net.Addr()))
	}
	t.AddSet(dataplane.RuleSet{Name: "senders", Type: "ipv4_addr : classid", Elements: senders})
	for bits, elements := range from {
		name := fmt.Sprint("from", bits)
		t.AddSet(prioritySet(name, elements))
		if bits < 32 {
			t.AddSet(dataplane.RuleSet{
				Name: fmt.Sprint("known", bits), Typeof: "ip saddr . iif . " + sourceNumber,
				Flags: "dynamic,timeout", Timeout: remembered, Remembers: name,
			})
		}
	}
}

// prioritySet returns a set of priorities, each with a network.
func prioritySet(name string, elements []string) dataplane.RuleSet {
	return dataplane.RuleSet{
		Name: name, Type: "classid . integer", Typeof: "meta priority . " + sourceNumber, Elements: elements,
	}
}

// checksInside reports whether arriving checks the packets inside VXLAN packets, as other rules
// check what arrives on the devices of Out. Then it decides about echoes, too, and the devices of
// Echoes accept the node's own address as source.
func (a Antispoof) checksInside() bool { return len(a.Ports) > 0 && len(a.Inner) > 0 }

// vxlan adds the rules about the packets of VXLAN that arrive on Ports: the device on which they
// arrive, and the source inside. arriving is about the rest of what they contain. The own echoes of
// this node that each sender sends back are limited.
//
// The sender becomes the priority of the packet. What it was before, a process on the same machine
// may have set: a packet of no sender must not have one.
func (a Antispoof) vxlan(t *dataplane.Ruleset) {
	if len(a.Ports) == 0 {
		return
	}
	ends := ""
	if len(a.Ends) > 0 { // only senders that are known: there is room for so many
		ends = "ip saddr @ends "
	}
	var echoes []string
	for _, e := range a.Echoes {
		if e.Own.IsValid() && !a.checksInside() { // or arriving limits them
			echoes = append(echoes, fmt.Sprintf("%s %s %s%s jump drop-source", insideSource, number(e.Own), ends,
				overEchoRate("echoes", "ip saddr")))
		}
	}
	to := "way"
	if len(a.Inner) > 0 || len(echoes) > 0 {
		to = "vxlan-in"
	}
	for _, p := range a.Ports {
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
			t.Add("vxlan-in", "%s jump way", from)
			continue
		}
		t.Drop("vxlan-in", dataplane.DropForged, from+" fib saddr . iif oif missing")
		t.Add("vxlan-in", "%s add @known%d { %s }", from, bits, key(bits))
		t.Add("vxlan-in", "%s accept", from) // whether it was remembered or not
	}
	switch {
	case len(masks) > 0:
		t.Add("vxlan-in", "jump drop-source")
	case len(echoes) > 0:
		t.Add("vxlan-in", "jump way")
	}
	t.Add("way", "ip saddr . iif @ways accept")
	t.Drop("way", dataplane.DropForged, "fib saddr . iif oif missing")
	t.Add("way", "%sadd @ways { ip saddr . iif }", ends)
	t.Add("way", "accept") // whether it was remembered or not
}

// fromSender matches packets whose sender, which is their priority, may send from an address: it is
// in a network with so many bits.
func fromSender(address string, bits int) string {
	return fmt.Sprintf("meta priority . %s @from%d", masked(address, bits), bits)
}

// overEchoRate matches the packets of a sender beyond EchoRate.
func overEchoRate(set, sender string) string {
	return fmt.Sprintf("update @%s { %s limit rate over %d/second burst %[3]d packets }", set, sender, EchoRate)
}

// errorTypes are the types of ICMP messages that contain the beginning of a packet, to whose
// connection connection tracking adds them (RFC 792): destination unreachable (3), source quench
// and redirect (5); time exceeded (11) and parameter problem.
var errorTypes = []string{"icmp type 3-5", "icmp type 11-12"}

// arriving adds the rules about the packets that VXLAN packets have contained, when they arrive on
// their device: the destination is one of Own, an ICMP error is about a packet to the sender, and
// the source belongs to the sender. vxlan has checked the source at "input", but there the kernel
// may show several VXLAN packets as one: a sender that asks for segmentation (UDP_SEGMENT of
// udp(7)) hands over datagrams of one size as a single packet, and over veth and virtio they arrive
// like this. The rules there see the first one only, and the kernel separates them afterwards,
// before VXLAN removes the headers. No rule can tell such a packet from a segment of TCP that is as
// long, as the length in the header inside is the sender's, too.
//
// vxlan checks the source nevertheless: the kernel puts segments of a TCP connection together
// before "prerouting", and the priority of the first one is left. Otherwise a member could add a
// segment to another member's connection at any time.
//
// So the sender's address accompanies each packet as its priority, which VXLAN leaves as it is. The
// priority is not used before the kernel sets it in ip_forward (net/ipv4/ip_forward.c). A packet
// that has not passed the rules at "input" does not carry the address of a sender as its priority,
// and is dropped.
//
// Nothing in this is about IPv6: see ipv6. Nor is it about ARP: see dataplane.Conf.ARPIgnore.
//
// The kernel of a remote gateway sends ICMP redirects about the node's own echoes, which it sends
// back the way they came. They are dropped, and nobody need know of them.
//
// The rules see fragments before these are put together; only the first one of an ICMP error has
// the addresses.
func (a Antispoof) arriving(t *dataplane.Ruleset) {
	if !a.checksInside() || len(a.Inside) == 0 {
		return
	}
	t.AddChain("arriving", "filter", "prerouting", arrivingPriority)
	t.Add("arriving", "%s accept", notOn("iifname", a.Inside))
	t.Add("arriving", "ip protocol icmp jump arrived-icmp")
	t.Add("arrived-icmp", "ip frag-off & 0x1fff != 0 return")
	for _, types := range errorTypes {
		t.Add("arrived-icmp", "%s jump arrived-errors", types)
	}
	for _, e := range a.Echoes {
		if !e.Own.IsValid() {
			continue
		}
		t.Drop("arrived-errors", "", fmt.Sprintf("icmp type redirect %s %s", errorDestination, number(e.Own)))
		t.Add("arrived-errors", "%s %s jump drop-forged", errorDestination, number(e.Own))
		t.Add("arriving", "ip saddr %v jump arrived-own", e.Own)
		t.Add("arrived-own", "ip saddr %v %s jump drop-forged", e.Own, overEchoRate("echoes-inside", "meta priority"))
		t.Add("arrived-own", "ip saddr %v ip daddr %[1]v udp dport %d return", e.Own, e.Port)
	}
	if t.Chain("arrived-own") != nil {
		t.Add("arrived-own", "jump drop-forged")
	}
	for _, bits := range a.innerMasks() {
		t.Add("arrived-errors", "%s return", fromSender(errorDestination, bits))
	}
	t.Add("arrived-errors", "jump drop-forged")
	if len(a.Own) > 0 {
		t.Add("arriving", "%s jump arrived-elsewhere", a.notOwn("ip daddr"))
		for _, port := range a.echoPorts() {
			t.Add("arrived-elsewhere", "%s . %s @echo udp dport %d return", sourceNumber, destinationNumber, port)
		}
		t.Add("arrived-elsewhere", "jump drop-forged")
	}
	for _, bits := range a.innerMasks() {
		t.Add("arriving", "%s accept", fromSender(sourceNumber, bits))
	}
	t.Add("arriving", "jump drop-forged")
}

// errors adds the rules about ICMP errors that arrive on a device of Out: the packet inside was
// sent to the cluster that sends the error. A member could otherwise lower the path MTU of
// connections between two others, or end them: connection tracking finds the connection by the
// packet inside. The rules come before all translation, so both addresses are as they were in the
// cable. nft(8) cannot list a rule that looks up what another lookup has found, so the priority of
// the packet is the cluster of its source meanwhile: the kernel sets the priority of what it
// forwards afterwards (ip_forward in net/ipv4/ip_forward.c), and does not use it for what it
// delivers.
func (a Antispoof) errors(t *dataplane.Ruleset) {
	if len(a.Behind) == 0 || len(a.Out) == 0 {
		return
	}
	t.Add("prerouting", "ip protocol icmp jump any-icmp")
	for _, types := range errorTypes {
		t.Add("any-icmp", "%s jump errors", types)
	}
	t.Add("errors", "%s return", notOn("iifname", a.Out))
	t.Add("errors", "meta priority set 0:0")
	t.Add("errors", "meta priority set ip saddr map @peers")
	nets := make([]netip.Prefix, len(a.Behind))
	for i, n := range a.Behind {
		nets[i] = n.Net
	}
	for _, bits := range masks(nets) {
		t.Add("errors", "meta priority . %s @behind%d return", masked(errorDestination, bits), bits)
	}
	t.Add("errors", "jump drop-source")
}

// returned adds the rules that let echoes pass: those of the nodes in Echoing are forwarded back on
// the device on which they arrived, and the node's own arrive, with another source. Other packets
// with the node's own address as source are dropped.
func (a Antispoof) returned(t *dataplane.Ruleset) {
	if a.checksInside() {
		return
	}
	for _, e := range a.Echoes {
		if !e.Own.IsValid() {
			continue
		}
		t.Add("prerouting", "ip saddr %v iifname %q jump returned", e.Own, e.Dev)
		t.Add("returned", "iifname %q udp dport %d ip daddr %v ip saddr set %v accept", e.Dev, e.Port, e.Own,
			e.Returned())
	}
	if t.Chain("returned") != nil {
		t.Drop("returned", dataplane.DropAnswer, "")
	}
}

// passEchoes adds the exceptions from a chain that drops packets: echoes of the nodes in Echoing.
// keys are "iifname", "oifname" or both.
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
		case len(a.Echoing) > 0:
			t.Add(chain, "%s ip daddr %v %s . %s @echo accept", match, e.Net(), sourceNumber, destinationNumber)
		}
	}
}

// echoPorts returns the ports of the echoes of nodes in Echoing, if there are any.
func (a Antispoof) echoPorts() (ports []int) {
	for _, e := range a.Echoes {
		if e.Own.IsValid() && len(a.Echoing) > 0 && !slices.Contains(ports, e.Port) {
			ports = append(ports, e.Port)
		}
	}
	return ports
}

// pongs adds the rules that drop answers to pings that the node has not sent. All answers share the
// buffer of the socket with which an agent pings, so a flood from one cluster would displace the
// answers of the others.
func (a Antispoof) pongs(t *dataplane.Ruleset) {
	if len(a.Pongs) == 0 {
		return
	}
	t.Add("input", "icmp type echo-reply jump pongs")
	t.Drop("pongs", dataplane.DropAnswer, "ct state invalid")
	if len(a.Unforwarded) > 0 {
		others := notOn("iifname", append([]string{"lo"}, a.Pongs...))
		t.Drop("pongs", dataplane.DropAnswer, fmt.Sprintf("%s%s", around("ip saddr", a.Unforwarded), others))
	}
	t.Drop("pongs", dataplane.DropAnswer, overEchoRate("echoes", "ip saddr"))
}

// innerMasks returns the numbers of bits of the networks in Inner, sorted: pods, whose packets are
// the most, are in wide networks.
func (a Antispoof) innerMasks() []int {
	nets := make([]netip.Prefix, len(a.Inner))
	for i, s := range a.Inner {
		nets[i] = s.Net
	}
	return masks(nets)
}

// masks returns the numbers of bits of networks, each once, sorted.
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
