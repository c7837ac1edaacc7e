package report

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"subctl/agent/mesh"
	"subctl/agent/mesh/members"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
)

// deleteGoneEndpoints deletes what is left of gateways that are gone. The Endpoint of a sibling
// stays for as long as the sibling is among Standing.Gateways, and its node is a gateway node. If
// another gateway has taken its role, it is the Endpoint of a standby. So is the one of a node that
// is no gateway node any more, which stays until the node has other ways: until then, its own pods
// use its cables, and other clusters accept packets only through the cables of Endpoints.
func deleteGoneEndpoints(r *role.Report, m *mesh.Mesh) {
	s := m.Snapshot
	own := Endpoint(m.Offer).Name
	leaving := m.Membership.Leaving()
	for _, announced := range m.Membership.Endpoints {
		e := announced.Endpoint
		mine := s.Standing.Active && (e.Name == own || e.Spec.Hostname == s.Node)
		lost := !slices.Contains(s.Standing.Gateways, e.Spec.Hostname) ||
			!role.IsGatewayNode(role.Find[*corev1.Node](s, e.Spec.Hostname))
		gone := s.Standing.Speaker && !mine && lost
		outdated := mine && e.Name != own // the node had another address
		switch {
		case outdated, leaving && (mine || s.Standing.Speaker):
			r.Delete = append(r.Delete, e)
		case gone && handsOver(s, e):
			announceLeaving(r, e)
		case gone:
			r.Delete = append(r.Delete, e)
		case slices.Contains(s.Standing.Replaced, e.Spec.Hostname):
			r.Apply = append(r.Apply, members.AsStandby(e))
		}
	}
	if !s.Standing.Speaker {
		return
	}
	if leaving {
		if c := m.Membership.Cluster; c != nil {
			r.Delete = append(r.Delete, c)
		}
		return
	}
	deleteDeadGateways(r, m)
}

// deleteDeadGateways deletes the Gateways of gateways that are dead, and whose Endpoints are gone.
// From its Gateway, the next agent of a node learns which cables the kernel has used all the time.
// Other clusters have these for as long as the Endpoint is there.
func deleteDeadGateways(r *role.Report, m *mesh.Mesh) {
	for _, g := range role.List[*submarinerv1.Gateway](m.Snapshot) {
		stays := slices.ContainsFunc(m.Membership.Endpoints, func(e members.Announced) bool {
			return e.Endpoint.Spec.Hostname == g.Name && !slices.Contains(r.Delete, role.Object(e.Endpoint))
		})
		if g.Name != m.Snapshot.Node && !stays && !m.Snapshot.Reporting(g.Name) {
			r.Delete = append(r.Delete, g)
		}
	}
}

// handOver is the time after the last report of a gateway within which its node has found other
// ways, if it is no gateway node any more: its next report was due after one heartbeat, and its
// route agent follows within 2 s after lingers.
const handOver = role.Heartbeat + members.Lingers + 2*time.Second

// handsOver reports whether an Endpoint is the one of a gateway whose node has just lost the label
// of gateway nodes.
func handsOver(s role.Snapshot, e *submarinerv1.Endpoint) bool {
	n := role.Find[*corev1.Node](s, e.Spec.Hostname)
	g := role.Find[*submarinerv1.Gateway](s, e.Spec.Hostname)
	if n == nil || role.IsGatewayNode(n) || g == nil {
		return false
	}
	return s.ReportAge(g.Name) < handOver
}

// announceLeaving has an Endpoint announce that its gateway leaves, and a standby, if it does not:
// nobody sends packets to a standby while another gateway answers. A gateway that is draining keeps
// the flows that it has, which lose packets when its cables go.
func announceLeaving(r *role.Report, e *submarinerv1.Endpoint) {
	if e.Spec.BackendConfig[submarinerv1.BackendLeaving] != "true" {
		r.Apply = append(r.Apply, asLeaving(e))
	}
}

// asLeaving returns a copy of an Endpoint of this cluster whose node is no gateway node any more.
func asLeaving(e *submarinerv1.Endpoint) *submarinerv1.Endpoint {
	marked := members.AsStandby(e)
	if d := members.DrainOf(e); d > cable.Standby {
		marked.Spec.BackendConfig[submarinerv1.BackendDrain] = d.String()
	}
	marked.Spec.BackendConfig[submarinerv1.BackendLeaving] = "true"
	return marked
}
