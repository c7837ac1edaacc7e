package report

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/mesh"
	"subctl/agent/mesh/members"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/version"
)

// Route returns what a route agent reports of its plan: the RouteAgent of its node.
func Route(s role.Snapshot, p mesh.Plan, o role.Outcome) role.Report {
	old := role.Find[*submarinerv1.RouteAgent](s, s.Node)
	ra := &submarinerv1.RouteAgent{
		ObjectMeta: metav1.ObjectMeta{Name: s.Node, Namespace: submarinerv1.OperatorNamespace},
		Status: submarinerv1.RouteAgentStatus{
			Version: version.Version, Node: members.ReportedFacts(s),
		},
	}
	ra.Status.RemoteEndpoints, ra.Status.RemoteEndpointsOmitted = RemoteEndpoints(p, o)
	if n := role.Find[*corev1.Node](s, s.Node); n != nil { // deleted with its node
		ra.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}}
	}
	if err := o.Failure(); err != nil {
		ra.Status.StatusFailure = role.Clip(err.Error())
	}
	var was []metav1.Condition
	if old != nil {
		was = old.Status.Conditions
	}
	ra.Status.Conditions = Conditions(was, p, o)
	if p.Mesh == nil && old != nil { // a mistake of the user: the node holds the previous plan
		ra.Status.RemoteEndpoints = slices.Clone(old.Status.RemoteEndpoints)
		ra.Status.RemoteEndpointsOmitted = old.Status.RemoteEndpointsOmitted
	}
	if old == nil {
		return role.Report{Apply: []role.Object{ra}}
	}
	var r role.Report
	own, others := routeAgentChanges(old.Status, ra.Status)
	apply(&r, ra, own, others)
	return r
}
