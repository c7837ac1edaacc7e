package report

import (
	"strconv"

	"subctl/agent/mesh"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
)

// programmedVersions returns the latest versions of the objects with global addresses that the
// kernel holds; nil if the gateway translates nothing. They stay as they were while the node does
// not hold the plan.
func programmedVersions(p mesh.Plan, o role.Outcome, before *submarinerv1.Gateway) *submarinerv1.ProgrammedVersions {
	m := p.Mesh
	if !m.Snapshot.Standing.Active || m.Membership.Leaving() || len(m.Membership.Own.Global) == 0 {
		return nil
	}
	if o.Failure() != nil {
		if before == nil {
			return nil
		}
		return before.Status.Programmed
	}
	return &submarinerv1.ProgrammedVersions{
		ClusterGlobalEgressIPs: newest(role.List[*submarinerv1.ClusterGlobalEgressIP](m.Snapshot)),
		GlobalEgressIPs:        newest(role.List[*submarinerv1.GlobalEgressIP](m.Snapshot)),
		GlobalIngressIPs:       newest(role.List[*submarinerv1.GlobalIngressIP](m.Snapshot)),
	}
}

// newest returns the highest resource version of objects of one kind; empty if there are none. As a
// watch gets the changes of a kind in their order, no older change of another object is missing.
func newest[T role.Object](objs []T) string {
	most := uint64(0)
	for _, o := range objs {
		if n, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64); err == nil {
			most = max(most, n)
		}
	}
	if most == 0 {
		return ""
	}
	return strconv.FormatUint(most, 10)
}
