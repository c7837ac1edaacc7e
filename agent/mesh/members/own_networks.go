package members

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/dataplane"
	"subctl/internal/prefix"
)

// This file protects what a node itself needs to reach: the networks of its devices, its
// routers and DNS servers, and the API servers of its cluster and of the broker. Whatever
// another cluster announces, no packet of the node to one of them takes a cable, and none is
// dropped because of a cable.
//
// The nodes of a cluster need different networks. So a need has an effect only on its own node: the
// endpoint keeps its claims, and other nodes connect to it.

// maxNeedsReported is the maximum number of needs that a RouteAgent lists. The plans of the node
// itself use all of them.
const maxNeedsReported = 256

// need is a network that this node needs to reach.
type need struct {
	Network netip.Prefix
	reason  string
}

type Needs []need

// addKernelNeeds adds what the kernel says about the node's needs to the facts.
func addKernelNeeds(s *role.Snapshot, k dataplane.Facts) {
	for _, n := range k.Networks {
		NeverRoute(s, n.Prefix, deviceNetwork+n.Dev)
	}
	for _, ip := range k.Routers {
		NeverRoute(s, prefix.Host(ip), "the router of a default route")
	}
	for _, ip := range k.Resolvers {
		NeverRoute(s, prefix.Host(ip), "a DNS server")
	}
}

// deviceNetwork begins the reason of a need.
const deviceNetwork = "the network of device "

// DeviceNetworks returns the networks of the node's devices, in CIDR notation.
func DeviceNetworks(s role.Snapshot) []string {
	var out []string
	for _, n := range s.Facts.NeverRouted {
		if strings.HasPrefix(n.Reason, deviceNetwork) {
			out = append(out, n.Network)
		}
	}
	return out
}

// NeverRoute adds a network that the node needs to the facts, with the reason. The cluster's
// own pods and Services are left out: no endpoint may announce them anyway, and a CNI may
// have a route for each pod.
func NeverRoute(s *role.Snapshot, n netip.Prefix, reason string) {
	if !n.Addr().Is4() || n.Bits() == 0 || n.Addr().IsLoopback() || isClusterNetwork(s, n) {
		return
	}
	add := submarinerv1.NeverRouted{Network: n.Masked().String(), Reason: reason}
	at, found := slices.BinarySearchFunc(s.Facts.NeverRouted, add, compareNeeds)
	if !found {
		s.Facts.NeverRouted = slices.Insert(slices.Clip(s.Facts.NeverRouted), at, add)
	}
}

func compareNeeds(a, b submarinerv1.NeverRouted) int {
	return cmp.Or(cmp.Compare(a.Network, b.Network), cmp.Compare(a.Reason, b.Reason))
}

// isClusterNetwork reports whether a network is part of the cluster's pod, Service or global
// networks.
func isClusterNetwork(s *role.Snapshot, n netip.Prefix) bool {
	sub := s.Submariner()
	if sub == nil {
		return false
	}
	nets, _ := role.OwnNetworks(sub.Spec) // a mistake is reported by Read
	return prefix.Covers(slices.Concat(nets.Pods, nets.Services, nets.Global), n)
}

// NeedsOf returns what the snapshot's node needs.
func NeedsOf(s role.Snapshot) Needs {
	var out Needs
	for _, f := range s.Facts.NeverRouted {
		if p, err := netip.ParsePrefix(f.Network); err == nil {
			out = append(out, need{p.Masked(), f.Reason})
		}
	}
	return out
}

// Check returns an error that names each subnet of a remote gateway that overlaps a need of
// the node; nil if there is none.
func (ns Needs) Check(g cable.Gateway, node string) error {
	var errs []error
	for _, subnet := range g.Subnets {
		for _, n := range ns {
			if subnet.Overlaps(n.Network) {
				errs = append(
					errs,
					fmt.Errorf("subnet %v overlaps %v, %s, which node %s itself needs to reach", subnet, n.Network,
						n.reason, node),
				)
			}
		}
	}
	return errors.Join(errs...)
}

// Spare returns the parts of networks that overlap no need.
func (ns Needs) Spare(nets []netip.Prefix) []netip.Prefix {
	for _, n := range ns {
		var out []netip.Prefix
		for _, p := range nets {
			out = append(out, prefix.Without(p, n.Network)...)
		}
		nets = out
	}
	return nets
}

// ReportedFacts returns the facts of a node as its RouteAgent reports them.
func ReportedFacts(s role.Snapshot) *submarinerv1.NodeFacts {
	f := s.Facts
	f.NeverRouted = f.NeverRouted[:min(len(f.NeverRouted), maxNeedsReported)]
	return &f
}
