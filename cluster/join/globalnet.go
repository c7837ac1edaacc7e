package join

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/broker"
	"subctl/cluster/networks"
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

// GlobalnetRequest returns the global network that the options ask for, and all mistakes in these
// options that can be found without asking a broker.
func (o Options) GlobalnetRequest() (globalnet.NetworkRequest, error) {
	out := globalnet.NetworkRequest{Cluster: o.ClusterID, Size: o.GlobalnetSize}
	var errs []error
	exact := o.GlobalnetCIDR != "" || o.specifies("globalnet-cidr")
	sized := o.GlobalnetSize != 0 || o.specifies("globalnet-cluster-size")
	if exact && sized {
		errs = append(
			errs,
			errors.New(
				"--globalnet-cidr and --globalnet-cluster-size both choose the global network: specify one of them"),
		)
	}
	if (exact || sized) && !o.Globalnet {
		errs = append(
			errs,
			errors.New(
				"--globalnet=false joins without a global network: omit --globalnet-cidr and --globalnet-cluster-size"),
		)
	}
	if exact {
		n, err := globalnet.ParseNetwork(o.GlobalnetCIDR)
		if err != nil {
			errs = append(errs, fmt.Errorf("--globalnet-cidr: %w", err))
		}
		out.Network = n
	}
	if sized {
		if err := globalnet.CheckSize(o.GlobalnetSize); err != nil {
			errs = append(errs, fmt.Errorf("--globalnet-cluster-size: %w", err))
		}
	}
	return out, errors.Join(errs...)
}

// asksForGlobalnet reports whether the user asked for a global network.
func (r request) asksForGlobalnet() bool {
	return r.Globalnet && r.specifies("globalnet") || r.specifies("globalnet-cidr") ||
		r.specifies("globalnet-cluster-size")
}

// readGlobalnet sets the fields of the request about the global network.
func (r *request) readGlobalnet() {
	r.asked, r.askedErr = r.GlobalnetRequest()
	if m := r.member.Submariner; m != nil {
		if before := networks.Parse(m.Spec.GlobalCIDR); len(before) > 0 {
			r.asked.Before = before[0]
		}
	}
	r.global, r.globalErr = r.globalNetwork()
}

// globalNetwork returns the global network to join with, as far as it is known before joining; the
// zero Prefix if the cluster announces its own networks.
func (r request) globalNetwork() (netip.Prefix, error) {
	info, err := broker.GlobalnetInfo(r.broker.Broker)
	if err != nil {
		return netip.Prefix{}, err
	}
	if !info.Enabled {
		if r.asksForGlobalnet() {
			return netip.Prefix{}, fmt.Errorf(
				"the broker has no globalnet: let its administrator run %s, or omit --globalnet, --globalnet-cidr and --globalnet-cluster-size",
				enableGlobalnet)
		}
		return netip.Prefix{}, nil
	}
	if !r.Globalnet || r.askedErr != nil { // Validate reports it
		return netip.Prefix{}, nil
	}
	if i, err := r.file.Invited(); err == nil && i != nil { // checkInvitation reports an error
		return r.invitedNetwork(i.Global)
	}
	if !r.broker.GlobalKnown {
		return netip.Prefix{}, errors.New(
			"the join file does not let join read which global networks are in use: use a join file created by this version of subctl deploy-broker")
	}
	return info.Choose(r.asked, r.broker.Global)
}

// enableGlobalnet is the command that enables globalnet on a broker.
const enableGlobalnet = "subctl deploy-broker --globalnet"

// invitedNetwork returns the network that an invitation reserves, which may be none.
func (r request) invitedNetwork(reserved netip.Prefix) (netip.Prefix, error) {
	if !reserved.IsValid() {
		if r.asksForGlobalnet() {
			return netip.Prefix{}, errors.New(
				"the join file reserves no global network for this cluster: " + anotherFile)
		}
		return netip.Prefix{}, nil
	}
	n := r.asked
	if n.Network.IsValid() && n.Network != reserved ||
		n.Size > 0 && (globalnet.Info{ClusterSize: n.Size}).Bits() != reserved.Bits() {
		return netip.Prefix{}, fmt.Errorf(
			"the join file reserves the global network %v for this cluster: omit --globalnet-cidr and --globalnet-cluster-size, or %s",
			reserved, anotherFile)
	}
	return reserved, nil
}

// network returns how the cluster gets its global network; nil if it does not from the record.
func (r request) network() *Network {
	info, err := broker.GlobalnetInfo(r.broker.Broker)
	i, err2 := r.file.Invited()
	if err != nil || err2 != nil || !info.Enabled || i != nil || !r.broker.GlobalKnown { // the checks report errors
		return nil
	}
	out := &Network{Info: info}
	if r.globalErr == nil && r.global.IsValid() {
		out.Request = &r.asked
		out.Planned = r.global
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
		return broker.LetAnnounce(ctx, j.Broker, ns, j.Plan.Submariner.Spec.ClusterID, j.Plan.Global)
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
	p.Global = n
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
