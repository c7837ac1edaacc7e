package members

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
)

// SetFacts sets Facts, PodIPMissing, NoCableRule, FormerRoutes, FormerRules and BootID from what
// the kernel says, as far as a plan needs it. Without a Node object of the snapshot's node nothing
// is set.
//
// The node's address is its first InternalIP that one of its devices holds: a node may be
// in several networks, and the one that Kubernetes uses need not be the network of the
// default route.
//
// PodIP is an address of the node inside the cluster's pod network. Most CNIs give the
// node one (cni0, cilium_host, …), which is preferred. Some have it only while a pod runs
// (one veth per pod, each with the gateway address of the node's network as a /32), and
// some not at all. Then it is the first host address of the node's podCIDR, which
// host-local IPAM reserves for the gateway and gives to no pod, and our own device holds
// it: the route agent assigns it, and until then it is missing.
func SetFacts(s *role.Snapshot, k dataplane.Facts) {
	node := role.Find[*corev1.Node](*s, s.Node)
	if node == nil {
		return
	}
	s.Facts = NodeFacts(k, node, s.PodNetworks(), PodCIDR(s.Submariner(), node))
	addKernelNeeds(s, k)
	s.NoCableRule = k.NoCableRule
	s.BootID = k.BootID
	s.FormerRoutes = k.FormerRoutes
	s.FormerRules = k.FormerRules
	s.PodIPMissing = s.Facts.PodIPPlanned &&
		!slices.ContainsFunc(k.OwnAddrs, func(ip netip.Addr) bool { return ip.String() == s.Facts.PodIP })
}

// NodeFacts returns the facts of a node: see SetFacts. pods are the pod networks of the
// cluster, and own is the node's part of them, or the zero Prefix.
func NodeFacts(k dataplane.Facts, node *corev1.Node, pods []netip.Prefix, own netip.Prefix) submarinerv1.NodeFacts {
	f := submarinerv1.NodeFacts{
		Device:    k.Device,
		MTU:       k.MTU,
		WireGuard: submarinerv1.EngineFact{Name: k.WireGuard.Name, Missing: k.WireGuard.Missing},
		IPsec:     submarinerv1.EngineFact{Name: k.IPsec.Name, Missing: k.IPsec.Missing},

		NoNextHopObjects:    k.NoNexthops,
		NoIPv6Tables:        k.NoIPv6Tables,
		ResilientGroups:     k.Resilient && !k.NoNexthops,
		MultipathHashPolicy: k.HashPolicy,
	}
	private := k.PrivateIP
	for _, ip := range internalIPs(node) {
		held := func(a dataplane.HostAddr) bool { return a.Prefix.Addr() == ip }
		if i := slices.IndexFunc(k.Addrs, held); i >= 0 {
			private = ip
			f.Device = k.Addrs[i].Dev
			f.MTU = k.Addrs[i].MTU
			break
		}
	}
	if private.IsValid() {
		f.PrivateIP = private.String()
	}
	for _, a := range k.Addrs {
		if a.Dev == f.Device && a.Prefix.Addr() == private && a.Prefix.Bits() < 32 {
			f.Network = a.Prefix.Masked().String()
		}
	}
	var first netip.Addr
	if own.IsValid() && own.Bits() < 31 {
		first = own.Addr().Next()
	}
	var stable netip.Addr
	for _, a := range k.Addrs {
		ip := a.Prefix.Addr()
		if ip == first && a.Prefix.Bits() == 32 {
			continue // removed with its pod
		}
		inPods := false
		for _, p := range pods {
			inPods = inPods || p.Contains(ip)
		}
		// Prefer one of the node's own network; else the lowest, for stability.
		if inPods && (!stable.IsValid() || own.IsValid() && own.Contains(ip) && !own.Contains(stable)) {
			stable = ip
		}
	}
	switch {
	case stable.IsValid():
		f.PodIP = stable.String()
	case first.IsValid():
		f.PodIP = first.String()
		f.PodIPPlanned = true
	}
	return f
}

// internalIPs returns the node's IPv4 addresses of that type.
func internalIPs(n *corev1.Node) (ips []netip.Addr) {
	for _, a := range n.Status.Addresses {
		if ip, err := netip.ParseAddr(a.Address); err == nil && ip.Is4() && a.Type == corev1.NodeInternalIP {
			ips = append(ips, ip)
		}
	}
	return ips
}
