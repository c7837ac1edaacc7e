package cable

import (
	"fmt"
	"net/netip"

	"subctl/dataplane"
)

// returnPriority is the priority of the chains of returnPath: after connection tracking (-200),
// before the translation of destinations (-100), like "mangle" of iptables.
const returnPriority = -150

// returnPath is the input of the table that returns replies through the right gateway. The table
// stores the gateway of this cluster through which a connection from another cluster arrived, and
// marks the replies, so that a MarkRule routes them to this gateway. The gateway may have
// translated the destination of the connection, and no other node can translate the replies back.
//
// The gateway is stored in bits of the connection mark. It is the gateway that sent the last packet
// in the original direction. So if a connection moves to another gateway, its replies follow.
//
// A reply is not sent back to the gateway that has just forwarded it. That gateway has no gateway
// for the connection, or this node, so the packet would loop.
//
// An ICMP error does not change the mark of its connection, because it may arrive through another
// gateway. An error in the direction of the replies gets their mark: the gateway also translates
// the packet inside the error.
//
// A worker also chooses a gateway for each new connection to another cluster, at random and by
// weight, and stores it in the same bits. This spreads the connections between two hosts over all
// gateways. A next hop group cannot do this, because it hashes addresses only (unless
// net.ipv4.fib_multipath_hash_policy is set). No connection moves when a gateway is added, returns,
// or gets another weight. If a gateway is down, the next packet of each of its connections chooses
// another one.
//
// The mark is removed after routing. A VXLAN device routes the outer packet by the mark, too
// (vxlan_get_route in drivers/net/vxlan/vxlan_core.c), and the mark would lead back to the device.
type returnPath struct {
	// cables are the devices of cables on a gateway, as names in nftables. A connection that
	// arrives on them gets no gateway. Its replies are not marked: the connection may come from a
	// pod through a gateway without a cable, and the replies are routed directly to the pod.
	cables   []string
	gateways []returnGateway
	// intraNet is the network of IntraDevice. Packets to its addresses need no gateway.
	intraNet netip.Prefix
	// direct specifies that replies of connections with DirectMark, which did not arrive through a
	// gateway, are marked, too. Without gateways, the table has no other rules.
	direct bool
}

// returnGateway is a gateway of this cluster.
type returnGateway struct {
	mac  string // of its IntraDevice
	mark uint32 // bits of ReturnMask, not 0
	// weight is its share of the new connections of this node, relative to the sum of all weights.
	// A gateway with weight 0 gets none.
	weight int
	// down specifies that connections through this gateway choose another one, if there is one with
	// a weight. A gateway that stopped answering a moment ago is not down, but has weight 0: its
	// connections use other gateways through the next hop group of its routes.
	down bool
}

// table returns the table. Most packets of a node are neither from nor for other clusters, and pass
// three rules.
func (r returnPath) table() dataplane.Ruleset {
	t := dataplane.Ruleset{Family: dataplane.ReturnsTable.Family, Table: dataplane.ReturnsTable.Name}
	t.AddChain("prerouting", "filter", "prerouting", returnPriority)
	// This type routes the node's own packets a second time if their mark changes: they are routed
	// before this hook.
	t.AddChain("output", "route", "output", returnPriority)
	if r.direct {
		t.Add("marked", "ct direction reply %s %s accept", isMarked(dataplane.DirectMark),
			setMark("meta", dataplane.DirectMark))
		t.Add("marked", "%s accept", isMarked(dataplane.DirectMark))
	}
	if len(r.gateways) == 0 {
		t.Add("prerouting", "%s goto marked", hasMark("ct"))
		t.Add("output", "%s goto marked", hasMark("ct"))
		return t
	}
	t.AddChain("postrouting", "filter", "postrouting", returnPriority)
	r.arrived(&t)
	r.marked(&t)
	r.choose(&t)
	chooses := r.totalWeight() > 0
	const dev = dataplane.IntraDevice
	if len(r.cables) > 0 {
		t.Add("prerouting", "iifname %q %s ct direction reply goto marked", dev, hasMark("ct"))
	}
	t.Add("prerouting", "iifname %q goto arrived", dev)
	far := ""
	if r.intraNet.IsValid() {
		far = fmt.Sprintf(" ip daddr != %v", r.intraNet)
	}
	for _, hook := range []struct{ chain, device, route string }{
		{chain: "prerouting", route: fmt.Sprintf(" fib daddr oifname %q", dev)},
		{chain: "output", device: fmt.Sprintf("oifname %q ", dev)},
	} {
		for _, g := range r.gateways {
			if g.down && chooses {
				t.Add(hook.chain, "%sct direction original %s%s%s goto choose", hook.device, isMarked(g.mark), far,
					hook.route)
			}
		}
		t.Add(hook.chain, "%s goto marked", hasMark("ct"))
		if chooses {
			t.Add(hook.chain, "%sct state new%s%s goto choose", hook.device, far, hook.route)
		}
	}
	t.Add("postrouting", "%s oifname %q %s accept", hasMark("meta"), dev, setMark("meta", 0))
	return t
}

// arrived adds the rules for packets from a gateway. They store the gateway as the mark of the
// connection.
func (r returnPath) arrived(t *dataplane.Ruleset) {
	t.Add("arrived", "ct direction reply accept")
	t.Add("arrived", "ct state related accept")
	for _, g := range r.gateways {
		t.Add("arrived", "ether saddr %s %s accept", g.mac, isMarked(g.mark))
		t.Add("arrived", "ether saddr %s %s accept", g.mac, setMark("ct", g.mark))
	}
	t.Add("arrived", "%s %s accept", hasMark("ct"), setMark("ct", 0)) // the sender is not a gateway any more
}

// marked adds the rules for packets of connections with a mark. They copy the mark to the packet.
func (r returnPath) marked(t *dataplane.Ruleset) {
	for _, c := range r.cables {
		t.Add("marked", "iifname %q goto arrived", c)
	}
	if r.totalWeight() == 0 {
		t.Add("marked", "ct direction original accept")
	}
	for _, g := range r.gateways {
		if len(r.cables) > 0 {
			t.Add("marked", "iifname %q ether saddr %s %s accept", dataplane.IntraDevice, g.mac, isMarked(g.mark))
		}
		t.Add("marked", "%s %s accept", isMarked(g.mark), setMark("meta", g.mark))
	}
}

// choose adds the rules that choose a gateway by weight.
func (r returnPath) choose(t *dataplane.Ruleset) {
	left := r.totalWeight()
	for _, g := range r.gateways {
		if g.weight == 0 {
			continue
		}
		random := ""
		if left > g.weight { // the last gateway gets all that is left
			random = fmt.Sprintf("numgen random mod %d < %d ", left, g.weight)
		}
		t.Add("choose", "%s%s %s accept", random, setMark("ct", g.mark), setMark("meta", g.mark))
		left -= g.weight
	}
}

// totalWeight returns the sum of all weights.
func (r returnPath) totalWeight() (sum int) {
	for _, g := range r.gateways {
		sum += g.weight
	}
	return sum
}

// hasMark matches packets ("meta") or connections ("ct") with a mark in ReturnMask.
func hasMark(of string) string {
	return fmt.Sprintf("%s mark and %#x != 0x0", of, dataplane.ReturnMask)
}

// isMarked matches connections with this mark in ReturnMask.
func isMarked(mark uint32) string {
	return fmt.Sprintf("ct mark and %#x == %#x", dataplane.ReturnMask, mark)
}
