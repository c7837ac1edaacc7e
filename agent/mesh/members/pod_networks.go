package members

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"subctl/cable"
	"subctl/internal/prefix"
)

// podClaim is what a node has in the pod networks of the cluster: the network of its pods, or only
// an address.
type podClaim struct {
	net  netip.Prefix
	node int // index in the nodes
	pods bool
}

func (c podClaim) String() string {
	if c.pods {
		return fmt.Sprintf("the podCIDR %v", c.net)
	}
	return fmt.Sprintf("the address %v", c.net.Addr())
}

// podsFirst orders the podCIDR of a node with one address before this address.
func podsFirst(a, b podClaim) int {
	switch {
	case a.pods == b.pods:
		return 0
	case a.pods:
		return -1
	}
	return 1
}

// removeContestedPods leaves out pod networks of nodes that other nodes contest: where nothing
// allocates the podCIDRs of nodes, a node that was taken over sets its own once, to any network,
// and gateways would route the packets for these pods to it. So the podCIDR of a node must not
// contain the podCIDR or the address in the pod networks of another node, nor be in the podCIDR of
// another one. If two contest a network, neither has it, since nothing tells whose it is: gateways
// leave the packets to the network plugin, as for nodes without a podCIDR. Only one that claims all
// pods has no say against others: see everything. A podCIDR outside the pod networks counts, too,
// unless something else has it: see outside. podIPs are the addresses of the nodes in the pod
// networks, by index; the zero Addr if one is not known, or if the node has a podCIDR: what its
// agent reports, falsely or from an old device, takes nothing from another node then. Where
// podCIDRs are allocated, no kubelet can claim another one.
func (m *Membership) removeContestedPods(nodes []cable.Node, podIPs []netip.Addr) {
	var claims []podClaim
	for i := range nodes {
		n := &nodes[i]
		if n.Pods.IsValid() && len(nodes) > 1 {
			if why := m.whyOutside(n.Pods); why != "" {
				m.removeContested(n, why)
			}
		}
		if n.Pods.IsValid() {
			claims = append(claims, podClaim{n.Pods, i, true})
		}
		if ip := podIPs[i]; ip.IsValid() && !n.Pods.IsValid() {
			claims = append(claims, podClaim{prefix.Host(ip), i, false})
		}
	}
	slices.SortFunc(claims, func(a, b podClaim) int {
		return cmp.Or(a.net.Addr().Compare(b.net.Addr()), cmp.Compare(a.net.Bits(), b.net.Bits()), podsFirst(a, b),
			cmp.Compare(a.node, b.node))
	})
	contest := func(c, by podClaim) {
		m.removeContested(&nodes[c.node], fmt.Sprintf("%v of node %s is in the same network", by, nodes[by.node].Name))
	}
	// the networks that contain the next claim, the smallest last: each of them is contested by the
	// one after it
	var around []podClaim
	for _, c := range claims {
		for len(around) > 0 && !around[len(around)-1].net.Contains(c.net.Addr()) {
			around = around[:len(around)-1]
		}
		if len(around) > 0 {
			outer := around[len(around)-1]
			contest(outer, c)
			if !m.claimsAllPods(outer, claims) || m.claimsAllPods(c, claims) {
				contest(c, outer)
			}
		}
		if c.pods {
			around = append(around, c)
		}
	}
	slices.Sort(m.Contested)
}

// claimsAllPods reports whether a node claims all pods of the cluster, against at least two other
// nodes: it is wrong, and not they. If it is only one, either of the two may be.
func (m *Membership) claimsAllPods(c podClaim, claims []podClaim) bool {
	others := 0
	for _, o := range claims {
		if o.pods && o.node != c.node && o.net != c.net && c.net.Overlaps(o.net) && c.net.Bits() < o.net.Bits() {
			others++
		}
	}
	return others > 1 &&
		!slices.ContainsFunc(m.Own.Pods,
			func(all netip.Prefix) bool { return !all.Overlaps(c.net) || c.net.Bits() > all.Bits() })
}

// whyOutside returns why a podCIDR outside the pod networks of the cluster cannot be that of a
// node; empty if it can, as a further range of pods of which the Submariner does not know, or if it
// is in a pod network.
func (m *Membership) whyOutside(p netip.Prefix) string {
	within := func(n netip.Prefix) bool { return n.Overlaps(p) && n.Bits() <= p.Bits() }
	if slices.ContainsFunc(m.Own.Pods, within) {
		return ""
	}
	if p.Bits() < minReportedBits {
		return fmt.Sprintf("it is no part of the cluster's pod networks, and larger than a /%d", minReportedBits)
	}
	for _, n := range slices.Concat(m.Own.Services, m.Own.Global, m.Own.Needed) {
		if n.Overlaps(p) {
			return fmt.Sprintf(
				"it is no part of the cluster's pod networks, and overlaps %v, which the cluster needs for something else",
				n)
		}
	}
	if i := slices.IndexFunc(m.Own.Nodes, p.Contains); i >= 0 {
		return fmt.Sprintf("it is no part of the cluster's pod networks, and contains %v, a node of this cluster",
			m.Own.Nodes[i])
	}
	if in, cluster := m.overlapping(p); cluster != "" {
		return fmt.Sprintf("it is no part of the cluster's pod networks, and overlaps %v of cluster %s", in, cluster)
	}
	return ""
}

// removeContested leaves out the pod network of a node, if it is not left out already.
func (m *Membership) removeContested(n *cable.Node, why string) {
	if n.Pods.IsValid() {
		m.Contested = append(m.Contested, fmt.Sprintf("the podCIDR %v of node %s is not used: %s", n.Pods, n.Name, why))
		n.Pods = netip.Prefix{}
	}
}
