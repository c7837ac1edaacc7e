package members

import (
	"subctl/agent/role"
	"subctl/cable"
	"subctl/dataplane"
)

// chooseOctets returns the octets of this node's addresses on the devices of cables. What its
// Endpoint announces stays, as the other ends of its cables use it. Only while none of its cables
// has answered, it gives up the octets of its private IP if another gateway has them: two that have
// started at the same time both do so. It does so once, so that no other cluster can keep it
// changing.
func (m *Membership) chooseOctets(s role.Snapshot) cable.Octets {
	own := cable.OctetsOf(m.Self.IP)
	taken := map[cable.Octets]bool{}
	for _, e := range m.Endpoints {
		o, ok := e.Gateway.AnnouncedOctets()
		switch {
		case !ok:
		case e.Endpoint.Spec.Hostname != m.Self.Name:
			taken[o] = true
		case e.Gateway.PrivateIP == m.Self.IP && (o != own || len(s.Memory.Using) > 0):
			return o
		}
	}
	for _, n := range m.Nodes {
		if n.Name != m.Self.Name {
			taken[cable.OctetsOf(n.IP)] = true
		}
	}
	for _, e := range m.Remote {
		if o, ok := e.Gateway.AnnouncedOctets(); ok {
			taken[o] = true
		}
	}
	for _, g := range s.Memory.Incumbents {
		taken[cable.OctetsOf(g.VTEP(dataplane.VXLANNet))] = true
	}
	return cable.ChooseOctets(m.Submariner.Spec.ClusterID, m.Self.Name, m.Self.IP, taken)
}

// OctetsOf returns the octets of a gateway node of this cluster. It has none before it has
// an Endpoint, since it then chooses octets that are free.
func (m *Membership) OctetsOf(s role.Snapshot, n cable.Node) (cable.Octets, bool) {
	if n.Name == m.Self.Name && s.Standing.Active {
		return m.Octets, true
	}
	for _, e := range m.Endpoints {
		if e.Endpoint.Spec.Hostname == n.Name {
			return e.Gateway.AnnouncedOctets()
		}
	}
	return cable.Octets{}, false
}
