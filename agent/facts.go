package agent

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
)

// nodeFacts chooses from what the kernel says what a plan must know.
//
// PodIP is an address of the node inside the cluster's pod network. Most CNIs
// give the node one (cni0, cilium_host, …): preferably we take that. Some have it
// only while a pod runs (one veth per pod, each with the gateway address of the
// node's network as a /32), and some not at all; then it is the first host
// address of the node's podCIDR, which host-local IPAM reserves for the gateway
// and gives to no pod, and our own device holds it.
func nodeFacts(k dataplane.Facts, node *corev1.Node, pods []netip.Prefix) submarinerv1.NodeFacts {
	f := submarinerv1.NodeFacts{
		Device: k.Device, MTU: k.MTU,
		WireGuard: submarinerv1.EngineFact{Name: k.WireGuard.Name, Missing: k.WireGuard.Missing},
		IPsec:     submarinerv1.EngineFact{Name: k.IPsec.Name, Missing: k.IPsec.Missing},
	}
	if k.PrivateIP.IsValid() {
		f.PrivateIP = k.PrivateIP.String()
	}
	for _, a := range k.Addrs {
		if a.Dev == k.Device && a.Prefix.Addr() == k.PrivateIP && a.Prefix.Bits() < 32 {
			f.Network = a.Prefix.Masked().String()
		}
	}
	own := podCIDR(node)
	var first netip.Addr
	if own.IsValid() && own.Bits() < 31 {
		first = own.Addr().Next()
	}
	var stable netip.Addr
	for _, a := range k.Addrs {
		ip := a.Prefix.Addr()
		if ip == first && a.Prefix.Bits() == 32 {
			continue // goes with its pod
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
		f.PodIP, f.PodIPPlanned = first.String(), true
	}
	return f
}
