package members

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"subctl/cable"
	"subctl/internal/prefix"
)

// This file is about addresses and networks that other nodes of this cluster have, or say that they
// have, and that gateways of other clusters had first. A node that was taken over can write any
// address into its Node.status, and a new node may get any. So the gateways stay connected, and
// what the node claims does not count, until their clusters announce something else. What this node
// itself has always counts: it refuses the gateway.

// MaxAddresses is the maximum number of InternalIPs that count of another node. A node has one on
// each of its networks, and the largest clouds allow 15. Every node has a set with the addresses of
// all nodes.
const MaxAddresses = 16

// overlapping returns a network that overlaps n, and the cluster that holds it; "" if there is
// none.
func (m *Membership) overlapping(n netip.Prefix) (netip.Prefix, string) {
	h := m.Held
	announced := func(by string, network netip.Prefix) bool {
		return m.announces(by, func(g cable.Gateway) bool { return slices.ContainsFunc(g.Subnets, network.Overlaps) })
	}
	for bits := n.Bits(); bits > 0; bits-- {
		around := netip.PrefixFrom(n.Addr(), bits).Masked()
		if by, ok := h.Networks[around]; ok && announced(by, around) {
			return around, by
		}
	}
	i, _ := slices.BinarySearchFunc(h.Sorted, n.Masked().Addr(),
		func(p netip.Prefix, ip netip.Addr) int { return p.Addr().Compare(ip) })
	for ; i < len(h.Sorted) && n.Contains(h.Sorted[i].Addr()); i++ {
		if by := h.Networks[h.Sorted[i]]; announced(by, h.Sorted[i]) {
			return h.Sorted[i], by
		}
	}
	return netip.Prefix{}, ""
}

// holder returns the cluster one of whose gateways holds an address; "" if there is none.
func (m *Membership) holder(ip netip.Addr) string {
	by := m.Held.Addresses[ip]
	if by == "" || !m.announces(by, func(g cable.Gateway) bool { return g.PrivateIP == ip || g.PublicIP == ip }) {
		return ""
	}
	return by
}

// announces reports whether a sound Endpoint of another cluster announces something, or none of its
// Endpoints is sound: its gateways may be changing, and it keeps what it had for as long as its
// Cluster object exists. Otherwise a cluster that has other networks now would keep a node out.
func (m *Membership) announces(cluster string, something func(cable.Gateway) bool) bool {
	own := cable.Networks{Pods: m.Own.Pods, Services: m.Own.Services, Global: m.Own.Global}
	sound := false
	for _, e := range m.Remote {
		if e.Endpoint.Spec.ClusterID != cluster {
			continue
		}
		if e.Err == nil && cable.CheckRemote(e.Gateway, own) == nil {
			if something(e.Gateway) {
				return true
			}
			sound = true
		}
	}
	return !sound
}

// OutOfReach reports whether the address of the snapshot's node is in a network that another
// cluster had first: the other nodes of this cluster do not use it as a gateway.
func (m *Membership) OutOfReach() bool {
	_, by := m.overlapping(prefix.Host(m.Self.IP))
	return by != ""
}

// addressesOf returns the InternalIPs of a node, and adds them to Own. self specifies that it is
// the snapshot's node. Of another node, an address in a network that another cluster held first
// does not count at all: packets to it take a cable. The address of a gateway counts as the node's
// own, but the gateway is not refused for it.
func (m *Membership) addressesOf(n *corev1.Node, self bool) []netip.Addr {
	all := internalIPs(n)
	if self {
		m.Own.Nodes = append(m.Own.Nodes, all...)
		return all
	}
	var out []netip.Addr
	for _, ip := range all[:min(len(all), MaxAddresses)] {
		in, cluster := m.overlapping(prefix.Host(ip))
		if cluster != "" {
			m.Collisions = append(
				m.Collisions,
				fmt.Sprintf(
					"ignoring address %v of node %s: it is inside %v, which cluster %s announced first",
					ip, n.Name, in, cluster),
			)
			continue
		}
		out = append(out, ip)
		if cluster = m.holder(ip); cluster == "" {
			m.Own.Nodes = append(m.Own.Nodes, ip)
			continue
		}
		m.Collisions = append(
			m.Collisions,
			fmt.Sprintf(
				"node %s has the address %v of a gateway of cluster %s, which stays connected, as it had the address before",
				n.Name, ip, cluster),
		)
	}
	return out
}

// isUsedByOther reports whether a network that another node reports is in use by another cluster
// that had it before.
func (m *Membership) isUsedByOther(n *corev1.Node, network netip.Prefix) bool {
	in, cluster := m.overlapping(network)
	if cluster != "" {
		m.Collisions = append(
			m.Collisions,
			fmt.Sprintf("node %s does not keep its network %v from cluster %s, which had %v before", n.Name, network,
				cluster, in),
		)
	}
	return cluster != ""
}
