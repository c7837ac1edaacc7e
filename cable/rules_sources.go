package cable

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"subctl/dataplane"
)

// sourcesPriority is the priority of the chains of sources: before all other chains that translate
// sources, which have 100 ("srcnat") or a little less.
const sourcesPriority = 50

// The chains of sources with a hook have its name. Connections are marked in a chain that is jumped
// to.
const (
	sourcesSet     = "remote"
	sourcesMarking = "direct"
	sourcesLast    = "postrouting"
)

// sources preserves the source addresses of packets between the networks local and remote. The
// kernel translates the source of a connection once, by the first rule that matches: ours comes
// first, and translates sources to themselves. Only the first packet of each connection passes
// through it.
type sources struct {
	local, remote []netip.Prefix // masked; no network contains another
	// masquerades specifies that a connection from remote whose destination has been translated
	// here, to a pod on another node, gets the node's own address as its source, as the CNI brings
	// it to that node: nobody else can translate the replies back, and they would not find this
	// node. It is the address of the device on which the packets leave, to which the CNI has a way
	// back. Packets that leave on IntraDevice or podDevices keep their source.
	masquerades bool
	// here is the network of the node's own pods, if it is known; the zero Prefix otherwise.
	// Connections to it keep their source.
	here netip.Prefix
	// node is the source of other connections to remote that belong to the node: of its own
	// processes, and connections whose destination has been translated here, such as a client's
	// outside to a node port. It is the node's address among the pods; the zero Addr if it has
	// none. Otherwise kube-proxy would give them the address of a device of ours, or leave the
	// client's, and no answer would find this node. Connections from remote do not get it: nothing
	// passes from one cluster to another as if it were the node's.
	node netip.Addr
	// announced are the networks of this cluster to which other clusters send through cables; no
	// network contains another. A connection from remote to an address in none of them that does
	// not arrive on a device of ours did not come through a cable: it gets DirectMark. If its
	// destination is translated to a pod, it comes from the node for the pod: nothing tells whether
	// its source is true.
	announced []netip.Prefix
}

// podDevices are names of devices that lead to a pod on the node itself: of Calico, of Cilium, and
// of the reference plugin ptp. A pod behind a device of another name counts as one on another node.
var podDevices = []string{"cali" + dataplane.DeviceAny, "lxc" + dataplane.DeviceAny, "veth" + dataplane.DeviceAny}

// table returns the table with the rules.
func (s sources) table() dataplane.Ruleset {
	t := dataplane.Ruleset{
		Family: dataplane.SourcesTable.Family, Table: dataplane.SourcesTable.Name,
		Sets: []dataplane.RuleSet{{
			Name: sourcesSet, Type: "ipv4_addr", Flags: "interval", Elements: dataplane.Networks(s.remote),
		}},
	}
	t.AddChain(sourcesLast, "nat", "postrouting", sourcesPriority)
	if len(s.announced) > 0 {
		s.markDirect(&t)
	}
	add := func(format string, args ...any) { t.Add(sourcesLast, format, args...) }
	if s.masquerades {
		if s.here.IsValid() {
			add("ip saddr @remote ip daddr %v snat to ip saddr", s.here)
		}
		elsewhere := notOn("oifname", append([]string{dataplane.IntraDevice}, podDevices...))
		for _, l := range s.local {
			add("ip saddr @remote ip daddr %v ct status dnat %s masquerade", l, elsewhere)
		}
	}
	for _, l := range s.local {
		add("ip saddr %v ip daddr @remote snat to ip saddr", l)
		add("ip saddr @remote ip daddr %v snat to ip saddr", l)
	}
	if s.node.IsValid() {
		add("ip saddr != @remote ip daddr @remote fib saddr type local snat to %v", s.node)
		add("ip saddr != @remote ip daddr @remote ct status dnat snat to %v", s.node)
	}
	return t
}

// markDirect adds the rules about connections that do not come through a cable.
func (s sources) markDirect(t *dataplane.Ruleset) {
	t.Direct = dataplane.DirectConnections{From: sourcesSet, Announced: s.announced}
	for _, n := range s.announced {
		t.Add(sourcesMarking, "ct original ip daddr %v return", n)
	}
	t.Add(sourcesMarking, "%s", setMark("ct", dataplane.DirectMark))
	t.AddChain("input", "nat", "input", sourcesPriority)
	for _, chain := range []string{"input", sourcesLast} {
		t.Add(chain, "ip saddr @remote %s jump %s", notOn("iifname", dataplane.NodeDevices()), sourcesMarking)
	}
	for _, l := range s.local {
		t.Add(sourcesLast, "ct mark and %#x == %#x ip daddr %v masquerade", dataplane.ReturnMask, dataplane.DirectMark,
			l)
	}
}

// notOn matches packets on none of some devices; key is "iifname" or "oifname".
func notOn(key string, devices []string) string {
	var out []string
	for _, d := range devices {
		out = append(out, fmt.Sprintf("%s != %q", key, d))
	}
	return strings.Join(out, " ")
}

// setMark sets the bits of ReturnMask in the mark of a packet ("meta") or of its connection ("ct").
// The value is a constant: only since Linux 6.13 can nftables combine the bits of two marks, or of
// a mark and a map. So there are rules for each gateway.
func setMark(of string, value uint32) string {
	return fmt.Sprintf("%[1]s mark set %[1]s mark and %#[2]x xor %#[3]x", of, ^uint32(dataplane.ReturnMask), value)
}

// sources returns the rules that keep the sources of packets between this cluster and other
// clusters. A gateway masquerades a connection to a Service if the CNI brings its packets to the
// node of the pod, and the pod's replies may reach another gateway: that node does not know the
// gateway of the connection, as the rules of returnPath mark only packets that arrive over the
// VXLAN between nodes. A standby is such a gateway: the replies of pods on its own node take its
// cables. So is one with a global network: a gateway can translate a reply for another gateway in
// the midst of a TCP connection, but not the first reply.
func (n Intra) sources(remote []netip.Prefix) sources {
	s := sources{local: set("", n.Local.Pods).Members, remote: remote, node: n.PodIP, announced: n.announced()}
	if s.masquerades = n.isGateway() && len(n.Gateways) > 1 && n.elsewhere(); s.masquerades {
		s.here = n.Self.Pods
	}
	return s
}

// elsewhere reports whether the CNI leads to the pods of another node: the network of its pods is
// not known.
func (n Intra) elsewhere() bool {
	for _, nodes := range [][]Node{n.siblings(), n.Workers} {
		for _, other := range nodes {
			if !other.Pods.IsValid() {
				return true
			}
		}
	}
	return false
}

// announced returns the networks of this cluster to which other clusters may send through cables.
func (n Intra) announced() []netip.Prefix {
	return set("", slices.Concat(n.Local.Pods, n.Local.Services, n.Local.Global)).Members
}
