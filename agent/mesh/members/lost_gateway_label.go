package members

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
)

// This file is about a node that loses the label of gateway nodes. Its gateway agent ends. The
// other nodes and clusters learn of it a moment later, and send packets to it until then. So its
// route agent goes on for a few seconds as if the node had the label, and its kernel forwards these
// packets. Then the node's own pods use other gateways, and the route agent removes the cables. The
// speaker deletes the Endpoint last, because other clusters accept nothing from these cables
// without it.

// Lingers is the time for which a node counts as a gateway node for its own route agent after it
// has lost the label. Nodes follow within a second, and other clusters within 2 s.
const Lingers = 3 * time.Second

// Label returns the Label for the next plan. A node does not linger without its Endpoint: other
// clusters accept nothing from it then.
func Label(s role.Snapshot) role.Label {
	was := s.Memory.Label
	switch {
	case role.IsGatewayNode(role.Find[*corev1.Node](s, s.Node)):
		return role.Label{Seen: true, Ruled: was.Ruled || !s.NoCableRule}
	case !slices.ContainsFunc(OwnEndpoints(s), func(e *submarinerv1.Endpoint) bool {
		return e.Spec.Hostname == s.Node
	}):
	case was.Seen:
		return role.Label{Ruled: was.Ruled, Until: s.Now.Add(Lingers)}
	case s.Now.Before(was.Until):
		return role.Label{Ruled: was.Ruled, Until: was.Until}
	}
	return role.Label{}
}

// WithRule returns the membership for the route agent of a node with a Label. The node is a worker
// until its gateway agent has set up routes to other clusters, if there are any, and their rule. So
// it is if an Endpoint is left from before it booted or lost the label: it could only drop packets
// for other clusters, of its own pods and of workers. A worker forwards no echoes and accepts
// nothing from other workers, so they do not choose it. If the gateway agent ends, the kernel keeps
// what it has set up, and the node is a gateway.
func (m Membership) WithRule(l role.Label) Membership {
	if !l.Ruled {
		m.Gateways = m.Siblings()
	}
	return m
}

// ServesAsGateway reports whether a node may be a gateway for this agent.
func ServesAsGateway(s role.Snapshot, n *corev1.Node) bool {
	return role.IsGatewayNode(n) || n != nil && n.Name == s.Node && !Label(s).Until.IsZero()
}

// LacksLabel reports whether this node is known to be no gateway node.
func LacksLabel(s role.Snapshot) bool {
	n := role.Find[*corev1.Node](s, s.Node)
	return n != nil && !role.IsGatewayNode(n)
}

// Sweeps reports whether the node is no gateway node, so that its route agent removes what belongs
// to an owner.
func Sweeps(s role.Snapshot, o dataplane.Owner) bool {
	return o.Name == dataplane.GatewayOwner.Name && LacksLabel(s)
}
