package dataplane

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Antispoof is an nftables table that drops packets with forged source addresses. A rule exists
// only if the fields that it refers to are not empty. All lists that grow with the number of
// clusters or nodes are sets, so the cost of a packet does not grow with them.
type Antispoof struct {
	Table string
	// Ports are UDP ports of VXLAN packets for this node. Such packets must arrive on the device
	// that leads to their source. A device that did is remembered for AntispoofWay.
	Ports []int
	// Inner are the accepted sources inside the packets for Ports, sorted; empty for any. If there
	// are any, the packets inside must be IPv4.
	Inner []InnerSource
	// Inside are the devices on which the packets inside arrive. These are checked once more there,
	// one by one: what passes as one VXLAN packet may be several, see arrivedRules. IPv6 packets on
	// these devices are dropped.
	Inside []string
	// Transit are UDP ports of VXLAN packets that this node forwards. Packets for one of Ends must
	// come from one of Ends, and arrive on the device that leads there. So no pod can send such
	// packets, neither with a forged source nor with its own, which the CNI may translate to the
	// node's.
	Transit []int
	Ends    []netip.Prefix // sorted; no network contains another
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
	Closed   Range
	ClosedOn []string
	// Out are devices on which all packets must leave with a source in Own, and arrive with a
	// destination in Own. So must the packets inside VXLAN packets that this node sends to Ports,
	// or that arrive for them: their devices are not among Out.
	Out []string
	Own []netip.Prefix // sorted; no network contains another
	// Behind are the networks of other clusters behind the devices Out, sorted; none contains
	// another. An ICMP error that arrives on one of these devices is about a packet to the cluster
	// that sends it.
	Behind []PeerNet
	// Usually are the networks of this cluster that most packets are from and for.
	Usually []netip.Prefix
	// Apart are devices between which nothing is forwarded. Where there is a Local, no connection
	// is forwarded to them except from its networks: kube-proxy would otherwise send packets of
	// others there, and translate their source later. A connection whose destination has been
	// translated here is one that the cluster offers, such as a node port: it is forwarded with any
	// source except those of other clusters, unless it comes from another node of this cluster, on
	// a device of Nodes. Sources gives it one in Local.
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
	// Clusters are the networks and addresses of other clusters, sorted; none contains another.
	// Packets that are dropped because of Inner, Out or Apart are counted for them. When a network
	// is added, is removed or passes to another cluster, its conntrack entries are deleted: see
	// Ended.
	Clusters []ClusterNet
	// Echoes are the devices with echoes, and Echoing the addresses on them of the nodes whose
	// echoes this node forwards back, sorted.
	Echoes  []Echo
	Echoing []netip.Addr
	// Seen is the fingerprint of a table that was observed, and empty in a plan. It is "damaged" if
	// rules, chains or sets were added or removed.
	Seen string
}

// InnerSource is a network from which a sender of VXLAN packets may send packets inside them.
type InnerSource struct {
	Outer netip.Addr   // source of the VXLAN packet
	Net   netip.Prefix // masked
}

// DeviceAny ends the name of a device in Antispoof that stands for all devices with the prefix.
const DeviceAny = "*"

// The sets of Antispoof. Each element of "clusters" has a counter. The elements of "inner" are the
// source of the VXLAN packet, the network of the source inside it and the mask of the network, each
// an address: the kernel hashes them, which takes less time, for packets and for changes, than a
// set of intervals. So there is a rule, and a lookup, for each mask that is in use. The elements of
// "echo" are an address twice: rules cannot compare source and destination; for each network of
// Behind, the map "peers" has the address that stands for its cluster, and "behind" this address,
// the network and its mask. If Remote has few masks, its networks are in "masked" in the same way,
// and else in "remote".
const (
	AntispoofSetInner    = "inner"
	AntispoofSetEnds     = "ends"
	AntispoofSetRemote   = "remote"
	AntispoofSetMasked   = "masked"
	AntispoofSetOwn      = "own"
	AntispoofSetWays     = "ways"
	AntispoofSetClusters = "clusters"
	AntispoofSetEcho     = "echo"
	AntispoofSetEchoes   = "echoes"
	AntispoofSetPeers    = "peers"
	AntispoofSetBehind   = "behind"
	// AntispoofSetKnown has, for AntispoofWays, the senders of VXLAN packets, the devices on which
	// these arrived, and the networks of the sources inside them with their masks: one lookup
	// instead of one in "inner" and one in "ways". When a network leaves Inner, the set is emptied.
	AntispoofSetKnown = "known"
)

// AntispoofWays is the time for which the kernel remembers, in the set "ways", on which device the
// packets of a sender arrive. To look up the route to the sender takes several times as long as to
// look into the set, as it evaluates all routing rules of the node. If the route changes to another
// device, packets on the old device are accepted for this time.
const AntispoofWays = 10 * time.Second

// AntispoofWaysSize is the maximum number of elements of each set to which packets add some: more
// than the senders that a node can have. It is the kernel's own for sets that are created without a
// size (nft_dynset_init in net/netfilter/nft_dynset.c), as these are: with a size, a set has a hash
// table for so many elements from the beginning, of 1 MiB, which the kernel goes through every
// second for elements that have expired.
const AntispoofWaysSize = 65535

// EchoRate is the maximum number of this node's echoes that each node or gateway may send back in a
// second, and of its answers to this node's pings: more than are sent to it. All packets that come
// back share the buffer of a socket. Without a limit for each sender, a member could displace the
// echoes from others, whose gateways would then seem to be down. AntispoofEchoes is the time for
// which the kernel remembers the senders, in the set "echoes".
const (
	EchoRate        = 500
	AntispoofEchoes = time.Minute
)

// Sets returns the sets of networks that have elements, in the order in which they are created.
func (a Antispoof) Sets() (sets []Set) {
	remote, _ := a.RemoteSets()
	for _, s := range []Set{{AntispoofSetEnds, a.Ends}, {AntispoofSetRemote, remote}, {AntispoofSetOwn, a.Own}} {
		if len(s.Members) > 0 {
			sets = append(sets, s)
		}
	}
	return sets
}

// RemoteSets returns the elements of the sets "remote" and "masked": one of them has all networks
// of Remote.
func (a Antispoof) RemoteSets() (remote, masked []netip.Prefix) {
	if len(masks(a.Remote)) > few {
		return a.Remote, nil
	}
	return nil, a.Remote
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
	return ok && a.Table == other.Table && a.Fingerprint() == other.Fingerprint() &&
		slices.Equal(a.Inner, other.Inner) &&
		slices.Equal(a.Ends, other.Ends) && slices.Equal(a.Remote, other.Remote) &&
		slices.Equal(a.Own, other.Own) &&
		slices.Equal(a.Clusters, other.Clusters) &&
		slices.Equal(a.Echoing, other.Echoing) &&
		slices.Equal(a.Behind, other.Behind)
}

// String implements Object.
func (a Antispoof) String() string {
	lines := []string{"nft add table ip " + a.Table}
	if len(a.Inner) > 0 {
		lines = append(
			lines,
			fmt.Sprintf("nft 'add set ip %s %s { type ipv4_addr . ipv4_addr . ipv4_addr; }'", a.Table,
				AntispoofSetInner),
		)
		for _, s := range a.Inner {
			lines = append(
				lines,
				fmt.Sprintf("nft 'add element ip %s %s { %v . %v . %v }'", a.Table, AntispoofSetInner, s.Outer,
					s.Net.Addr(), NetMask(s.Net.Bits())),
			)
		}
	}
	lines = append(
		lines,
		fmt.Sprintf("nft 'add set ip %s %s { typeof ip saddr . meta iif; flags dynamic; size %d; timeout %v; }'",
			a.Table, AntispoofSetWays, AntispoofWaysSize, AntispoofWays),
	)
	if len(a.Inner) > 0 {
		lines = append(
			lines,
			fmt.Sprintf(
				"nft 'add set ip %s %s { typeof ip saddr . meta iif . ip saddr . ip saddr; flags dynamic; size %d; timeout %v; }'",
				a.Table, AntispoofSetKnown, AntispoofWaysSize, AntispoofWays),
		)
	}
	lines = append(lines, fmt.Sprintf("nft 'add set ip %s %s { type ipv4_addr; flags dynamic; size %d; timeout %v; }'",
		a.Table, AntispoofSetEchoes, AntispoofWaysSize, AntispoofEchoes))
	if _, masked := a.RemoteSets(); len(masked) > 0 {
		lines = append(lines,
			fmt.Sprintf("nft 'add set ip %s %s { type ipv4_addr . ipv4_addr; }'", a.Table, AntispoofSetMasked))
		for _, n := range masked {
			lines = append(
				lines,
				fmt.Sprintf("nft 'add element ip %s %s { %v . %v }'", a.Table, AntispoofSetMasked, n.Addr(),
					NetMask(n.Bits())),
			)
		}
	}
	for _, s := range a.Sets() {
		lines = append(lines,
			fmt.Sprintf("nft 'add set ip %s %s { type ipv4_addr; flags interval; }'", a.Table, s.Name))
		for _, n := range s.Members {
			lines = append(lines, fmt.Sprintf("nft 'add element ip %s %s { %v }'", a.Table, s.Name, n))
		}
	}
	if len(a.Echoing) > 0 {
		lines = append(lines,
			fmt.Sprintf("nft 'add set ip %s %s { type ipv4_addr . ipv4_addr; }'", a.Table, AntispoofSetEcho))
		for _, ip := range a.Echoing {
			lines = append(lines,
				fmt.Sprintf("nft 'add element ip %s %s { %v . %v }'", a.Table, AntispoofSetEcho, ip, ip))
		}
	}
	if len(a.Clusters) > 0 {
		lines = append(
			lines,
			fmt.Sprintf("nft 'add set ip %s %s { type ipv4_addr; flags interval; counter; }'", a.Table,
				AntispoofSetClusters),
		)
		for _, n := range a.Clusters {
			lines = append(
				lines,
				fmt.Sprintf("nft 'add element ip %s %s { %v comment %q }'", a.Table, AntispoofSetClusters, n.Net,
					n.Cluster),
			)
		}
	}
	if len(a.Behind) > 0 {
		lines = append(
			lines,
			fmt.Sprintf("nft 'add map ip %s %s { type ipv4_addr : ipv4_addr; flags interval; }'", a.Table,
				AntispoofSetPeers),
		)
		for _, n := range a.Behind {
			lines = append(lines,
				fmt.Sprintf("nft 'add element ip %s %s { %v : %v }'", a.Table, AntispoofSetPeers, n.Net, n.Peer))
		}
		lines = append(
			lines,
			fmt.Sprintf("nft 'add set ip %s %s { type ipv4_addr . ipv4_addr . ipv4_addr; }'", a.Table,
				AntispoofSetBehind),
		)
		for _, n := range a.Behind {
			lines = append(
				lines,
				fmt.Sprintf("nft 'add element ip %s %s { %v . %v . %v }'", a.Table, AntispoofSetBehind, n.Peer,
					n.Net.Addr(), NetMask(n.Net.Bits())),
			)
		}
	}
	if slices.Contains(a.Chains(), AntispoofIPv6) {
		lines = append(lines, "nft add table ip6 "+a.Table)
	}
	for _, name := range a.Chains() {
		line := fmt.Sprintf("nft add chain %s %s %s", AntispoofFamily(name), a.Table, name)
		if hook, priority := AntispoofHook(name); hook != "" {
			line = fmt.Sprintf("nft 'add chain %s %s %s { type filter hook %s priority %d; }'", AntispoofFamily(name),
				a.Table, name, hook, priority)
		}
		lines = append(lines, line)
	}
	for _, r := range a.Rules() {
		lines = append(lines, fmt.Sprintf("nft 'add rule %s %s %s %v'", AntispoofFamily(r.Chain), a.Table, r.Chain, r))
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
