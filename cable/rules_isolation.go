package cable

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"subctl/dataplane"
	"subctl/internal/prefix"
)

// few is the greatest number of networks that rules compare one by one. A comparison costs a tenth
// of a lookup in a set of networks.
const few = 4

// isolation adds the rules that keep clusters apart:
//
//   - Packets from another cluster have a destination in this cluster. The rules come before all
//     translation and before connection tracking, so neither kube-proxy nor the CNI can change
//     this. For packets inside VXLAN packets see decapsulated.
//   - Packets to another cluster have a source in this cluster.
//   - Nothing is forwarded between IsolatedDevices, even if there is a route or kube-proxy chose
//     the destination. If there are LocalNetworks, see toCables for packets from other sources.
//   - A packet from another cluster that arrives through another gateway of this cluster is not
//     forwarded to a cable.
//   - A packet to a global address that globalnet has not translated is not forwarded. An exception
//     are replies for another gateway of this cluster, which has translated the connection.
func (a Antispoof) isolation(t *dataplane.Ruleset) {
	if len(a.OwnNetworks) > 0 {
		for _, d := range a.Layer3Devices {
			t.Add("prerouting", "iifname %q %s jump drop-source", d, a.notOwn("ip daddr"))
			t.Add("postrouting", "oifname %q %s jump drop-destination", d, a.notOwn("ip saddr"))
		}
		a.vxlanOut(t)
	}
	switch {
	case len(a.LocalNetworks) > 0:
		a.toCables(t)
		a.fromCables(t)
	case len(a.IsolatedDevices) == 1 && len(a.GlobalNetworks) == 0: // one rule does not need a chain
		t.Add("forward", "iifname %q oifname %[1]q jump drop-source", a.IsolatedDevices[0])
	default:
		a.fromCables(t)
	}
	if len(a.IntraDevices) == 0 || len(a.CableDevices) == 0 || len(a.RemoteNetworks) == 0 {
		return
	}
	for _, d := range a.IntraDevices {
		t.Add("forward", "iifname %q jump from-siblings", d)
	}
	for _, match := range a.matchNotRemote() {
		t.Add("from-siblings", "%s return", match)
	}
	for _, match := range a.matchRemote() {
		t.Add("from-siblings", "%s jump no-transit", match)
	}
	for _, d := range a.CableDevices {
		t.Add("no-transit", "oifname %q jump drop-source", d)
	}
}

// notOwn matches addresses outside OwnNetworks. key is "ip saddr" or "ip daddr".
func (a Antispoof) notOwn(key string) string {
	own := a.podsFirst(a.OwnNetworks)
	var out []string
	for _, n := range own[:min(len(own), few)] {
		out = append(out, fmt.Sprintf("%s != %v", key, n))
	}
	return strings.Join(append(out, key+" != @own"), " ")
}

// vxlanOut adds the rules for VXLAN packets that this node sends: the source of the packet inside
// is in OwnNetworks. nft(8) treats that source as a number and cannot look up numbers in a set of
// networks, so the rules compare all networks.
func (a Antispoof) vxlanOut(t *dataplane.Ruleset) {
	if !a.checksInside() {
		return
	}
	own := a.podsFirst(a.OwnNetworks)
	var foreign []string
	for _, n := range own[:min(len(own), few)] {
		foreign = append(foreign, inNetwork(insideSource, "!=", n))
	}
	for _, p := range a.VXLANPorts {
		t.Add("output", "udp dport %d %s jump vxlan-out", p, strings.Join(foreign, " "))
	}
	for _, n := range own[min(len(own), few):] {
		t.Add("vxlan-out", "%s return", inNetwork(insideSource, "==", n))
	}
}

// toCables adds the rules for packets that are forwarded to IsolatedDevices. A packet must come
// from LocalNetworks, with two exceptions:
//
//   - replies to a connection that another cluster opened. It may lead to a Service with a backend
//     outside LocalNetworks, whose source is translated back later;
//   - connections whose destination this node has translated, such as connections to a node port.
//     They must not come from another cluster, nor arrive on IntraDevices.
//
// A packet that arrived on one of IsolatedDevices is dropped, and counts for the cluster of its
// source.
func (a Antispoof) toCables(t *dataplane.Ruleset) {
	if len(a.IsolatedDevices) == 0 {
		return
	}
	var foreign []string
	for _, n := range a.podsFirst(a.LocalNetworks) {
		foreign = append(foreign, fmt.Sprintf("ip saddr != %v", n))
	}
	// The name of the device comes last: it is the slowest comparison, and most packets are from
	// LocalNetworks.
	for _, d := range a.IsolatedDevices {
		t.Add("forward", "%s oifname %q jump to-cables", strings.Join(foreign, " "), d)
	}
	for _, d := range a.IsolatedDevices {
		t.Add("to-cables", "iifname %q jump drop-source", d)
	}
	t.Add("to-cables", "ct direction reply return")
	if len(a.ClusterNetworks) > 0 {
		t.Drop("to-cables", dataplane.DropTransit, "ip saddr @clusters")
	}
	offered := "ct status dnat"
	if len(a.IntraDevices) > 0 {
		offered += " " + notOn("iifname", a.IntraDevices)
	}
	t.Add("to-cables", "%s return", offered)
	t.Add("to-cables", "jump drop-destination")
}

// fromCables adds the rules for packets that arrive on IsolatedDevices. They do not leave on
// IsolatedDevices; if there are LocalNetworks, toCables has the rule. They have no destination in
// GlobalNetworks, except replies for another gateway.
func (a Antispoof) fromCables(t *dataplane.Ruleset) {
	if len(a.LocalNetworks) > 0 && len(a.GlobalNetworks) == 0 {
		return
	}
	for _, d := range a.IsolatedDevices {
		t.Add("forward", "iifname %q jump from-cables", d)
	}
	for _, d := range a.IsolatedDevices {
		if len(a.LocalNetworks) == 0 {
			t.Add("from-cables", "oifname %q jump drop-source", d)
		}
	}
	for _, n := range a.GlobalNetworks {
		for _, d := range a.IntraDevices {
			t.Add("from-cables", "ip daddr %v ct direction reply oifname %q return", n, d)
			t.Add("forward", "ip daddr %v iifname %q jump drop-source", n, d)
		}
		if len(a.IsolatedDevices) > 0 {
			t.Add("from-cables", "ip daddr %v jump drop-source", n)
		}
	}
}

// deviceNetworks adds the rules that drop forwarded packets to DeviceNetworks.
func (a Antispoof) deviceNetworks(t *dataplane.Ruleset) {
	if len(a.DeviceNetworks) == 0 {
		return
	}
	t.Add("forward", "%sjump device-networks", around("ip daddr", a.DeviceNetworks))
	a.passEchoes(t, "device-networks", "iifname", "oifname")
	for _, n := range a.DeviceNetworks {
		t.Drop("device-networks", dataplane.DropDevice, fmt.Sprintf("ip daddr %v", n))
	}
}

// forwardedVXLAN adds the rules for VXLAN packets that the node forwards.
func (a Antispoof) forwardedVXLAN(t *dataplane.Ruleset) {
	if len(a.TunnelEndpoints) == 0 || len(a.TransitPorts) == 0 {
		return
	}
	t.Add("forward", "ip protocol udp jump forwarded-udp")
	for _, p := range a.TransitPorts {
		t.Add("forwarded-udp", "udp dport %d ip daddr @tunnel-endpoints jump forwarded-vxlan", p)
	}
	t.Drop("forwarded-vxlan", dataplane.DropForged, "ip saddr != @tunnel-endpoints")
	t.Drop("forwarded-vxlan", dataplane.DropForged, "fib saddr . iif oif missing")
}

// agentPorts adds the rules that close AgentPorts to other clusters. The node may also use these
// ports as source ports (net.ipv4.ip_local_port_range), so the first rule accepts answers, except a
// SYN: it could open a new connection as a reply in an old one.
func (a Antispoof) agentPorts(t *dataplane.Ruleset) {
	if a.AgentPorts.Max == 0 {
		return
	}
	t.Add("input", "tcp dport %d-%d jump agent-ports", a.AgentPorts.Min, a.AgentPorts.Max)
	t.Add("agent-ports", "ct direction reply tcp flags & (syn | ack) != syn return")
	if len(a.DeviceNetworks) > 0 {
		t.Drop("agent-ports", dataplane.DropPort, strings.TrimSpace(around("ip saddr", a.DeviceNetworks)))
	}
	for _, match := range a.matchRemote() {
		t.Drop("agent-ports", dataplane.DropPort, match)
	}
	for _, d := range a.ClosedDevices {
		t.Drop("agent-ports", dataplane.DropPort, fmt.Sprintf("iifname %q", d))
	}
}

// fromRemote adds the rules that drop packets from RemoteNetworks to ProtectedNetworks, if they do
// not arrive on RemoteDevices.
func (a Antispoof) fromRemote(t *dataplane.Ruleset) {
	if len(a.RemoteNetworks) == 0 || len(a.RemoteDevices) == 0 {
		return
	}
	acceptCommon := func(chain string) {
		for _, d := range a.CommonDevices {
			t.Add(chain, "iifname %q accept", d)
		}
	}
	from := a.matchRemote()
	if len(a.RemoteNetworks) <= few {
		from = nil
		for _, n := range a.RemoteNetworks {
			from = append(from, fmt.Sprintf("ip saddr %v", n))
		}
	}
	// A comparison of device names is slower than a comparison of sources or a lookup in a hash
	// set, and faster than a lookup in an interval set. A packet from RemoteNetworks needs both the
	// lookup and the name, so the names come first. They come last if the lookup is in a hash set
	// and no network around RemoteNetworks exempts the other packets of the node.
	intervals, _ := a.remoteSets()
	for _, match := range a.matchNotRemote() {
		t.Add("prerouting", "%s accept", match)
	}
	_, hasAround := a.aroundRemote()
	namesFirst := hasAround || intervals != nil
	if namesFirst {
		acceptCommon("prerouting")
	}
	for _, match := range from {
		t.Add("prerouting", "%s jump from-remote", match)
	}
	if !namesFirst {
		acceptCommon("from-remote")
	}
	others := notOn("iifname", a.RemoteDevices)
	if len(a.ProtectedNetworks) == 0 {
		t.Add("from-remote", "%s jump drop-wrong-device", others)
		return
	}
	t.Add("from-remote", "%s jump wrong-device", others)
	for _, n := range a.podsFirst(a.ProtectedNetworks) {
		t.Add("wrong-device", "ip daddr %v jump drop-wrong-device", n)
	}
}

// matchNotRemote returns matches for sources outside RemoteNetworks that need no lookup: pods of
// this cluster, and most nodes. It is nil if there are few RemoteNetworks.
func (a Antispoof) matchNotRemote() (out []string) {
	if len(a.RemoteNetworks) <= few {
		return nil
	}
	for _, n := range a.PodNetworks[:min(len(a.PodNetworks), few)] {
		if !slices.ContainsFunc(a.RemoteNetworks, n.Overlaps) {
			out = append(out, fmt.Sprintf("ip saddr %v", n))
		}
	}
	if n, ok := a.aroundRemote(); ok {
		out = append(out, fmt.Sprintf("ip saddr != %v", n))
	}
	return out
}

// aroundRemote returns the smallest network that contains RemoteNetworks. It returns false if that
// network contains all addresses, or if there are few RemoteNetworks.
func (a Antispoof) aroundRemote() (netip.Prefix, bool) {
	if len(a.RemoteNetworks) <= few {
		return netip.Prefix{}, false
	}
	n := prefix.Around(a.RemoteNetworks)
	return n, n.Bits() > 0
}

// remoteSets returns RemoteNetworks as elements of one interval set, "remote", or of hash sets, one
// for each mask, such as "remote16". The other result is nil. Hash sets are faster if there are few
// masks.
func (a Antispoof) remoteSets() (intervals, hashed []netip.Prefix) {
	if len(masks(a.RemoteNetworks)) > few {
		return a.RemoteNetworks, nil
	}
	return nil, a.RemoteNetworks
}

// remoteByMask returns the elements of hash sets by the number of mask bits: see remoteSets.
func (a Antispoof) remoteByMask() map[int][]netip.Prefix {
	out := map[int][]netip.Prefix{}
	_, hashed := a.remoteSets()
	for _, n := range hashed {
		out[n.Bits()] = append(out[n.Bits()], n)
	}
	return out
}

// matchRemote returns matches for packets from RemoteNetworks.
func (a Antispoof) matchRemote() (out []string) {
	intervals, hashed := a.remoteSets()
	if len(intervals) > 0 {
		return []string{"ip saddr @remote"}
	}
	for _, bits := range masks(hashed) {
		if bits == 32 {
			out = append(out, "ip saddr @remote32")
			continue
		}
		mask, _ := netip.AddrFrom4([4]byte{255, 255, 255, 255}).Prefix(bits)
		out = append(out, fmt.Sprintf("ip saddr & %v @remote%d", mask.Addr(), bits))
	}
	return out
}

// dropAndCount adds the rules of the chains that drop packets and count them for a cluster. A
// lookup in "clusters" increments the counter of the element. A packet counts
//
//   - for the cluster of its source, if it arrives (drop-source, drop-wrong-device);
//   - for its sender, if it was inside a VXLAN packet (drop-forged);
//   - for the cluster of its destination or else of its next hop, if it leaves (drop-destination);
//   - for the cluster of its destination or else of the VXLAN packet's, if it leaves inside a VXLAN
//     packet (vxlan-out).
func (a Antispoof) dropAndCount(t *dataplane.Ruleset) {
	counts := len(a.ClusterNetworks) > 0
	if t.Mentions("jump drop-source") {
		a.passEchoes(t, "drop-source", "iifname")
		if counts {
			t.Drop("drop-source", dataplane.DropFromElsewhere, "ip saddr @clusters")
		}
		t.Drop("drop-source", dataplane.DropFromElsewhere, "")
	}
	if t.Mentions("jump drop-wrong-device") {
		if counts {
			t.Drop("drop-wrong-device", dataplane.DropBeside, "ip saddr @clusters")
		}
		t.Drop("drop-wrong-device", dataplane.DropBeside, "")
	}
	if t.Mentions("jump drop-forged") {
		if counts {
			t.Add("drop-forged", "add @forged { meta priority counter }")
		}
		t.Drop("drop-forged", dataplane.DropFromElsewhere, "")
	}
	if t.Mentions("jump drop-destination") {
		a.passEchoes(t, "drop-destination", "oifname")
		if counts {
			t.Drop("drop-destination", dataplane.DropToElsewhere, "ip daddr @clusters")
			t.Drop("drop-destination", dataplane.DropToElsewhere, "rt ip nexthop @clusters")
		}
		t.Drop("drop-destination", dataplane.DropToElsewhere, "")
	}
	if !t.Mentions("jump vxlan-out") {
		return
	}
	for _, port := range a.echoPorts() {
		t.Add("vxlan-out", "%s . %s @echo-peers %s 0x45 %s & 0x3fff == 0 %s 17 %s %d accept", insideSource,
			insideDestination, insideHeader, insideFragment, insideProtocol, insidePort, port)
	}
	if counts {
		// A set of networks accepts only an address as a key, not the destination inside, which is
		// a number. The packet is dropped anyway, so its own addresses are overwritten.
		t.Add("vxlan-out", "ip saddr set ip daddr ip daddr set %s", insideDestination)
		t.Drop("vxlan-out", dataplane.DropToElsewhere, "ip daddr @clusters")
		t.Drop("vxlan-out", dataplane.DropToElsewhere, "ip saddr @clusters")
	}
	t.Drop("vxlan-out", dataplane.DropToElsewhere, "")
}

// podsFirst returns networks in the order in which rules compare them: PodNetworks, then the widest
// networks first.
func (a Antispoof) podsFirst(nets []netip.Prefix) []netip.Prefix {
	rank := func(p netip.Prefix) int {
		if slices.Contains(a.PodNetworks, p) {
			return 0
		}
		return 1
	}
	return slices.SortedStableFunc(slices.Values(nets), func(p, q netip.Prefix) int {
		return cmp.Or(cmp.Compare(rank(p), rank(q)), cmp.Compare(p.Bits(), q.Bits()))
	})
}

// around matches addresses in the smallest network that contains all networks. The match ends with
// a space. It is empty if that network contains all addresses.
func around(key string, nets []netip.Prefix) string {
	if n := prefix.Around(nets); n.Bits() > 0 {
		return fmt.Sprintf("%s %v ", key, n)
	}
	return ""
}
