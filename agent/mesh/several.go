package mesh

import (
	"slices"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
)

// This file is about clusters with several active gateways. A cable whose other end does not answer carries nothing
// while there is another way to its cluster: another cable, or another gateway of this cluster.

// several reports whether there may be several ways to a cluster.
func (m *Mesh) several(cluster string) bool {
	if len(m.activeSiblings()) > 0 {
		return true
	}
	if m.gatewaysOf == nil {
		m.gatewaysOf = map[string]int{}
		for _, c := range m.Cables.Wanted {
			m.gatewaysOf[c.Cluster]++
		}
	}
	return m.gatewaysOf[cluster] > 1
}

// activeSiblings returns the other active gateways of this cluster. If only one is to be active, another one that has an
// Endpoint has just lost its role, or is what this gateway leaves the traffic to.
func (m *Mesh) activeSiblings() []cable.Node {
	all := m.Membership.Siblings()
	if len(all) > 0 && !m.Membership.Submariner.Spec.MultiActiveGatewayEnabled && !m.Snapshot.Standing.Retiring {
		return nil
	}
	return all
}

// down reports whether a cable is not to be used while there is another way: its other end does not answer, or this
// gateway is retiring, so that the other end removes it.
func (m *Mesh) down(c cable.Cable) bool {
	return m.Snapshot.Standing.Retiring || m.Snapshot.Health[probeName(c.Name, c.Device())].Status == submarinerv1.ConnectionError
}

// siblings returns the other active gateways of this cluster that report a working cable to a cluster, by the ID of
// that cluster.
func (m *Mesh) siblings() map[string][]cable.Node {
	if m.siblingsTo == nil {
		m.siblingsTo = m.readSiblings()
	}
	return m.siblingsTo
}

func (m *Mesh) readSiblings() map[string][]cable.Node {
	out := map[string][]cable.Node{}
	for _, n := range m.activeSiblings() {
		g := Find[*submarinerv1.Gateway](m.Snapshot, n.Name)
		if g == nil || g.Status.HAStatus != submarinerv1.HAStatusActive {
			continue
		}
		for _, c := range g.Status.Connections {
			id := c.Endpoint.ClusterID
			if c.Status != submarinerv1.Connected || slices.ContainsFunc(out[id], func(other cable.Node) bool { return other.Name == n.Name }) {
				continue
			}
			out[id] = append(out[id], n)
		}
	}
	return out
}

// detours returns the networks of the gateways to which there is no cable yet.
func (m *Mesh) detours() (out []cable.Reached) {
	for _, w := range m.Cables.Waiting {
		for _, p := range m.Accepted.Peers {
			if p.Name == w.Spec.CableName {
				out = append(out, cable.Reached{Cluster: p.Cluster, Subnets: p.Subnets})
			}
		}
	}
	return out
}

// detour reports whether there is another way to the cluster of a cable, which carries its packets until the cable
// has answered.
func (m *Mesh) detour(c cable.Cable) bool {
	if len(m.siblings()[c.Cluster]) > 0 {
		return true
	}
	if !m.several(c.Cluster) {
		return false
	}
	for _, other := range m.Cables.Wanted {
		_, used := m.Snapshot.Memory.Using[other.Name]
		if other.Cluster == c.Cluster && other.Name != c.Name && used && !m.down(other) {
			return true
		}
	}
	return false
}

// gatewayProbe returns the name of the probe by which a node observes a gateway of its own cluster.
func gatewayProbe(g cable.Node) string { return "gateway/" + g.Name }

// workerProbe returns the name of the probe by which a gateway observes a node of its cluster that is no gateway.
func workerProbe(n cable.Node) string { return "worker/" + n.Name }

// gateways returns the active gateways of this cluster, as this node observes them.
func (m *Mesh) gateways() []cable.Node {
	out := slices.Clone(m.Membership.Gateways)
	for i, g := range out {
		out[i].Down = m.Snapshot.Health[gatewayProbe(g)].Status == submarinerv1.ConnectionError
	}
	return out
}
