package cable

import (
	"fmt"
	"net/netip"

	"subctl/dataplane"
)

// returnPriority is the priority of the chains of returnPath: after connection tracking (-200),
// before the translation of destinations (-100), like "mangle" of iptables.
const returnPriority = -150

// returnPath remembers through which gateway of its own cluster a connection from another cluster
// arrives, and marks its replies, so that a MarkRule routes them to this gateway: it may have
// translated the connection's destination, and nobody else can translate the replies back.
//
// The gateway is remembered in bits of the connection mark: it is the gateway that sent the last
// packet in the original direction. So a connection that continues through another gateway is
// answered through that one.
//
// A reply does not go back to the gateway that has just sent it: that one remembers no gateway for
// the connection, or this one, and the packet would go round in circles.
//
// An ICMP error that belongs to a connection does not change the connection's mark: it may take
// another way than the connection. If it goes in the direction of the replies, it gets their mark,
// as the gateway translates the packet inside it, too.
//
// A worker also chooses a gateway for each new connection to another cluster, at random, by the
// weights of the gateways, and remembers it in the same bits. So connections between the same two
// hosts spread over the gateways, which a next hop group does by addresses only, unless the node
// says otherwise (net.ipv4.fib_multipath_hash_policy); and no connection moves because a gateway
// comes, returns, or gets another weight. If a gateway is down, the next packet of each of its
// connections chooses another one.
//
// Once it is routed, a packet loses the mark: a VXLAN device also routes the packet around it by
// the mark (vxlan_get_route in drivers/net/vxlan/vxlan_core.c), which would lead back to the
// device.
type returnPath struct {
	// cables are devices on which packets of other clusters arrive at a gateway, as names in
	// nftables. A connection that arrives on them arrives through no other gateway. Replies are not
	// marked: a connection from a pod may come from another gateway that has lost its cable, and
	// its replies go straight to the pod.
	cables   []string
	gateways []returnGateway
	// near is the network of IntraDevice, to whose addresses packets go straight: no gateway is
	// chosen for them.
	near netip.Prefix
	// direct specifies that the answers of connections with DirectMark, which did not arrive
	// through a gateway, get the mark, too. Nothing else in the table is about them. Without
	// gateways, the table has nothing else.
	direct bool
}

// returnGateway is a gateway of this cluster.
type returnGateway struct {
	mac  string // of its IntraDevice
	mark uint32 // bits of ReturnMask, not 0
	// weight is its share of the new connections of this node, as part of the sum of all weights.
	// With 0, it gets none.
	weight int
	// down specifies that the connections of this node that go through it choose again, if another
	// one has a weight. A gateway that has not answered for a short time only is not down: it has
	// no weight, and the connections take other gateways by the group of its routes.
	down bool
}

// table returns the table with the rules. Most packets of a node have nothing to do with other
// clusters, and pass three rules.
func (r returnPath) table() dataplane.Ruleset {
	t := dataplane.Ruleset{Family: dataplane.ReturnsTable.Family, Table: dataplane.ReturnsTable.Name}
	t.AddChain("prerouting", "filter", "prerouting", returnPriority)
	// Packets are routed again if the mark has changed: the node's own packets have a route
	// already.
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
	chooses := r.chosen(&t)
	const dev = dataplane.IntraDevice
	if len(r.cables) > 0 {
		t.Add("prerouting", "iifname %q %s ct direction reply goto marked", dev, hasMark("ct"))
	}
	t.Add("prerouting", "iifname %q goto arrived", dev)
	far := ""
	if r.near.IsValid() {
		far = fmt.Sprintf(" ip daddr != %v", r.near)
	}
	for _, way := range []struct{ chain, device, routes string }{
		{chain: "prerouting", routes: fmt.Sprintf(" fib daddr oifname %q", dev)},
		{chain: "output", device: fmt.Sprintf("oifname %q ", dev)},
	} {
		for _, g := range r.gateways {
			if g.down && chooses {
				t.Add(way.chain, "%sct direction original %s%s%s goto chosen", way.device, isMarked(g.mark), far,
					way.routes)
			}
		}
		t.Add(way.chain, "%s goto marked", hasMark("ct"))
		if chooses {
			t.Add(way.chain, "%sct state new%s%s goto chosen", way.device, far, way.routes)
		}
	}
	t.Add("postrouting", "%s oifname %q %s accept", hasMark("meta"), dev, setMark("meta", 0))
	return t
}

// arrived adds the rules about packets that arrive from a gateway.
func (r returnPath) arrived(t *dataplane.Ruleset) {
	t.Add("arrived", "ct direction reply accept")
	t.Add("arrived", "ct state related accept")
	for _, g := range r.gateways {
		t.Add("arrived", "ether saddr %s %s accept", g.mac, isMarked(g.mark))
		t.Add("arrived", "ether saddr %s %s accept", g.mac, setMark("ct", g.mark))
	}
	t.Add("arrived", "%s %s accept", hasMark("ct"), setMark("ct", 0)) // now from no gateway
}

// marked adds the rules about packets of connections that have a mark.
func (r returnPath) marked(t *dataplane.Ruleset) {
	for _, c := range r.cables {
		t.Add("marked", "iifname %q goto arrived", c)
	}
	if r.weights() == 0 {
		t.Add("marked", "ct direction original accept")
	}
	for _, g := range r.gateways {
		if len(r.cables) > 0 {
			t.Add("marked", "iifname %q ether saddr %s %s accept", dataplane.IntraDevice, g.mac, isMarked(g.mark))
		}
		t.Add("marked", "%s %s accept", isMarked(g.mark), setMark("meta", g.mark))
	}
}

// chosen adds the rules that choose a gateway, and reports whether there is one to choose.
func (r returnPath) chosen(t *dataplane.Ruleset) bool {
	left := r.weights()
	chooses := left > 0
	for _, g := range r.gateways {
		if g.weight == 0 {
			continue
		}
		random := ""
		if left > g.weight { // the last one needs no number
			random = fmt.Sprintf("numgen random mod %d < %d ", left, g.weight)
		}
		t.Add("chosen", "%s%s %s accept", random, setMark("ct", g.mark), setMark("meta", g.mark))
		left -= g.weight
	}
	return chooses
}

// weights returns the sum of all weights.
func (r returnPath) weights() (sum int) {
	for _, g := range r.gateways {
		sum += g.weight
	}
	return sum
}

// hasMark matches packets ("meta") or connections ("ct") that have a mark of the return path.
func hasMark(of string) string {
	return fmt.Sprintf("%s mark and %#x != 0x0", of, dataplane.ReturnMask)
}

// isMarked matches connections with a mark.
func isMarked(mark uint32) string {
	return fmt.Sprintf("ct mark and %#x == %#x", dataplane.ReturnMask, mark)
}
