package mesh

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"subctl/agent/mesh/members"
	"subctl/cable"
	"subctl/cable/drivers"
)

// withEngines returns the offer of a node with other engines.
func (o Offer) withEngines(e members.Engines) Offer {
	o.Local.WireGuard = e.WireGuard
	o.Local.IPsec = e.IPsec
	o.Drivers = nil
	for _, d := range o.Listed {
		if d.Lacks(o.Local) == nil {
			o.Drivers = append(o.Drivers, d)
		}
	}
	return o
}

// SiblingGateway is a gateway of another cluster to which this node can make no cable.
type SiblingGateway struct {
	cable.Reached
	Encrypts bool // whether the cable that policy decides on encrypts
}

// addViaSibling adds a peer that this node refuses, if policy decides on a cable for it. It does
// not if policy has a mistake, or leaves the two clusters apart, nor if this node itself needs to
// reach a network of the peer.
func (c *chooser) addViaSibling(p cable.Peer) {
	d := c.decided
	if d == nil {
		return
	}
	if in, _ := cable.StandIn(d, drivers.All(), c.offer.Local.Gateway, p.Gateway); in != nil {
		d = in
	}
	p.Config = c.offer.Settings[d.Name()].With(p.Shared)
	made := cable.Cable{Peer: p, Driver: d}
	c.out.ViaSibling = append(c.out.ViaSibling, SiblingGateway{
		cable.Reached{
			Cluster: p.Cluster,
			Subnets: p.Subnets,
			MTU:     made.MTU(c.offer.Local),
			Device:  made.Device(),
		}, d.Properties().Encrypts,
	})
}

// unconnected returns the gateways of clusters to which this node makes no cable.
func (c Cables) unconnected(all []SiblingGateway) []SiblingGateway {
	connected := map[string]bool{}
	for _, w := range c.Wanted {
		connected[w.Cluster] = true
	}
	return slices.DeleteFunc(all, func(e SiblingGateway) bool { return connected[e.Cluster] })
}

// encryptedOnly returns the clusters of ViaSibling to which packets may leave only encrypted.
func (c Cables) encryptedOnly() map[string]bool {
	out := map[string]bool{}
	for _, e := range c.ViaSibling {
		out[e.Cluster] = out[e.Cluster] || e.Encrypts
	}
	return out
}

// addOtherGateways adds the cables of all other gateways of this cluster to Cables, and returns the
// networks behind them. If several gateways have different cables to the same remote gateway,
// Cables has one of them, and the networks are returned for each.
func (m *Mesh) addOtherGateways() (out []cable.Reached) {
	add := func(cables []cable.Cable, l cable.Local) {
		for _, c := range cables {
			out = append(out, cable.Reached{Cluster: c.Cluster, Subnets: c.Subnets, MTU: c.MTU(l), Device: c.Device()})
		}
	}
	add(m.Cables.Wanted, m.Offer.Local)
	for _, e := range m.Membership.Others {
		o := m.Offer.withEngines(e)
		c := connect(m.Snapshot, m.Membership, o, m.Accepted)
		add(c.Wanted, o.Local)
		m.Cables = m.Cables.merge(c)
	}
	return out
}

// merge returns the cables of gateways with different engines: all cables of c, and the cables of
// other to gateways without a cable in c. NoSlot and ViaSibling are empty, as they describe a
// single gateway.
func (c Cables) merge(other Cables) Cables {
	out := Cables{
		Wanted:         slices.Clone(c.Wanted),
		Endpoints:      union(c.Endpoints, other.Endpoints),
		KeptReasons:    union(c.KeptReasons, other.KeptReasons),
		StandInReasons: union(c.StandInReasons, other.StandInReasons),
	}
	wanted := map[string]bool{}
	for _, w := range c.Wanted {
		wanted[w.Name] = true
	}
	for _, w := range other.Wanted {
		if !wanted[w.Name] {
			wanted[w.Name] = true
			out.Wanted = append(out.Wanted, w)
		}
	}
	slices.SortFunc(out.Wanted, func(a, b cable.Cable) int { return strings.Compare(a.Name, b.Name) })
	out.Refused = intersection(c.Refused, other.Refused, Refusal.id)
	out.Blackholed = intersection(c.Blackholed, other.Blackholed, func(n netip.Prefix) netip.Prefix { return n })
	out.Pending = unionOfPending(wanted, c.Pending, other.Pending)
	out.NotNeeded = unionOfPending(wanted, c.NotNeeded, other.NotNeeded)
	return out
}

// id identifies the endpoint of a refusal.
func (r Refusal) id() [2]string { return [2]string{r.Spec.ClusterID, r.Spec.CableName} }

// intersection returns the elements of a whose ID an element of b has, too.
func intersection[T any, ID comparable](a, b []T, id func(T) ID) []T {
	in := map[ID]bool{}
	for _, x := range b {
		in[id(x)] = true
	}
	return slices.DeleteFunc(slices.Clone(a), func(x T) bool { return !in[id(x)] })
}

// union returns the entries of a and b. If both have a key, the result has the entry of a.
func union[V any](a, b map[string]V) map[string]V {
	out := maps.Clone(b)
	maps.Copy(out, a)
	return out
}

// unionOfPending returns the refusals in a and b, one for each endpoint, except for endpoints to
// which a cable is wanted.
func unionOfPending(wanted map[string]bool, a, b []Refusal) (out []Refusal) {
	seen := maps.Clone(wanted)
	for _, r := range slices.Concat(a, b) {
		if !seen[r.Spec.CableName] {
			seen[r.Spec.CableName] = true
			out = append(out, r)
		}
	}
	return out
}
