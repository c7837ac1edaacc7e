package mesh

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/dataplane"
)

// This file is about a node that loses the label of gateway nodes. Its gateway agent ends. The
// other nodes and clusters learn of it a moment later, and send packets to it until then. So its
// route agent goes on for a few seconds as if the node had the label, and its kernel forwards these
// packets. Then the node's own pods use other gateways, and the route agent removes the cables. The
// speaker deletes the Endpoint last, because other clusters accept nothing from these cables
// without it.

// lingers is the time for which a node counts as a gateway node for its own route agent after it
// has lost the label. Nodes follow within a second, and other clusters within 2 s.
const lingers = 3 * time.Second

// handOver is the time after the last report of a gateway within which its node has found other
// ways, if it is no gateway node any more: its next report was due after one heartbeat, and its
// route agent follows within 2 s after lingers.
const handOver = heartbeat + lingers + 2*time.Second

// Label is what a route agent knows of its node's label of gateway nodes. The zero Label has not
// seen it.
type Label struct {
	Seen  bool      // the node had it in the last plan
	Ruled bool      // the kernel has had the rule for the table of cables since the node has it
	Until time.Time // until when the node counts as a gateway node without it; the zero time: it does not
}

// label returns the Label for the next plan. A node does not linger without its Endpoint: other
// clusters accept nothing from it then.
func (s Snapshot) label() Label {
	was := s.Memory.Label
	switch {
	case IsGatewayNode(Find[*corev1.Node](s, s.Node)):
		return Label{Seen: true, Ruled: was.Ruled || !s.NoCableRule}
	case !slices.ContainsFunc(s.OwnEndpoints(), func(e *submarinerv1.Endpoint) bool {
		return e.Spec.Hostname == s.Node
	}):
	case was.Seen:
		return Label{Ruled: was.Ruled, Until: s.Now.Add(lingers)}
	case s.Now.Before(was.Until):
		return Label{Ruled: was.Ruled, Until: was.Until}
	}
	return Label{}
}

// withRule returns the membership for the route agent of a node with a Label. The node is a worker
// until its gateway agent has set up routes to other clusters, if there are any, and their rule. So
// it is if an Endpoint is left from before it booted or lost the label: it could only drop packets
// for other clusters, of its own pods and of workers. A worker forwards no echoes and accepts
// nothing from other workers, so they do not choose it. If the gateway agent ends, the kernel keeps
// what it has set up, and the node is a gateway.
func (m Membership) withRule(l Label) Membership {
	if !l.Ruled {
		m.Gateways = m.Siblings()
	}
	return m
}

// servesAsGateway reports whether a node may be a gateway for this agent.
func (s Snapshot) servesAsGateway(n *corev1.Node) bool {
	return IsGatewayNode(n) || n != nil && n.Name == s.Node && !s.label().Until.IsZero()
}

// IsGatewayNode reports whether a node has the label of gateway nodes.
func IsGatewayNode(n *corev1.Node) bool {
	return n != nil && n.Labels[submarinerv1.GatewayNodeLabel] == "true"
}

// LacksLabel reports whether this node is known to be no gateway node.
func (s Snapshot) LacksLabel() bool {
	n := Find[*corev1.Node](s, s.Node)
	return n != nil && !IsGatewayNode(n)
}

// Sweeps reports whether the node is no gateway node, so that its route agent removes what belongs
// to an owner.
func (s Snapshot) Sweeps(o dataplane.Owner) bool {
	return o.Name == dataplane.GatewayOwner.Name && s.LacksLabel()
}

// handsOver reports whether an Endpoint is the one of a gateway whose node has just lost the label
// of gateway nodes.
func handsOver(s Snapshot, e *submarinerv1.Endpoint) bool {
	n := Find[*corev1.Node](s, e.Spec.Hostname)
	g := Find[*submarinerv1.Gateway](s, e.Spec.Hostname)
	if n == nil || IsGatewayNode(n) || g == nil {
		return false
	}
	return s.ReportAge(g.Name) < handOver
}

// handOver has an Endpoint announce that its gateway leaves, and a standby, if it does not: nobody
// sends packets to a standby while another gateway answers. A gateway that is draining keeps the
// flows that it has, which lose packets when its cables go.
func (r *Report) handOver(e *submarinerv1.Endpoint) {
	if e.Spec.BackendConfig[submarinerv1.BackendLeaving] != "true" {
		r.Apply = append(r.Apply, asLeaving(e))
	}
}

// asLeaving returns a copy of an Endpoint of this cluster whose node is no gateway node any more.
func asLeaving(e *submarinerv1.Endpoint) *submarinerv1.Endpoint {
	marked := AsStandby(e)
	if d := drainOf(e); d > cable.Standby {
		marked.Spec.BackendConfig[submarinerv1.BackendDrain] = d.String()
	}
	marked.Spec.BackendConfig[submarinerv1.BackendLeaving] = "true"
	return marked
}
