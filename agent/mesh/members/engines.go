package members

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
)

// This file is about gateways of one cluster whose nodes have different engines, so that only some
// of them can connect to another cluster. Workers send the packets for that cluster to all of them.
// A gateway that has no cable hands the packets to one that reports a cable: see Cables.Elsewhere.

// Engines are the engines of encrypted cables on the node of a gateway.
type Engines struct{ WireGuard, IPsec dataplane.Engine }

// same reports whether the same cables are possible with both. The reasons why an engine is missing
// may differ.
func (e Engines) same(other Engines) bool {
	return e.WireGuard.Name == other.WireGuard.Name && e.IPsec.Name == other.IPsec.Name
}

// readEngines sets Engines and Others. Engines are those of this node if it may be a gateway.
// Otherwise, they are those of the first gateway that has reported any, and active gateways come
// first.
func (m *Membership) readEngines(s role.Snapshot, reported map[string]submarinerv1.NodeFacts) {
	var all []Engines
	engine := func(f submarinerv1.EngineFact) dataplane.Engine {
		return dataplane.Engine{Name: f.Name, Missing: f.Missing}
	}
	add := func(f submarinerv1.NodeFacts) {
		if e := (Engines{WireGuard: engine(f.WireGuard), IPsec: engine(f.IPsec)}); !slices.ContainsFunc(all, e.same) {
			all = append(all, e)
		}
	}
	if m.MayBeGateway(s) {
		add(s.Facts)
	}
	for _, e := range m.Endpoints {
		if f, ok := reported[e.Endpoint.Spec.Hostname]; ok {
			add(f)
		}
	}
	if len(all) == 0 {
		add(s.Facts)
	}
	m.Engines = all[0]
	m.Others = all[1:]
}

// MayBeGateway reports whether this node may be a gateway, or has been one until a moment ago.
func (m *Membership) MayBeGateway(s role.Snapshot) bool {
	return ServesAsGateway(s, role.Find[*corev1.Node](s, s.Node)) || m.HasEndpoint(m.Self)
}
