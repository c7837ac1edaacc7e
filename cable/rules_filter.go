package cable

import (
	"fmt"
	"net/netip"
	"slices"

	"subctl/dataplane"
	"subctl/internal/prefix"
)

// Priorities of the chains that decide about packets to the node and about forwarded ones: just
// before the chains of iptables, whose priority is 0. Both agents of a gateway have such chains, so
// marks are cleared before those of either decide, and after everybody has.
const (
	unmarkPriority = -2
	filterPriority = -1
	donePriority   = 300
)

// Names of the chains of a filter that have hooks, and of its sets.
const (
	filterInput   = "filter-input"
	filterForward = "filter-forward"
	filterLocal   = "local"     // the networks of this cluster
	filterNodes   = "nodes"     // the nodes that may send to this one
	filterSenders = "gateways-" // the gateways that may send a kind of packet
)

// filter adds rules to the table against forged packets that decide what the node accepts and what
// it forwards, before the chains of iptables do: they drop a packet, or mark it for the constant
// rules that accept it there, or leave it to the CNI and to the firewall of the node.
type filter struct{ *dataplane.Ruleset }

// newFilter adds the chains to a table. No mark of another program is taken for one of ours, and
// none of ours stays on a packet when it leaves the hook.
func newFilter(t *dataplane.Ruleset) filter {
	const marked = dataplane.AcceptMark
	unmark := fmt.Sprintf("meta mark and %#x != 0x0 meta mark set meta mark and %#x", marked, ^uint32(marked))
	done := fmt.Sprintf("meta mark and %#x != 0x0 %s", marked, setAccept(0))
	for _, c := range []struct {
		name, hook string
		priority   int
		rule       string
	}{
		{"unmark-input", "input", unmarkPriority, unmark},
		{"unmark-forward", "forward", unmarkPriority, unmark},
		{"done-input", "input", donePriority, done},
		{"done-forward", "forward", donePriority, done},
	} {
		t.AddChain(c.name, "filter", c.hook, c.priority)
		t.Add(c.name, "%s", c.rule)
	}
	t.AddChain(filterInput, "filter", "input", filterPriority)
	t.AddChain(filterForward, "filter", "forward", filterPriority)
	return filter{t}
}

// setAccept sets the bits of AcceptMask in the mark of a packet.
func setAccept(value uint32) string {
	return fmt.Sprintf("meta mark set meta mark and %#x xor %#x", ^uint32(dataplane.AcceptMask), value)
}

// accept adds a rule that has iptables accept the packets that match, before the rules of others.
func (f filter) accept(chain, format string, args ...any) {
	f.Add(chain, "%s %s accept", fmt.Sprintf(format, args...), setAccept(dataplane.AcceptMark))
}

// acceptLast adds a rule that has iptables accept the packets that match if no rule of others
// decides about them.
func (f filter) acceptLast(format string, args ...any) {
	f.Add(filterForward, "%s meta mark and %#x == 0x0 %s accept", fmt.Sprintf(format, args...), dataplane.AcceptMark,
		setAccept(dataplane.AcceptLastMark))
}

// clamp adds a rule that clamps the TCP MSS to the MTU of the output device and of the route back.
func (f filter) clamp(chain, dev string) {
	f.Add(chain, "oifname %q tcp flags & (syn | rst) == syn tcp option maxseg size set rt mtu", dev)
}

// listen adds rules that accept a kind of packet from its senders and drop it from all others. They
// compare the senders with a set if there are many.
func (f filter) listen(l Listen, set string) {
	kind := "ip protocol " + l.Proto
	if l.Port != 0 {
		kind = fmt.Sprintf("%s dport %d", l.Proto, l.Port)
	}
	from := kind
	if l.Device != "" {
		from += fmt.Sprintf(" iifname %q", l.Device)
	}
	if l.IPsec {
		from += " meta secpath exists"
	}
	switch {
	case l.From == nil:
		if f.accept(filterInput, "%s", from); from == kind {
			return
		}
	case len(l.From) > fewPeers:
		elements := make([]string, len(l.From))
		for i, ip := range l.From {
			elements[i] = ip.String()
		}
		slices.Sort(elements)
		f.AddSet(dataplane.RuleSet{Name: set, Type: "ipv4_addr", Elements: slices.Compact(elements)})
		f.accept(filterInput, "%s ip saddr @%s", from, set)
	default:
		for _, ip := range slices.SortedFunc(slices.Values(l.From), netip.Addr.Compare) {
			f.accept(filterInput, "%s ip saddr %v", from, ip)
		}
	}
	f.Drop(filterInput, dataplane.DropUnknownSender, kind)
}

// echoes adds the rule that accepts the node's own echoes. from is their source: that with which
// they were sent, or another one that the table against forged packets gives them.
func (f filter) echoes(e Echo, from netip.Addr) {
	f.accept(filterInput, "udp dport %d iifname %q ip saddr %v ip daddr %v", e.Port, e.Dev, from, e.Own)
}

// noOtherEchoes adds the rule that drops all other datagrams to the port of echoes.
func (f filter) noOtherEchoes(port int) {
	f.Drop(filterInput, dataplane.DropUnknownSender, fmt.Sprintf("udp dport %d", port))
}

// forwardEchoes adds the rule that accepts the echoes of other nodes. The table against forged
// packets has dropped all packets to such addresses that are none.
func (f filter) forwardEchoes(chain string, e Echo) {
	f.accept(chain, "iifname %q oifname %[1]q ip daddr %v udp dport %d", e.Dev, e.Net(), e.Port)
}

// addFilter adds the rules of a gateway that decide about packets; see Plan.
func (c Cabling) addFilter(t *dataplane.Ruleset, devices []cableDevice, listens []Listen) {
	f := newFilter(t)
	local := prefix.Widest(slices.Concat(c.Local.Svcs, c.Local.Pods))
	f.AddSet(dataplane.RuleSet{
		Name: filterLocal, Type: "ipv4_addr", Flags: "interval", Elements: dataplane.Networks(local),
	})
	for i, l := range listens {
		f.listen(l, fmt.Sprint(filterSenders, i))
	}
	echoes := 0
	for _, d := range devices {
		f.AddSet(dataplane.RuleSet{
			Name: d.set(), Type: "ipv4_addr", Flags: "interval",
			Elements: dataplane.Networks(prefix.Widest(d.nets)),
		})
		if d.echo.Own.IsValid() {
			echoes = d.echo.Port
			f.echoes(d.echo, d.echo.Own)
		}
		f.Add(filterInput, "iifname %q jump to-node-%s", d.device, d.device)
		f.toNode(d, len(local) > 0)
		if d.carrier != "" {
			f.Drop(filterInput, dataplane.DropNotAccepted, fmt.Sprintf("iifname %q", d.carrier))
		}
	}
	if echoes != 0 {
		f.noOtherEchoes(echoes)
	}
	for _, d := range devices {
		c.forward(f, d, deviceNames(outputs(devices)))
	}
}

// set returns the name of the set of the networks behind the device.
func (d cableDevice) set() string { return "behind-" + d.device }

// toNode adds the chain for packets that arrive on the device for the node itself.
func (f filter) toNode(d cableDevice, hasLocal bool) {
	chain := "to-node-" + d.device
	for _, p := range prefix.Widest(d.probes) {
		f.accept(chain, "ip protocol icmp ip saddr %v", p)
	}
	if len(d.nets) > 0 {
		behind := "ip saddr @" + d.set()
		if hasLocal {
			ours := behind + " ip daddr @" + filterLocal
			f.accept(chain, "icmp type echo-request %s", ours)
			f.Add(chain, "%s accept", ours)
		}
		// Answers to the node's own connections whose source was translated to its address among
		// the pods: it has been translated back.
		f.Add(chain, "%s ct status snat ct direction reply accept", behind)
	}
	f.Drop(chain, dataplane.DropNotAccepted, "")
}

// forward adds the rules for packets that the gateway forwards through a device. Outgoing packets
// of our own nodes are accepted; the other end checks their source. Incoming packets are accepted
// only if their source is behind a cable of this device. So an attacker who can forge packets on a
// cable without encryption, or who controls its other end, cannot impersonate a cluster whose cable
// is encrypted.
//
// All packets that the node forwards traverse filterForward. So there are few rules, and those for
// most packets come first. Packets for our pods need no check of the output device: they follow the
// node's own routes.
//
// The SYN packets of both ends traverse the chain. The MSS of each is clamped to the smaller MTU of
// the output device and of the route back.
func (c Cabling) forward(f filter, d cableDevice, outputs []string) {
	const intra = dataplane.IntraDevice
	f.clamp(filterForward, d.device)
	f.accept(filterForward, "iifname %q oifname %q", intra, d.device)
	if d.carrier != "" {
		f.Drop(filterForward, dataplane.DropNotAccepted, fmt.Sprintf("iifname %q", d.carrier))
	}
	chain := "out-of-" + d.device
	f.Add(filterForward, "iifname %q jump %s", d.device, chain)
	f.clamp(chain, intra)
	sources := d.sourceMatches()
	for _, s := range sources {
		for _, p := range c.Local.Pods {
			f.accept(chain, "%s ip daddr %v oifname %q", s, p, intra)
			c.toUnknownPods(f, chain, s, p)
			f.Add(chain, "%s ip daddr %v return", s, p)
		}
	}
	for _, s := range sources {
		for _, n := range c.Local.Svcs {
			f.Add(chain, "%s ip daddr %v return", s, n)
		}
	}
	behind := "ip saddr @" + d.set()
	if len(d.nets) > 0 {
		// the rules against forged packets have dropped what is no answer to another gateway
		for _, n := range c.Local.Global {
			f.accept(chain, "%s ip daddr %v oifname %q", behind, n, intra)
		}
	}
	if d.echo.Own.IsValid() {
		f.forwardEchoes(chain, d.echo)
	}
	for _, out := range outputs { // even if kube-proxy chose the destination
		f.Drop(chain, dataplane.DropTransit, fmt.Sprintf("oifname %q", out))
	}
	if len(d.nets) > 0 {
		f.Add(chain, "%s ct status dnat return", behind)
	}
	f.Drop(chain, dataplane.DropNotAccepted, "")
}

// toUnknownPods adds the rules for packets to pods of other nodes, where the CNI brings them there,
// if this gateway may not have seen the beginning of their connection: another gateway has. The CNI
// chooses the gateway of one direction, and the other cluster chooses the gateway of the other
// direction. Connection tracking calls such packets INVALID, and kube-proxy's chain KUBE-FORWARD
// drops them. No such packet opens a connection. The pods of this node are left to the following
// chains, with the CNI's network policies: connection tracking has seen all packets of their
// connections. A pod behind a device whose name is not one of podDevices, such as a bridge that
// also leads to other nodes, counts as one of another node.
func (c Cabling) toUnknownPods(f filter, chain, source string, pods netip.Prefix) {
	if !c.Carried {
		return
	}
	match := fmt.Sprintf("%s ip daddr %v", source, pods)
	f.Add(chain, "%s ct state != invalid return", match)
	if c.Here.IsValid() {
		f.Add(chain, "%s ip daddr %v return", source, c.Here)
	}
	for _, dev := range podDevices {
		f.Add(chain, "%s oifname %q return", match, dev)
	}
	f.accept(chain, "%s", match)
}

// sourceMatches returns matches for the networks behind the device: one per network if there are
// few, otherwise one for their set. The networks announced last come first: these are the pod
// networks, and Service networks are not sources of packets.
func (d cableDevice) sourceMatches() (matches []string) {
	nets := slices.Clone(d.nets)
	if len(prefix.Widest(nets)) > fewNets {
		return []string{"ip saddr @" + d.set()}
	}
	slices.Reverse(nets)
	for _, n := range nets {
		if m := fmt.Sprintf("ip saddr %v", n.Masked()); !slices.Contains(matches, m) {
			matches = append(matches, m)
		}
	}
	return matches
}

// addFilter adds the rules of any node that decide about packets.
func (n Intra) addFilter(t *dataplane.Ruleset) {
	f := newFilter(t)
	f.listen(Listen{Proto: "udp", Port: dataplane.IntraPort, From: n.senders()}, filterNodes)
	if n.echoing() {
		f.echoes(n.echo(), n.echo().Returned())
		f.noOtherEchoes(dataplane.IntraEchoPort)
	}
	if !n.isGateway() { // on a gateway, the rules of Plan clamp the MSS
		f.clamp(filterForward, dataplane.IntraDevice)
	} else {
		n.detour(f)
	}
	if len(n.Remote) > 0 {
		n.acceptUndecided(f)
	}
}

// detour adds the rules of a gateway for packets that it forwards to another gateway of its
// cluster, as none of its own cables to the other cluster works, and for those that another gateway
// hands over, as that one has lost its way to a node. Packets from another gateway take no second
// detour, so there is no loop.
func (n Intra) detour(f filter) {
	if n.echoing() {
		f.forwardEchoes(filterForward, n.echo())
	}
	siblings := n.siblings()
	if len(siblings) == 0 {
		return
	}
	const chain = "detour"
	f.Add(filterForward, "iifname %q oifname %[1]q jump %s", dataplane.IntraDevice, chain)
	for _, pods := range prefix.Widest(n.Local.Pods) { // dataplane.NearTable leads straight to them
		f.accept(chain, "ip daddr %v", pods)
	}
	for _, g := range siblings {
		_, mac := VTEP(dataplane.IntraVTEPNet, g.IP)
		f.Drop(chain, dataplane.DropDetour, fmt.Sprintf("ether saddr %s", mac))
	}
	f.Add(chain, "%s accept", setAccept(dataplane.AcceptMark))
}

// acceptUndecided adds the rules for what a node forwards between its pods and other clusters. It
// is accepted if no rule of another program has decided about it: network policies that iptables
// applies still count, and not the policy DROP that Docker, ufw and administrators give to FORWARD,
// or a rule that rejects everything.
//
// Packets arrive on our devices, from sources that the rules against forged packets and, on a
// gateway, those of the cables have checked. kube-proxy may choose an address of a node as the
// destination behind a Service.
func (n Intra) acceptUndecided(f filter) {
	devices := []string{dataplane.IntraDevice}
	if n.isGateway() {
		cables := slices.Sorted(slices.Values(deviceNames(outputs(n.cableDevices()))))
		for _, dev := range cables {
			f.acceptLast("iifname %q ct status dnat", dev)
			f.acceptLast("oifname %q ct state established,related", dev)
		}
		devices = append(devices, cables...)
	}
	for _, dev := range devices {
		for _, pods := range prefix.Widest(n.Local.Pods) {
			f.acceptLast("ip daddr %v iifname %q", pods, dev)
			f.acceptLast("ip saddr %v oifname %q", pods, dev)
		}
	}
}

// acceptChain returns the chain of iptables that accepts what a filter has marked, first in INPUT
// or in FORWARD.
func acceptChain(o dataplane.Owner, hook string) dataplane.Chain {
	return dataplane.Chain{
		Table: "filter", Name: o.Chains + hook, Hook: hook, Rules: acceptMarked(dataplane.AcceptMark),
		Guard: dataplane.RulesetKey("ip", o.Antispoof),
	}
}

// lastChain returns the chain of iptables that accepts what acceptLast has marked, last in FORWARD.
func lastChain() dataplane.Chain {
	return dataplane.Chain{
		Table: "filter", Name: dataplane.RouteOwner.Chains + "LAST", Hook: "FORWARD", Last: true,
		Rules: acceptMarked(dataplane.AcceptLastMark),
		Guard: dataplane.RulesetKey("ip", dataplane.RouteOwner.Antispoof),
	}
}

// acceptMarked returns the rule of a chain of iptables that accepts packets with a mark.
func acceptMarked(mark uint32) []string {
	return []string{fmt.Sprintf("-m mark --mark %#x/%#x -j ACCEPT", mark, dataplane.AcceptMask)}
}
