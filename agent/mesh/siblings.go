package mesh

import (
	"slices"

	"subctl/agent/mesh/members"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/cable/drivers"
)

// This file is about clusters with several gateways that have cables. A cable whose other end does
// not answer carries nothing while there is another way to its cluster: another cable, or another
// gateway of this cluster.

// withAlternatives returns the clusters to which there may be several ways, given what carried the
// traffic before.
func withAlternatives(m members.Membership, c Cables, used map[string]role.Using) map[string]bool {
	siblings := len(m.Siblings()) > 0
	out := map[string]bool{}
	for _, w := range c.Wanted {
		_, another := out[w.Cluster]
		out[w.Cluster] = siblings || another
	}
	for _, w := range c.NoSlot {
		if _, ok := used[w.Name]; ok {
			out[w.Cluster] = true
		}
	}
	return out
}

// severalGateways reports whether the cluster has several gateways that carry traffic. If only one
// is to be active, one that leaves its role to another counts until it is a standby. What a gateway
// that is lost has left does not count.
func severalGateways(m *members.Membership, s role.Standing) bool {
	n := 0
	if s.Active && !s.Standby() {
		n++ // it may be about to publish its Endpoint
	}
	for _, g := range m.Gateways {
		lost := s.Speaker && !slices.Contains(s.Gateways, g.Name)
		self := s.Active && g.Name == m.Self.Name
		if (m.Submariner.Spec.MultiActiveGatewayEnabled || g.Drain < cable.Standby) && !lost && !self {
			n++
		}
	}
	return n > 1
}

// siblings returns the other gateways of this cluster that have a way to another cluster, by the ID
// of that cluster. A gateway whose report is outdated counts only for clusters to which no other
// gateway has a working cable: its kernel may forward without an agent, or its node may be dead.
// What a lost gateway has reported does not count.
func (d *director) siblings() map[string][]cable.Node {
	out := map[string][]cable.Node{}
	works := map[string]bool{}
	for _, outdated := range []bool{false, true} {
		for _, n := range d.Membership.Siblings() {
			lost := d.Snapshot.Standing.Speaker && !slices.Contains(d.Snapshot.Standing.Gateways, n.Name)
			if lost || d.Snapshot.Outdated(n.Name) != outdated {
				continue
			}
			n.Down = d.Snapshot.Health[role.SiblingProbe(n)].Status == submarinerv1.ConnectionError
			for id, working := range d.clustersThrough(n) {
				if outdated && works[id] {
					continue
				}
				out[id] = append(out[id], n)
				works[id] = works[id] || working && !outdated
			}
		}
	}
	return out
}

// clustersThrough returns the clusters to which a sibling has cables, and whether one of these
// works, as far as it has reported. If this gateway has no cable to a cluster because it is a
// standby, the active gateway has, whatever it reports. If none of this gateway's own cables to a
// cluster answers, siblings count that have not said yet whether theirs do: their agents may have
// started just before the API server failed. Where policy has decided on a cable that encrypts, and
// this gateway can make none, a sibling's cable that does not encrypt does not count: the sibling
// may be about to change it.
func (d *director) clustersThrough(n cable.Node) map[string]bool {
	out := map[string]bool{}
	secret := d.Cables.encryptedOnly()
	if n.Drain < cable.Standby && d.Snapshot.Standing.Standby() {
		for _, r := range d.Cables.NotNeeded {
			out[r.Spec.ClusterID] = true
		}
	}
	if g := role.Find[*submarinerv1.Gateway](d.Snapshot, n.Name); g != nil {
		for _, c := range g.Status.Connections {
			id := c.Endpoint.ClusterID
			if secret[id] && !driverEncrypts(c.Driver) {
				continue
			}
			carries := c.Status == submarinerv1.Connected || isChangingCable(c)
			if carries || c.Status == submarinerv1.Connecting && d.allDown(id) {
				out[id] = out[id] || carries
			}
		}
	}
	return out
}

// driverEncrypts reports whether the cables of a driver encrypt; false if the driver is not known.
func driverEncrypts(driver string) bool {
	d := drivers.Find(driver)
	return d != nil && d.Properties().Encrypts
}

// isChangingCable reports whether a connection of a gateway carries packets, and changes its cable.
func isChangingCable(c submarinerv1.Connection) bool {
	return c.Status == submarinerv1.Connecting && c.DesiredDriver != c.Driver && c.Member != nil && *c.Member
}

// allDown reports whether this gateway has cables to a cluster, and none of them answers.
func (d *director) allDown(cluster string) bool {
	mine := slices.DeleteFunc(slices.Clone(d.Cables.Wanted), func(c cable.Cable) bool { return c.Cluster != cluster })
	return len(mine) > 0 && !slices.ContainsFunc(mine, func(c cable.Cable) bool { return !d.Snapshot.Health.Down(c) })
}

// detours returns the networks of the gateways to which there is no cable yet, or none while a
// gateway is a standby, and of those to which this gateway can make none.
func (d *director) detours() (out []cable.Reached) {
	missing := map[string]bool{}
	for _, w := range slices.Concat(d.Cables.Pending, d.Cables.NotNeeded) {
		missing[w.Spec.CableName] = true
	}
	for _, p := range d.Accepted.Peers {
		if missing[p.Name] {
			out = append(out, cable.Reached{Cluster: p.Cluster, Subnets: p.Subnets})
		}
	}
	for _, e := range d.Cables.ViaSibling {
		out = append(out, e.Reached)
	}
	return out
}

// hasDetour reports whether there is another way to the cluster of a cable, which carries its
// packets until the cable has answered.
func (d *director) hasDetour(c cable.Cable) bool {
	if len(d.out.Siblings[c.Cluster]) > 0 {
		return true
	}
	if !d.out.several[c.Cluster] {
		return false
	}
	for _, other := range d.Cables.Wanted {
		_, used := d.Snapshot.Memory.Using[other.Name]
		if other.Cluster == c.Cluster && other.Name != c.Name && used && !d.Snapshot.Health.Down(other) {
			return true
		}
	}
	return false
}
