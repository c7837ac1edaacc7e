package cable

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"subctl/dataplane"
)

// few is the number of networks that are compared one by one: each comparison costs a tenth of a
// lookup in a set of networks.
const few = 4

// isolation adds the rules that keep clusters apart:
//
//   - what arrives from another cluster has a destination in this one, whatever kube-proxy or the
//     CNI would make of it: the rules come before all translation and before connection tracking.
//     What arrives in VXLAN packets has other rules, see arriving;
//   - nothing is forwarded between the devices Apart, whatever routes there are, also if kube-proxy
//     chose the destination; and where there is a Local, nothing else from outside it is forwarded
//     to them, such as what another cluster sends to a node port;
//   - what arrives for a global address and is not translated is not forwarded, unless it answers
//     what another gateway of this cluster has translated and handed over: only to this gateway,
//     which has to know the connection;
//   - nothing from another cluster that another gateway of this cluster sends is forwarded to a
//     cable, for the same reason;
//   - what leaves to another cluster has a source in this one.
func (a Antispoof) isolation(t *dataplane.Ruleset) {
	if len(a.Own) > 0 {
		for _, d := range a.Out {
			t.Add("prerouting", "iifname %q %s jump drop-source", d, a.notOwn("ip daddr"))
			t.Add("postrouting", "oifname %q %s jump drop-destination", d, a.notOwn("ip saddr"))
		}
		a.leaving(t)
	}
	switch {
	case len(a.Local) > 0:
		a.abroad(t)
		a.apart(t)
	case len(a.Apart) == 1 && len(a.Global) == 0: // without a chain more
		t.Add("forward", "iifname %q oifname %[1]q jump drop-source", a.Apart[0])
	default:
		a.apart(t)
	}
	if len(a.Siblings) == 0 || len(a.Cables) == 0 || len(a.Remote) == 0 {
		return
	}
	for _, d := range a.Siblings {
		t.Add("forward", "iifname %q jump siblings", d)
	}
	for _, match := range a.notRemote() {
		t.Add("siblings", "%s return", match)
	}
	for _, match := range a.fromRemote() {
		t.Add("siblings", "%s jump handed", match)
	}
	for _, d := range a.Cables {
		t.Add("handed", "oifname %q jump drop-source", d)
	}
}

// notOwn matches addresses that are not in Own: key is "ip saddr" or "ip daddr".
func (a Antispoof) notOwn(key string) string {
	own := a.usuallyFirst(a.Own)
	var out []string
	for _, n := range own[:min(len(own), few)] {
		out = append(out, fmt.Sprintf("%s != %v", key, n))
	}
	return strings.Join(append(out, key+" != @own"), " ")
}

// leaving adds the rules about packets inside the VXLAN packets that this node sends: their source
// is in Own. A number, as which nft(8) takes the source inside, is in no set of networks, so all
// networks are compared.
func (a Antispoof) leaving(t *dataplane.Ruleset) {
	if !a.checksInside() {
		return
	}
	own := a.usuallyFirst(a.Own)
	var foreign []string
	for _, n := range own[:min(len(own), few)] {
		foreign = append(foreign, inNetwork(insideSource, "!=", n))
	}
	for _, p := range a.Ports {
		t.Add("output", "udp dport %d %s jump drop-leaving", p, strings.Join(foreign, " "))
	}
	for _, n := range own[min(len(own), few):] {
		t.Add("drop-leaving", "%s return", inNetwork(insideSource, "==", n))
	}
}

// abroad adds the rules about what is forwarded to a device of Apart: it comes from Local, or is
// the answer to a connection that another cluster began, perhaps to a Service with a backend
// outside Local: its source is translated back later. What arrives on a device of Apart leaves on
// none, and counts for the cluster of its source.
func (a Antispoof) abroad(t *dataplane.Ruleset) {
	if len(a.Apart) == 0 {
		return
	}
	var foreign []string
	for _, n := range a.usuallyFirst(a.Local) {
		foreign = append(foreign, fmt.Sprintf("ip saddr != %v", n))
	}
	for _, d := range a.Apart { // the name last: it takes the longest to compare, and most packets are from Local
		t.Add("forward", "%s oifname %q jump abroad", strings.Join(foreign, " "), d)
	}
	for _, d := range a.Apart {
		t.Add("abroad", "iifname %q jump drop-source", d)
	}
	t.Add("abroad", "ct direction reply return")
	if len(a.Clusters) > 0 {
		t.Drop("abroad", dataplane.DropTransit, "ip saddr @clusters")
	}
	offered := "ct status dnat"
	if len(a.Nodes) > 0 {
		offered += " " + notOn("iifname", a.Nodes)
	}
	t.Add("abroad", "%s return", offered)
	t.Add("abroad", "jump drop-destination")
}

// apart adds the rules about what arrives on a device of Apart: it leaves on none of them, which
// abroad ensures if there is a Local, and is not for Global, unless it is an answer for another
// gateway.
func (a Antispoof) apart(t *dataplane.Ruleset) {
	if len(a.Local) > 0 && len(a.Global) == 0 {
		return
	}
	for _, d := range a.Apart {
		t.Add("forward", "iifname %q jump apart", d)
	}
	for _, d := range a.Apart {
		if len(a.Local) == 0 {
			t.Add("apart", "oifname %q jump drop-source", d)
		}
	}
	for _, n := range a.Global {
		for _, d := range a.Between {
			t.Add("apart", "ip daddr %v ct direction reply oifname %q return", n, d)
			t.Add("forward", "ip daddr %v iifname %q jump drop-source", n, d)
		}
		if len(a.Apart) > 0 {
			t.Add("apart", "ip daddr %v jump drop-source", n)
		}
	}
}

// unforwarded adds the rules that drop packets to the networks of Unforwarded.
func (a Antispoof) unforwarded(t *dataplane.Ruleset) {
	if len(a.Unforwarded) == 0 {
		return
	}
	t.Add("forward", "%sjump unforwarded", around("ip daddr", a.Unforwarded))
	a.passEchoes(t, "unforwarded", "iifname", "oifname")
	for _, n := range a.Unforwarded {
		t.Drop("unforwarded", dataplane.DropDevice, fmt.Sprintf("ip daddr %v", n))
	}
}

// transit adds the rules about packets that the node forwards from one end of a cable to another.
func (a Antispoof) transit(t *dataplane.Ruleset) {
	if len(a.Ends) == 0 || len(a.Transit) == 0 {
		return
	}
	t.Add("forward", "ip protocol udp jump ports")
	for _, p := range a.Transit {
		t.Add("ports", "udp dport %d ip daddr @ends jump transit", p)
	}
	t.Drop("transit", dataplane.DropForged, "ip saddr != @ends")
	t.Drop("transit", dataplane.DropForged, "fib saddr . iif oif missing")
}

// closed adds the rules that close the ports of Closed to other clusters. These are also ports from
// which the node may connect to others (net.ipv4.ip_local_port_range): the answers arrive. No
// packet opens a connection as an answer to one that was before.
func (a Antispoof) closed(t *dataplane.Ruleset) {
	if a.Closed.Max == 0 {
		return
	}
	t.Add("input", "tcp dport %d-%d jump closed", a.Closed.Min, a.Closed.Max)
	t.Add("closed", "ct direction reply tcp flags & (syn | ack) != syn return")
	if len(a.Unforwarded) > 0 {
		t.Drop("closed", dataplane.DropPort, strings.TrimSpace(around("ip saddr", a.Unforwarded)))
	}
	for _, match := range a.fromRemote() {
		t.Drop("closed", dataplane.DropPort, match)
	}
	for _, d := range a.ClosedOn {
		t.Drop("closed", dataplane.DropPort, fmt.Sprintf("iifname %q", d))
	}
}

// foreign adds the rules that drop packets from networks of Remote to those of Protected that
// arrive on other devices than In, and count them.
func (a Antispoof) foreign(t *dataplane.Ruleset) {
	if len(a.Remote) == 0 || len(a.In) == 0 {
		return
	}
	usual := func(chain string) {
		for _, d := range a.Usual {
			t.Add(chain, "iifname %q accept", d)
		}
	}
	from := a.fromRemote()
	if len(a.Remote) <= few {
		from = nil
		for _, n := range a.Remote {
			from = append(from, fmt.Sprintf("ip saddr %v", n))
		}
	}
	// To compare the name of a device takes longer than to compare a source or to find it in a
	// hash, and less time than to find it in a set of intervals. What arrives from Remote would
	// need the lookup and the name. So the names come first, unless notRemote accepts nothing by
	// the network around Remote: then all packets of the node would be compared with names, in
	// place of a lookup in a hash.
	intervals, _ := a.remoteSets()
	for _, match := range a.notRemote() {
		t.Add("prerouting", "%s accept", match)
	}
	_, beyond := a.beyondRemote()
	early := beyond || intervals != nil
	if early {
		usual("prerouting")
	}
	for _, match := range from {
		t.Add("prerouting", "%s jump foreign", match)
	}
	if !early {
		usual("foreign")
	}
	others := notOn("iifname", a.In)
	if len(a.Protected) == 0 {
		t.Add("foreign", "%s jump drop-beside", others)
		return
	}
	t.Add("foreign", "%s jump beside", others)
	for _, n := range a.usuallyFirst(a.Protected) {
		t.Add("beside", "ip daddr %v jump drop-beside", n)
	}
}

// notRemote returns matches of sources that need no lookup to see that they are not in Remote: pods
// of this cluster, and most nodes.
func (a Antispoof) notRemote() (out []string) {
	if len(a.Remote) <= few {
		return nil
	}
	for _, n := range a.Usually[:min(len(a.Usually), few)] {
		if !slices.ContainsFunc(a.Remote, n.Overlaps) {
			out = append(out, fmt.Sprintf("ip saddr %v", n))
		}
	}
	if n, ok := a.beyondRemote(); ok {
		out = append(out, fmt.Sprintf("ip saddr != %v", n))
	}
	return out
}

// beyondRemote returns the smallest network around Remote. It is false if there is nothing outside,
// or if Remote are few.
func (a Antispoof) beyondRemote() (netip.Prefix, bool) {
	if len(a.Remote) <= few {
		return netip.Prefix{}, false
	}
	n := smallest(a.Remote)
	return n, n.Bits() > 0
}

// remoteSets returns the elements of the set "remote", and those of the sets for a mask: one of
// them has all networks of Remote.
func (a Antispoof) remoteSets() (intervals, hashed []netip.Prefix) {
	if len(masks(a.Remote)) > few {
		return a.Remote, nil
	}
	return nil, a.Remote
}

// remoteByMask returns the networks of Remote by their numbers of bits, if they are few.
func (a Antispoof) remoteByMask() map[int][]netip.Prefix {
	out := map[int][]netip.Prefix{}
	_, hashed := a.remoteSets()
	for _, n := range hashed {
		out[n.Bits()] = append(out[n.Bits()], n)
	}
	return out
}

// fromRemote returns the matches of packets from Remote.
func (a Antispoof) fromRemote() (out []string) {
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

// counting adds the rules of the chains that drop and count packets. The lookup of an element of
// "clusters" increments its counter. A packet that leaves on a device of a cable counts for the
// cluster of its destination, or for the cluster to which a route leads it; one in a VXLAN packet
// that leaves, for the destination inside, or else for that of the VXLAN packet; one that has
// arrived in a VXLAN packet, for the sender.
func (a Antispoof) counting(t *dataplane.Ruleset) {
	counts := len(a.Clusters) > 0
	if t.Mentions("jump drop-source") {
		a.passEchoes(t, "drop-source", "iifname")
		if counts {
			t.Drop("drop-source", dataplane.DropFromElsewhere, "ip saddr @clusters")
		}
		t.Drop("drop-source", dataplane.DropFromElsewhere, "")
	}
	if t.Mentions("jump drop-beside") {
		if counts {
			t.Drop("drop-beside", dataplane.DropBeside, "ip saddr @clusters")
		}
		t.Drop("drop-beside", dataplane.DropBeside, "")
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
	if !t.Mentions("jump drop-leaving") {
		return
	}
	for _, port := range a.echoPorts() {
		t.Add("drop-leaving", "%s . %s @echo %s 0x45 %s & 0x3fff == 0 %s 17 %s %d accept", insideSource,
			insideDestination, insideHeader, insideFragment, insideProtocol, insidePort, port)
	}
	if counts {
		// Nobody will read the addresses of the packet. As an address of its own, the destination
		// inside can be looked up among networks.
		t.Add("drop-leaving", "ip saddr set ip daddr ip daddr set %s", insideDestination)
		t.Drop("drop-leaving", dataplane.DropToElsewhere, "ip daddr @clusters")
		t.Drop("drop-leaving", dataplane.DropToElsewhere, "ip saddr @clusters")
	}
	t.Drop("drop-leaving", dataplane.DropToElsewhere, "")
}

// usuallyFirst returns networks in another order: those of most packets, and then the widest first.
func (a Antispoof) usuallyFirst(nets []netip.Prefix) []netip.Prefix {
	rare := func(p netip.Prefix) int {
		if slices.Contains(a.Usually, p) {
			return 0
		}
		return 1
	}
	return slices.SortedStableFunc(slices.Values(nets), func(p, q netip.Prefix) int {
		return cmp.Or(cmp.Compare(rare(p), rare(q)), cmp.Compare(p.Bits(), q.Bits()))
	})
}

// around matches addresses in the smallest network that contains all networks; with a space behind,
// or nothing if that is all addresses.
func around(key string, nets []netip.Prefix) string {
	if n := smallest(nets); n.Bits() > 0 {
		return fmt.Sprintf("%s %v ", key, n)
	}
	return ""
}

// smallest returns the smallest network that contains all networks.
func smallest(nets []netip.Prefix) netip.Prefix {
	out := nets[0]
	for slices.ContainsFunc(nets, func(n netip.Prefix) bool {
		return n.Bits() < out.Bits() || !out.Contains(n.Addr())
	}) {
		out = netip.PrefixFrom(out.Addr(), out.Bits()-1).Masked()
	}
	return out
}
