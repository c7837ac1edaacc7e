package join

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/broker"
	"subctl/globalnet"
)

// Network is the source of a cluster's global network: the record of the broker.
type Network struct {
	Info globalnet.Info
	// Request is the request of the cluster; nil: no network.
	Request *globalnet.NetworkRequest
	// Planned is the network that was free before joining. Another cluster may have got it since.
	Planned netip.Prefix
}

// network returns how the cluster gets its global network; nil if it does not from the record.
func (r request) network() *Network {
	info, err := broker.GlobalnetInfo(r.broker.Broker)
	i, err2 := r.file.Invited()
	if err != nil || err2 != nil || !info.Enabled || i != nil || !r.broker.GlobalKnown { // the checks report errors
		return nil
	}
	out := &Network{Info: info}
	if planned, err := r.globalNetwork(); err == nil && planned.IsValid() {
		asked := r.networkRequest()
		out.Request = &asked
		out.Planned = planned
	}
	return out
}

// reserveNetwork reserves the global network of the plan or, if another cluster has got it
// meanwhile, another one. The cluster has claimed its ID before: its entry counts while it has its
// service account.
func (j *Operation) reserveNetwork(ctx context.Context) error {
	n := j.Plan.Network
	ns := j.File.BaseNamespace()
	if n == nil { // the invitation has reserved it, if there is one
		only, _ := netip.ParsePrefix(j.Plan.Submariner.Spec.GlobalCIDR)
		return broker.LetAnnounce(ctx, j.Broker, ns, j.Plan.Submariner.Spec.ClusterID, only)
	}
	if n.Request == nil {
		return nil
	}
	sa := &corev1.ServiceAccount{}
	if err := j.Broker.Get(ctx, client.ObjectKey{Namespace: ns, Name: broker.MemberName(n.Request.Cluster)},
		sa); err != nil {
		return fmt.Errorf("reading the identity of this cluster on the broker: %w", err)
	}
	got, err := broker.ReserveNetwork(ctx, j.Broker, ns, n.Info,
		broker.NetworkRequest{NetworkRequest: *n.Request, Account: sa.UID}, time.Now())
	if err != nil {
		return err
	}
	if got != n.Planned {
		j.Report.Warn("another cluster has got the global network %v meanwhile: this cluster gets %v", n.Planned, got)
		j.Plan.setGlobal(got)
	}
	return nil
}

// setGlobal changes the global network of the plan.
func (p *Plan) setGlobal(n netip.Prefix) {
	p.Network.Planned = n
	p.Submariner.Spec.GlobalCIDR = n.String()
	p.Grant.Networks = []netip.Prefix{n}
	was := map[string]string{}
	if p.LastGrant.Serial > 0 {
		was = grantFields(p.LastGrant)
	}
	p.Granted = diff(was, grantFields(p.Grant))
}

// settleNetwork releases the networks that the cluster had before.
func (j *Operation) settleNetwork(ctx context.Context) error {
	n := j.Plan.Network
	if n == nil {
		return nil
	}
	return broker.SettleNetwork(ctx, j.Broker, j.File.BaseNamespace(), j.Plan.Submariner.Spec.ClusterID, n.Planned,
		time.Now())
}
