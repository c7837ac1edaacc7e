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

// with returns the offer of a node with other engines.
func (o Offer) with(e members.Engines) Offer {
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

// Elsewhere is a gateway of another cluster to which this node can make no cable.
type Elsewhere struct {
	cable.Reached
	Encrypts bool // whether the cable that policy decides on encrypts
}

// elsewhere adds a peer that this node refuses, if policy decides on a cable for it. It does not if
// policy has a mistake, or leaves the two clusters apart, nor if this node itself needs to reach a
// network of the peer.
func (c *chooser) elsewhere(p cable.Peer) {
	d := c.decided
	if d == nil {
		return
	}
	if in, _ := cable.StandIn(d, drivers.All(), c.offer.Local.Gateway, p.Gateway); in != nil {
		d = in
	}
	p.Config = c.offer.Settings[d.Name()].With(p.Shared)
	made := cable.Cable{Peer: p, Driver: d}
	c.out.Elsewhere = append(c.out.Elsewhere, Elsewhere{
		cable.Reached{
			Cluster: p.Cluster,
			Subnets: p.Subnets,
			MTU:     made.MTU(c.offer.Local),
			Device:  made.Device(),
		}, d.Properties().Encrypts,
	})
}

// unconnected returns the gateways of clusters to which this node makes no cable.
func (c Cables) unconnected(all []Elsewhere) []Elsewhere {
	connected := map[string]bool{}
	for _, w := range c.Wanted {
		connected[w.Cluster] = true
	}
	return slices.DeleteFunc(all, func(e Elsewhere) bool { return connected[e.Cluster] })
}

// secret returns the clusters of Elsewhere to which packets may leave encrypted only.
func (c Cables) secret() map[string]bool {
	out := map[string]bool{}
	for _, e := range c.Elsewhere {
		out[e.Cluster] = out[e.Cluster] || e.Encrypts
	}
	return out
}

// throughAny makes Cables the cables that any gateway of this cluster can have, and returns the
// networks behind them. Where gateways have different cables to the same gateway, Cables has one of
// them, and the networks are returned for each.
func (m *Mesh) throughAny() (out []cable.Reached) {
	add := func(cables []cable.Cable, l cable.Local) {
		for _, c := range cables {
			out = append(out, cable.Reached{Cluster: c.Cluster, Subnets: c.Subnets, MTU: c.MTU(l), Device: c.Device()})
		}
	}
	add(m.Cables.Wanted, m.Offer.Local)
	for _, e := range m.Membership.Others {
		o := m.Offer.with(e)
		c := connect(m.Snapshot, m.Membership, o, m.Accepted)
		add(c.Wanted, o.Local)
		m.Cables = m.Cables.or(c)
	}
	return out
}

// or returns the cables of gateways with different engines: those in c, and those in other to
// gateways to which c has none. It has no Placeless and no Elsewhere, which are about one gateway.
func (c Cables) or(other Cables) Cables {
	out := Cables{
		Wanted:    slices.Clone(c.Wanted),
		Endpoints: either(c.Endpoints, other.Endpoints),
		Kept:      either(c.Kept, other.Kept),
		InPlace:   either(c.InPlace, other.InPlace),
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
	out.Refused = both(c.Refused, other.Refused, Refusal.id)
	out.Barred = both(c.Barred, other.Barred, func(n netip.Prefix) netip.Prefix { return n })
	out.Waiting = pending(wanted, c.Waiting, other.Waiting)
	out.Spared = pending(wanted, c.Spared, other.Spared)
	return out
}

// id identifies the endpoint of a refusal.
func (r Refusal) id() [2]string { return [2]string{r.Spec.ClusterID, r.Spec.CableName} }

// both returns the elements of a whose ID an element of b has, too.
func both[T any, ID comparable](a, b []T, id func(T) ID) []T {
	in := map[ID]bool{}
	for _, x := range b {
		in[id(x)] = true
	}
	return slices.DeleteFunc(slices.Clone(a), func(x T) bool { return !in[id(x)] })
}

// either returns the entries of a and b. Where both have a key, the entry is the one of a.
func either[V any](a, b map[string]V) map[string]V {
	out := maps.Clone(b)
	maps.Copy(out, a)
	return out
}

// pending returns the refusals in a and b, one for each endpoint, except for endpoints to which a
// cable is wanted.
func pending(wanted map[string]bool, a, b []Refusal) (out []Refusal) {
	seen := maps.Clone(wanted)
	for _, r := range slices.Concat(a, b) {
		if !seen[r.Spec.CableName] {
			seen[r.Spec.CableName] = true
			out = append(out, r)
		}
	}
	return out
}
