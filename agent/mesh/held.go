package mesh

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"subctl/cable"
)

// This file is about addresses and networks that other nodes of this cluster have, or say that they have, and that gateways of other
// clusters had first. A node that was taken over can write any address into its Node.status, and a new node may get any. So the gateways
// stay connected, and what the node claims does not count. What this node itself has counts always: it refuses the gateway.

// maxAddresses is the maximum number of InternalIPs that count of another node. A node has one on each of its networks, and the largest clouds
// allow 15. Every node has a set with the addresses of all nodes.
const maxAddresses = 16

// held are the networks and addresses of the gateways of other clusters that were accepted before, with the IDs of their clusters.
type held struct {
	networks  map[netip.Prefix]string
	sorted    []netip.Prefix // the keys of networks
	addresses map[netip.Addr]string
}

// heldBy returns what incumbents hold: see Memory.Incumbents.
func heldBy(incumbents []cable.Gateway) held {
	h := held{networks: make(map[netip.Prefix]string, 2*len(incumbents)), addresses: make(map[netip.Addr]string, 2*len(incumbents))}
	for i := range incumbents {
		g := &incumbents[i]
		for _, n := range g.Subnets {
			h.networks[n] = g.Cluster
		}
		for _, ip := range []netip.Addr{g.PrivateIP, g.PublicIP} {
			if ip.IsValid() {
				h.addresses[ip] = g.Cluster
			}
		}
	}
	h.sorted = slices.SortedFunc(maps.Keys(h.networks), netip.Prefix.Compare)
	return h
}

// overlapping returns a network that overlaps n, and its cluster; "" if there is none.
func (h held) overlapping(n netip.Prefix) (netip.Prefix, string) {
	for bits := n.Bits(); bits > 0; bits-- {
		around := netip.PrefixFrom(n.Addr(), bits).Masked()
		if by, ok := h.networks[around]; ok {
			return around, by
		}
	}
	i, _ := slices.BinarySearchFunc(h.sorted, n.Masked().Addr(), func(p netip.Prefix, ip netip.Addr) int { return p.Addr().Compare(ip) })
	if i < len(h.sorted) && n.Contains(h.sorted[i].Addr()) {
		return h.sorted[i], h.networks[h.sorted[i]]
	}
	return netip.Prefix{}, ""
}

// addressesOf returns the InternalIPs of a node, and adds them to Own. self specifies that it is the snapshot's node. Of another
// node, an address in a network that another cluster held first does not count at all: packets to it take a cable. The address of a
// gateway counts as the node's own, but the gateway is not refused for it.
func (m *Membership) addressesOf(n *corev1.Node, self bool) []netip.Addr {
	all := internalIPs(n)
	if self {
		m.Own.Nodes = append(m.Own.Nodes, all...)
		return all
	}
	var out []netip.Addr
	for _, ip := range all[:min(len(all), maxAddresses)] {
		in, cluster := m.held.overlapping(netip.PrefixFrom(ip, 32))
		if cluster != "" {
			m.Collisions = append(m.Collisions, fmt.Sprintf("node %s does not count with its address %v: it is in %v of cluster %s, which had this network before", n.Name, ip, in, cluster))
			continue
		}
		if out = append(out, ip); m.held.addresses[ip] == "" {
			m.Own.Nodes = append(m.Own.Nodes, ip)
			continue
		}
		m.Collisions = append(m.Collisions, fmt.Sprintf("node %s has the address %v of a gateway of cluster %s, which stays connected, as it had the address before", n.Name, ip, m.held.addresses[ip]))
	}
	return out
}

// outranked reports whether a network that another node reports is in use by another cluster that had it before.
func (m *Membership) outranked(n *corev1.Node, network netip.Prefix) bool {
	in, cluster := m.held.overlapping(network)
	if cluster != "" {
		m.Collisions = append(m.Collisions, fmt.Sprintf("node %s does not keep its network %v from cluster %s, which had %v before", n.Name, network, cluster, in))
	}
	return cluster != ""
}
