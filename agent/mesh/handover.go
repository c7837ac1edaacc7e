package mesh

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"subctl/agent/mesh/members"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
)

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
