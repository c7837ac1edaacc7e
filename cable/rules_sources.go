package cable

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"subctl/dataplane"
	"subctl/internal/prefix"
)

// sourcesPriority is the priority of the chains of sources. It is lower than the priorities of all
// other chains that translate sources, 100 ("srcnat") or a little less, so our rules come first.
const sourcesPriority = 50

// Names in the table of sources. A chain with a hook has the name of the hook.
const (
	sourcesSet     = "remote"
	sourcesMarking = "direct"
	sourcesLast    = "postrouting"
)

// sources is the input of the table that preserves the source addresses of packets between local
// and remote networks. The kernel translates the source of a connection by the first rule that
// matches. Our rules come first, and translate a source to itself, so neither kube-proxy nor the
// CNI masquerades it. Only the first packet of each connection passes the rules.
type sources struct {
	local, remote []netip.Prefix // masked; no network contains another
	// masquerades specifies that a connection from remote, whose destination this node has
	// translated to a pod on another node, gets an address of this node as its source. Only this
	// node can translate the replies back, and the CNI would not route them here. The address is
	// that of the device on which the packets leave, which the CNI can route. Packets that leave on
	// IntraDevice or podDevices keep their source.
	masquerades bool
	// podNetwork is the network of the pods on this node; the zero Prefix if it is unknown.
	// Connections to it keep their source.
	podNetwork netip.Prefix
	// node is the address of this node in the pod network; the zero Addr if it has none. It becomes
	// the source of connections to remote of the node's own processes, and of connections whose
	// destination this node has translated, such as connections from outside to a node port.
	// Otherwise kube-proxy would use the address of one of our devices, or keep the address of the
	// client, and replies would not return to this node. Connections from remote do not get this
	// address: this would let one cluster reach another as if it were the node.
	node netip.Addr
	// announced are the networks to which other clusters send through cables; no network contains
	// another one. A connection from remote to another address, which does not arrive on a device
	// of ours, did not come through a cable, and gets DirectMark. If its destination is translated
	// to a pod, it gets the address of this node as its source, because its own source may be
	// forged.
	announced []netip.Prefix
}

// podDevices are the names of devices to pods on this node: of Calico, of Cilium, and of the
// reference plugin ptp. A pod behind a device with another name is treated like a pod on another
// node.
var podDevices = []string{"cali" + dataplane.DeviceAny, "lxc" + dataplane.DeviceAny, "veth" + dataplane.DeviceAny}

// table returns the table.
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
		if s.podNetwork.IsValid() {
			add("ip saddr @remote ip daddr %v snat to ip saddr", s.podNetwork)
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

// markDirect adds the rules for connections from remote that do not come through a cable.
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

// notOn matches packets on other devices than these. key is "iifname" or "oifname".
func notOn(key string, devices []string) string {
	var out []string
	for _, d := range devices {
		out = append(out, fmt.Sprintf("%s != %q", key, d))
	}
	return strings.Join(out, " ")
}

// setMark sets the bits of ReturnMask in the mark of a packet ("meta") or of its connection ("ct").
// The value is a constant, so each gateway has rules of its own: before Linux 6.13, nftables cannot
// combine the bits of two marks, or of a mark and a map.
func setMark(of string, value uint32) string {
	return fmt.Sprintf("%[1]s mark set %[1]s mark and %#[2]x xor %#[3]x", of, ^uint32(dataplane.ReturnMask), value)
}

// sources returns the input of the table of sources.
//
// A gateway masquerades a connection to a Service if two conditions hold: the CNI carries its
// packets to the node of the pod, and the replies of the pod may reach another gateway. The node of
// the pod does not know the gateway of the connection, because the rules of returnPath mark only
// packets that arrive over the VXLAN between nodes.
//
// Replies may reach a standby gateway, because pods on its node send through its cables. They may
// also reach another gateway with globalnet. That gateway can translate replies of an established
// TCP connection, but not the first reply.
func (n Intra) sources(remote []netip.Prefix) sources {
	s := sources{
		local:     prefix.Widest(n.Local.Pods),
		remote:    remote,
		node:      n.PodIP,
		announced: n.announced(),
	}
	s.masquerades = n.isGateway() && len(n.Gateways) > 1 && n.carriedByCNI()
	if s.masquerades {
		s.podNetwork = n.Self.Pods
	}
	return s
}

// carriedByCNI reports whether the CNI carries packets to the pods of another node, because the
// network of these pods is unknown.
func (n Intra) carriedByCNI() bool {
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
	return prefix.Widest(slices.Concat(n.Local.Pods, n.Local.Services, n.Local.Global))
}
