package report

import (
	"maps"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
)

// apply adds a report to the objects to apply, given what has changed of it: anything of this
// cluster, or only what it reports about others.
func apply(r *role.Report, o role.Object, own bool, others []string) {
	switch {
	case own:
		r.Apply = append(r.Apply, o)
	case len(others) > 0:
		r.Paced = append(r.Paced, role.Paced{Object: o, By: others})
	}
}

// gatewayChanges compares without the measurements, which change all the time. It returns the
// clusters whose connections differ, and whether anything else does.
func gatewayChanges(a, b submarinerv1.GatewayStatus) (own bool, others []string) {
	others = differing(unmeasured(a.Connections), unmeasured(b.Connections),
		func(c *submarinerv1.Connection) string { return c.Endpoint.ClusterID })
	if a.ConnectionsOmitted != b.ConnectionsOmitted || a.ConnectionsOmittedDown != b.ConnectionsOmittedDown {
		others = append(others, "")
	}
	for _, s := range []*submarinerv1.GatewayStatus{&a, &b} {
		s.ClearMeasurements()
		s.Connections = nil
		s.ConnectionsOmitted = 0
		s.ConnectionsOmittedDown = 0
	}
	own, more := conditionChanges(&a.Conditions, &b.Conditions)
	return own || !reflect.DeepEqual(a, b), append(others, more...)
}

// routeAgentChanges returns the clusters about whose endpoints two reports differ, and whether
// anything else does.
func routeAgentChanges(a, b submarinerv1.RouteAgentStatus) (own bool, others []string) {
	others = differing(a.RemoteEndpoints, b.RemoteEndpoints,
		func(r *submarinerv1.RemoteEndpoint) string { return r.Spec.ClusterID })
	if a.RemoteEndpointsOmitted != b.RemoteEndpointsOmitted {
		others = append(others, "")
	}
	a.RemoteEndpoints = nil
	b.RemoteEndpoints = nil
	a.RemoteEndpointsOmitted = 0
	b.RemoteEndpointsOmitted = 0
	own, more := conditionChanges(&a.Conditions, &b.Conditions)
	return own || !reflect.DeepEqual(a, b), append(others, more...)
}

// conditionChanges compares conditions, and removes them. others has the empty text if conditions
// about other clusters differ.
func conditionChanges(a, b *[]metav1.Condition) (own bool, others []string) {
	ownA, othersA := splitConditions(*a)
	ownB, othersB := splitConditions(*b)
	if !reflect.DeepEqual(othersA, othersB) {
		others = []string{""}
	}
	*a = nil
	*b = nil
	return !reflect.DeepEqual(ownA, ownB), others
}

// splitConditions returns the conditions about this cluster and those about other clusters.
func splitConditions(cs []metav1.Condition) (own, others []metav1.Condition) {
	for _, c := range cs {
		switch c.Type {
		case role.ConditionRefused, role.ConditionPacketsDropped, role.ConditionCablePoliciesValid,
			role.ConditionCablesChanged:
			others = append(others, c)
		default:
			own = append(own, c)
		}
	}
	return own, others
}

func unmeasured(cs []submarinerv1.Connection) []submarinerv1.Connection {
	out := slices.Clone(cs)
	for i := range out {
		out[i].ClearMeasurements()
	}
	return out
}

// differing returns the clusters of which two lists have different elements, or in another order.
// of returns the cluster of an element.
func differing[T any](a, b []T, of func(*T) string) (out []string) {
	before := byCluster(a, of)
	after := byCluster(b, of)
	for id, is := range after {
		if !reflect.DeepEqual(before[id], is) {
			out = append(out, id)
		}
		delete(before, id)
	}
	out = slices.AppendSeq(out, maps.Keys(before))
	slices.Sort(out)
	return out
}

func byCluster[T any](all []T, of func(*T) string) map[string][]*T {
	out := map[string][]*T{}
	for i := range all {
		id := of(&all[i])
		out[id] = append(out[id], &all[i])
	}
	return out
}
