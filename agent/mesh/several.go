package mesh

import (
	"slices"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
)

// This file is about clusters with several gateways that have cables. A cable whose other end does not answer carries nothing
// while there is another way to its cluster: another cable, or another gateway of this cluster.

// several reports whether there may be several ways to a cluster.
func (m *Mesh) several(cluster string) bool {
	if len(m.Membership.Siblings()) > 0 {
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

// down reports whether a cable is not to be used while there is another way: its other end does not answer.
func (m *Mesh) down(c cable.Cable) bool {
	return m.Snapshot.Health[probeName(c.Name, c.Device())].Status == submarinerv1.ConnectionError
}

// lost reports whether this gateway has cables to a cluster, and none of them answers.
func (m *Mesh) lost(cluster string) bool {
	mine := slices.DeleteFunc(slices.Clone(m.Cables.Wanted), func(c cable.Cable) bool { return c.Cluster != cluster })
	return len(mine) > 0 && !slices.ContainsFunc(mine, func(c cable.Cable) bool { return !m.down(c) })
}

// siblings returns the other gateways of this cluster that report a working cable to a cluster, by the ID of
// that cluster. If this gateway has no cable to it because it is a standby, the active gateway has, whatever it reports. If none of its
// own cables to it answers, those count whose gateway has not said yet whether they do: its agent may have
// started just before the API server failed. What a lost gateway has reported does not count.
func (m *Mesh) siblings() map[string][]cable.Node {
	if m.siblingsTo == nil {
		m.siblingsTo = m.readSiblings()
	}
	return m.siblingsTo
}

func (m *Mesh) readSiblings() map[string][]cable.Node {
	out := map[string][]cable.Node{}
	add := func(id string, n cable.Node) {
		if !slices.ContainsFunc(out[id], func(other cable.Node) bool { return other.Name == n.Name }) {
			out[id] = append(out[id], n)
		}
	}
	for _, n := range m.Membership.Siblings() {
		if s := m.Snapshot.Standing; s.Speaker && !slices.Contains(s.Gateways, n.Name) {
			continue
		}
		if n.Drain < cable.Standby && m.Snapshot.Standing.Standby() {
			for _, spared := range m.Cables.Spared {
				add(spared.Spec.ClusterID, n)
			}
		}
		if g := Find[*submarinerv1.Gateway](m.Snapshot, n.Name); g != nil {
			for _, c := range g.Status.Connections {
				if c.Status == submarinerv1.Connected || c.Status == submarinerv1.Connecting && m.lost(c.Endpoint.ClusterID) {
					add(c.Endpoint.ClusterID, n)
				}
			}
		}
	}
	return out
}

// detours returns the networks of the gateways to which there is no cable yet, or none while a gateway is a standby.
func (m *Mesh) detours() (out []cable.Reached) {
	missing := map[string]bool{}
	for _, w := range slices.Concat(m.Cables.Waiting, m.Cables.Spared) {
		missing[w.Spec.CableName] = true
	}
	for _, p := range m.Accepted.Peers {
		if missing[p.Name] {
			out = append(out, cable.Reached{Cluster: p.Cluster, Subnets: p.Subnets})
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

// gateways returns the gateways of this cluster, as this node observes them.
func (m *Mesh) gateways() []cable.Node {
	out := slices.Clone(m.Membership.Gateways)
	for i, g := range out {
		out[i].Down = m.Snapshot.Health[gatewayProbe(g)].Status == submarinerv1.ConnectionError
	}
	return out
}
