package mesh

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"subctl/agent/mesh/members"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
)

// FromReports returns the Snapshot of a node as its own agents would take it, from
// their reports to the API server. It serves commands that run on another machine. The error
// is ErrNotJoined, an *UnknownNodeError, or that the node's agent has not reported.
func FromReports[T role.Object](node string, objs ...T) (role.Snapshot, error) {
	s := role.NewSnapshot(node, objs...)
	if len(s.PodNetworks()) == 0 {
		return s, role.ErrNotJoined
	}
	if role.Find[*corev1.Node](s, node) == nil {
		return s, &UnknownNodeError{Node: node, Nodes: role.Names(role.List[*corev1.Node](s))}
	}
	ra := role.Find[*submarinerv1.RouteAgent](s, node)
	if ra == nil || ra.Status.Node == nil {
		return s, fmt.Errorf("the route agent of node %s has not reported yet: see kubectl -n %s get pods -o wide",
			node, submarinerv1.OperatorNamespace)
	}
	s.Facts = *ra.Status.Node
	for _, e := range members.OwnEndpoints(s) {
		s.Standing.Gateways = append(s.Standing.Gateways, e.Spec.Hostname)
		if e.Spec.Hostname == node {
			s.Standing.Active = true
			if e.Spec.BackendConfig[submarinerv1.BackendDrain] == submarinerv1.Standby {
				s.Standing.Drain = cable.Standby
			}
		}
	}
	s.Memory.Incumbents = incumbentsIn(role.List[*submarinerv1.Gateway](s))
	if g := role.Find[*submarinerv1.Gateway](s, node); s.Standing.Active && g != nil {
		s.Memory.Using = usingIn(g, s.Now)
		s.Paths = pathsIn(g)
	}
	return s, nil
}

// UnknownNodeError is the error of a node that a cluster does not have.
type UnknownNodeError struct {
	Node  string
	Nodes []string // that the cluster has
}

// Error implements error.
func (e *UnknownNodeError) Error() string {
	return fmt.Sprintf("the cluster has no node %q: it has %s", e.Node, cmp.Or(strings.Join(e.Nodes, ", "), "no nodes"))
}
