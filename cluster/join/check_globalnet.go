package join

import (
	"errors"
	"fmt"
	"net/netip"

	"subctl/broker"
	"subctl/cluster/networks"
	"subctl/globalnet"
	"subctl/internal/kube"
)

// CheckGlobalnet returns the mistakes in the options about the global network that can be found
// without asking a broker.
func (o Options) CheckGlobalnet() error {
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
		if _, err := globalnet.ParseNetwork(o.GlobalnetCIDR); err != nil {
			errs = append(errs, fmt.Errorf("--globalnet-cidr: %w", err))
		}
	}
	if sized {
		if err := globalnet.CheckSize(o.GlobalnetSize); err != nil {
			errs = append(errs, fmt.Errorf("--globalnet-cluster-size: %w", err))
		}
	}
	return errors.Join(errs...)
}

// checkGlobalnet refuses a cluster that cannot get the global network that it asks for, or for
// which the user lacks rights.
func checkGlobalnet(r request) ([]string, error) {
	global, err := r.globalNetwork()
	var denied error
	if had := r.member.Submariner != nil && r.member.Submariner.Spec.GlobalCIDR != ""; had ||
		err == nil && global.IsValid() {
		denied = kube.DeniedError("the broker at "+r.broker.URL, r.broker.GlobalnetDenied,
			"let the administrator of the broker run this version of subctl deploy-broker, which gives the right to all join files that are not revoked or expired")
	}
	if err == nil && global.IsValid() {
		return nil, errors.Join(
			denied,
			kube.DeniedError("the cluster at "+r.member.URL, r.member.GlobalnetDenied,
				"join as a cluster administrator, or without a global network, with --globalnet=false"),
		)
	}
	err = errors.Join(err, denied)
	if err != nil || !r.broker.Broker.Spec.GlobalnetEnabled || r.specifies("globalnet") {
		return nil, err
	}
	return []string{
		"the broker has globalnet, and this cluster joins without a global network, with the addresses of its own networks, " +
			"because it has joined so before or is invited so: to change that, see docs/globalnet.md",
	}, nil
}

// asksForGlobalnet reports whether the user asked for a global network.
func (r request) asksForGlobalnet() bool {
	return r.Globalnet && r.specifies("globalnet") || r.specifies("globalnet-cidr") ||
		r.specifies("globalnet-cluster-size")
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
	if !r.Globalnet || r.CheckGlobalnet() != nil { // Validate reports it
		return netip.Prefix{}, nil
	}
	if i, err := r.file.Invited(); err == nil && i != nil { // checkInvitation reports an error
		return r.invitedNetwork(i.Global)
	}
	if !r.broker.GlobalKnown {
		return netip.Prefix{}, errors.New(
			"the join file does not let join read which global networks are in use: use a join file created by this version of subctl deploy-broker")
	}
	return info.Choose(r.networkRequest(), r.broker.Global)
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
	n := r.networkRequest()
	if n.Network.IsValid() && n.Network != reserved ||
		n.Size > 0 && (globalnet.Info{ClusterSize: n.Size}).Bits() != reserved.Bits() {
		return netip.Prefix{}, fmt.Errorf(
			"the join file reserves the global network %v for this cluster: omit --globalnet-cidr and --globalnet-cluster-size, or %s",
			reserved, anotherFile)
	}
	return reserved, nil
}

// networkRequest returns which global network the cluster asks for.
func (r request) networkRequest() globalnet.NetworkRequest {
	out := globalnet.NetworkRequest{Cluster: r.ClusterID, Size: r.GlobalnetSize}
	out.Network, _ = globalnet.ParseNetwork(r.GlobalnetCIDR) // CheckGlobalnet reports it
	if m := r.member.Submariner; m != nil {
		if before := networks.Parse(m.Spec.GlobalCIDR); len(before) > 0 {
			out.Before = before[0]
		}
	}
	return out
}
