package parts

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"subctl/agent/mesh/members"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
)

// notYetFollowing returns the gateways that have not followed this one since it got the lease: they
// were active before, and do not announce that they are not any more. Their agents are dead, or
// cannot reach the API server, and their kernels may forward packets. An agent that is not dead
// announces itself how it stands. One that has followed and does not any more may have got the
// lease: this gateway learns of that up to half a second later, or once it reaches the API server
// again, and must not make its successor a standby meanwhile.
func (e *elector) notYetFollowing(s role.Snapshot) (out []string) {
	for _, node := range s.Standing.Gateways {
		if !slices.Contains(e.followed, node) && acceptsStandby(s, node) {
			e.followed = append(e.followed, node)
		}
		if node != e.node && !slices.Contains(e.followed, node) {
			out = append(out, node)
		}
	}
	return out
}

// acceptsStandby reports whether the gateway of a node knows that it is not the active one: it
// announces that, or it is to be drained, and is about to.
func acceptsStandby(s role.Snapshot, node string) bool {
	if n := role.Find[*corev1.Node](s, node); n != nil && submarinerv1.ToBeDrained(n.Annotations) {
		return true
	}
	return slices.ContainsFunc(members.OwnEndpoints(s), func(o *submarinerv1.Endpoint) bool {
		return o.Spec.Hostname == node && o.Spec.BackendConfig[submarinerv1.BackendDrain] != ""
	})
}

// yieldsTo returns the gateway to which the gateway of a node leaves the lease, as it is to be
// drained; empty if it keeps the lease, or if there is no other one. A gateway that holds the lease
// leaves it only to one that is known to work.
func yieldsTo(s role.Snapshot, node string, holds bool) string {
	if n := role.Find[*corev1.Node](s, node); n == nil || !submarinerv1.ToBeDrained(n.Annotations) {
		return ""
	}
	if holds {
		return successor(s, node, s.Works)
	}
	return successor(s, node, s.Reporting)
}

// successor returns a gateway that can take over the lease of another one; empty if there is none.
// works tells whether the agent of a gateway works.
func successor(s role.Snapshot, node string, works func(gateway string) bool) string {
	for _, g := range role.List[*submarinerv1.Gateway](s) {
		other := role.Find[*corev1.Node](s, g.Name)
		if g.Name != node && role.IsGatewayNode(other) && !submarinerv1.ToBeDrained(other.Annotations) &&
			works(g.Name) && g.Status.StatusFailure == "" {
			return g.Name
		}
	}
	return ""
}

// asStandby returns the Endpoint of the active gateway as that of a standby; nil if no other
// gateway can take over, or if the cluster is leaving, when its Endpoints are deleted.
func asStandby(s role.Snapshot, node string) *submarinerv1.Endpoint {
	subs := role.List[*v1alpha1.Submariner](s)
	if successor(s, node, s.Works) == "" || len(subs) == 0 || !subs[0].DeletionTimestamp.IsZero() {
		return nil
	}
	for _, own := range members.OwnEndpoints(s) {
		if own.Spec.Hostname == node {
			return members.AsStandby(own)
		}
	}
	return nil
}

// handOver announces that this gateway is a standby, before its agent ends and releases the lease.
// Its kernel keeps the cables and carries traffic until all nodes and clusters use the next active
// gateway, which need not wait for the lease to expire.
func (e *elector) handOver(ctx context.Context) {
	own := e.last.Load()
	if own == nil || e.role.Load() != leading || e.yields.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.lease.Retry)
	defer cancel()
	if err := e.announce(ctx, own); err != nil {
		e.log.Error("handing over the role of the active gateway", "err", err)
		return
	}
	e.log.Info("handed over the role of the active gateway", "drain", submarinerv1.Standby)
}
