package mesh

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"subctl/cable"
)

// This file is about addresses and networks that other nodes of this cluster have, or say that they
// have, and that gateways of other clusters had first. A node that was taken over can write any
// address into its Node.status, and a new node may get any. So the gateways stay connected, and
// what the node claims does not count, until their clusters announce something else. What this node
// itself has always counts: it refuses the gateway.

// maxAddresses is the maximum number of InternalIPs that count of another node. A node has one on
// each of its networks, and the largest clouds allow 15. Every node has a set with the addresses of
// all nodes.
const maxAddresses = 16

// held are the networks and addresses of the gateways of other clusters that were accepted before,
// with the IDs of their clusters. They count until their clusters announce something else: see
// Membership.announces.
type held struct {
	by        []cable.Gateway
	networks  map[netip.Prefix]string
	sorted    []netip.Prefix // the keys of networks
	addresses map[netip.Addr]string
}

// heldBy returns what incumbents hold: see Memory.Incumbents.
func heldBy(incumbents []cable.Gateway) *held {
	h := &held{
		by:        incumbents,
		networks:  make(map[netip.Prefix]string, 2*len(incumbents)),
		addresses: make(map[netip.Addr]string, 2*len(incumbents)),
	}
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

// holding returns what the incumbents hold: as the last plan found, if nothing has changed.
func (m *Memory) holding() *held {
	if m.held != nil && sameHeld(m.held.by, m.Incumbents) {
		return m.held
	}
	return heldBy(m.Incumbents)
}

// sameHeld reports whether incumbents hold the same, in the same order.
func sameHeld(a, b []cable.Gateway) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x := &a[i]
		y := &b[i]
		if x.Cluster != y.Cluster || x.PrivateIP != y.PrivateIP || x.PublicIP != y.PublicIP ||
			!slices.Equal(x.Subnets, y.Subnets) {
			return false
		}
	}
	return true
}

// incumbentsAgain is the time after which to plan again if the incumbents have changed, and
// something of a node does not count.
const incumbentsAgain = time.Second

// againForIncumbents has the next plan made soon if what does not count of nodes may count then, as
// its incumbents differ from those of this one.
func (p *NodePlan) againForIncumbents() {
	m := p.Mesh.Membership
	changed := len(m.Collisions)+len(m.Contested) > 0 &&
		!sameHeld(p.Mesh.Snapshot.Memory.Incumbents, p.Mesh.Accepted.Incumbents)
	if changed && (p.Again == 0 || p.Again > incumbentsAgain) {
		p.Again = incumbentsAgain
	}
}

// overlapping returns a network that overlaps n, and the cluster that holds it; "" if there is
// none.
func (m *Membership) overlapping(n netip.Prefix) (netip.Prefix, string) {
	h := m.held
	announced := func(by string, network netip.Prefix) bool {
		return m.announces(by, func(g cable.Gateway) bool { return slices.ContainsFunc(g.Subnets, network.Overlaps) })
	}
	for bits := n.Bits(); bits > 0; bits-- {
		around := netip.PrefixFrom(n.Addr(), bits).Masked()
		if by, ok := h.networks[around]; ok && announced(by, around) {
			return around, by
		}
	}
	i, _ := slices.BinarySearchFunc(h.sorted, n.Masked().Addr(),
		func(p netip.Prefix, ip netip.Addr) int { return p.Addr().Compare(ip) })
	for ; i < len(h.sorted) && n.Contains(h.sorted[i].Addr()); i++ {
		if by := h.networks[h.sorted[i]]; announced(by, h.sorted[i]) {
			return h.sorted[i], by
		}
	}
	return netip.Prefix{}, ""
}

// holder returns the cluster one of whose gateways holds an address; "" if there is none.
func (m *Membership) holder(ip netip.Addr) string {
	by := m.held.addresses[ip]
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
		if e.Spec.ClusterID != cluster {
			continue
		}
		if g, err := m.parse(e); err == nil && cable.CheckRemote(g, own) == nil {
			if something(g) {
				return true
			}
			sound = true
		}
	}
	return !sound
}

// outOfReach reports whether the address of the snapshot's node is in a network that another
// cluster had first: the other nodes of this cluster do not use it as a gateway.
func (m *Membership) outOfReach() bool {
	_, by := m.overlapping(netip.PrefixFrom(m.Self.IP, 32))
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
	for _, ip := range all[:min(len(all), maxAddresses)] {
		in, cluster := m.overlapping(netip.PrefixFrom(ip, 32))
		if cluster != "" {
			m.Collisions = append(
				m.Collisions,
				fmt.Sprintf(
					"node %s does not count with its address %v: it is in %v of cluster %s, which had this network before",
					n.Name, ip, in, cluster),
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

// outranked reports whether a network that another node reports is in use by another cluster that
// had it before.
func (m *Membership) outranked(n *corev1.Node, network netip.Prefix) bool {
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
