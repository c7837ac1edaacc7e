package members

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/dataplane"
	"subctl/internal/prefix"
)

// readNodes fills in the nodes.
func (m *Membership) readNodes(s role.Snapshot) error {
	reported := map[string]submarinerv1.NodeFacts{s.Node: s.Facts}
	for _, ra := range role.List[*submarinerv1.RouteAgent](s) {
		if f := ra.Status.Node; f != nil && ra.Name != s.Node {
			reported[ra.Name] = *f
		}
	}
	nodes := map[string]*corev1.Node{}
	podIPs := []netip.Addr(nil)
	for _, n := range role.List[*corev1.Node](s) {
		nodes[n.Name] = n
		m.Nodes = append(m.Nodes, m.readNode(n, reported[n.Name], n.Name == s.Node))
		var podIP netip.Addr
		if !PodCIDR(m.Submariner, n).IsValid() {
			podIP, _ = netip.ParseAddr(reported[n.Name].PodIP) // the zero Addr: not known
		}
		podIPs = append(podIPs, podIP)
	}
	m.removeContestedPods(m.Nodes, podIPs)
	if i := slices.IndexFunc(m.Nodes, func(n cable.Node) bool { return n.Name == s.Node }); i >= 0 {
		m.Self = m.Nodes[i]
	}
	m.Nodes = slices.DeleteFunc(m.Nodes, func(n cable.Node) bool { return !n.IP.IsValid() })
	m.removeCollisions(nodes)
	for _, n := range m.Nodes {
		if !ServesAsGateway(s, nodes[n.Name]) {
			continue // if it has an Endpoint, that is about to go: see lost_gateway_label.go
		}
		if m.Labelled = append(m.Labelled, n); m.HasEndpoint(n) {
			m.Gateways = append(m.Gateways, n)
		}
	}
	slices.SortStableFunc(m.Labelled, func(a, b cable.Node) int {
		return nodes[a.Name].CreationTimestamp.Compare(nodes[b.Name].CreationTimestamp.Time)
	})
	m.readEngines(s, reported)
	switch {
	case m.Self.Name == "":
		return fmt.Errorf("the cluster has no node %q", s.Node)
	case s.Facts.MTU == 0:
		return fmt.Errorf(
			"node %s has no default route, and none of its devices holds its InternalIP: give it either, so that packets find the other nodes",
			m.Self.Name)
	case !m.Self.IP.IsValid():
		return fmt.Errorf(
			"Node %s has no IPv4 address of type InternalIP in its status: start its kubelet with --node-ip, or its cloud controller",
			m.Self.Name)
	case s.Facts.PrivateIP != m.Self.IP.String():
		return fmt.Errorf(
			"no device of node %s has the address %s, which is its InternalIP in Node.status: start its kubelet with a --node-ip that a device has",
			m.Self.Name, m.Self.IP)
	}
	return nil
}

func (m *Membership) HasEndpoint(n cable.Node) bool {
	return slices.ContainsFunc(m.Endpoints, func(e Announced) bool { return e.Endpoint.Spec.Hostname == n.Name })
}

// removeCollisions leaves out nodes that would have the address of another node on our devices: see
// cable.VTEPOf. No plan can have both, and a node that was taken over can write any address into
// its Node.status. Its own node stays. Of the others, nodes with an Endpoint come first, then older
// nodes.
func (m *Membership) removeCollisions(nodes map[string]*corev1.Node) {
	first := slices.Clone(m.Nodes)
	rank := func(n cable.Node) (rank int) {
		switch {
		case n.Name == m.Self.Name:
			return 0
		case m.HasEndpoint(n):
			return 1
		}
		return 2
	}
	slices.SortStableFunc(first, func(a, b cable.Node) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)),
			nodes[a.Name].CreationTimestamp.Compare(nodes[b.Name].CreationTimestamp.Time))
	})
	holders := map[netip.Addr]string{}
	for _, n := range first {
		at := cable.VTEPOf(dataplane.IntraVTEPNet, n.IP)
		by, taken := holders[at]
		if !taken {
			holders[at] = n.Name
			continue
		}
		m.Nodes = slices.DeleteFunc(m.Nodes, func(other cable.Node) bool { return other.Name == n.Name })
		m.Collisions = append(
			m.Collisions,
			fmt.Sprintf(
				"node %s gets no packets of other clusters: the last three octets of its address %v are those of node %s",
				n.Name, n.IP, by),
		)
	}
	slices.Sort(m.Collisions)
}

// minReportedBits is the prefix length of the largest network that a node may report to the
// other nodes. A node knows its own network without a report.
const minReportedBits = 16

// readNode returns a node, and adds its addresses and its network to Own. self specifies
// that it is the snapshot's node.
//
// Other nodes do not trust the report of a node's agent, which may have been taken over. The
// address of a node is an InternalIP of Node.status, and the report only tells which one if
// there are several. A reported network counts if it has this address and is not larger than
// minReportedBits: otherwise an agent could make all nodes refuse the networks of other
// clusters. Nor does an address or a network count that another cluster held first: see held.
func (m *Membership) readNode(n *corev1.Node, facts submarinerv1.NodeFacts, self bool) cable.Node {
	node := cable.Node{Name: n.Name}
	addresses := m.addressesOf(n, self)
	if len(addresses) > 0 {
		node.IP = addresses[0]
	}
	if ip, err := netip.ParseAddr(facts.PrivateIP); err == nil && slices.Contains(addresses, ip) {
		node.IP = ip
	}
	if own, err := netip.ParsePrefix(facts.Network); err == nil && own.Contains(node.IP) &&
		(self || own.Bits() >= minReportedBits) &&
		!slices.Contains(m.Own.Needed, own.Masked()) &&
		(self || !m.isUsedByOther(n, own.Masked())) {
		m.Own.Needed = append(m.Own.Needed, own.Masked())
	}
	m.setServiceState(&node, n)
	podIP, err := netip.ParseAddr(facts.PodIP)
	if pods := PodCIDR(m.Submariner, n); err == nil && pods.IsValid() && pods.Contains(podIP) {
		node.Pods = pods // the CNI does use the node's podCIDR
	}
	return node
}

// PodCIDR returns the node's first IPv4 pod network; the zero Prefix if it has none, or if
// the network plugin ignores it: Calico gives nodes blocks of addresses of its own, so that
// the podCIDR of a node may contain pods of another.
func PodCIDR(sub *v1alpha1.Submariner, n *corev1.Node) netip.Prefix {
	if sub != nil && sub.Status.NetworkPlugin == v1alpha1.Calico {
		return netip.Prefix{}
	}
	for _, c := range append([]string{n.Spec.PodCIDR}, n.Spec.PodCIDRs...) {
		if p, err := netip.ParsePrefix(c); err == nil && p.Addr().Is4() {
			return p.Masked()
		}
	}
	return netip.Prefix{}
}

// AwaitFor is the time for which connections stay with a gateway that does not answer: an agent
// that waits for a processor may find a gateway down that forwards all the time. It finds it up
// again FastBack probes later, after half a second. Their packets take the other gateways
// meanwhile. No node reboots within this time. Connections do not wait for a gateway that was down
// less than Steady before as well: they would move to and fro with it.
const AwaitFor = 2 * time.Second

// Observed returns the gateways, as this node observes them, and after what time to plan again, as
// connections no longer wait for one of them; 0 if they wait for none.
func (m Membership) Observed(health role.Healths, now time.Time) (out []cable.Node, again time.Duration) {
	out = slices.Clone(m.Gateways)
	for i, g := range out {
		h := health[role.GatewayProbe(g)]
		left := h.Since.Add(AwaitFor).Sub(now)
		out[i].Down = h.Status == submarinerv1.ConnectionError
		if !out[i].Down || h.Since.IsZero() || h.Flaps || left <= 0 {
			continue
		}
		out[i].Awaited = true
		if again == 0 || left < again {
			again = left
		}
	}
	return out, again
}

// Returned returns the addresses that each gateway of this cluster announces as its own, by node.
// Of two gateways with the same address, the first has it; of one that announces other addresses,
// none counts.
func (m Membership) Returned() map[string][]netip.Addr {
	out := map[string][]netip.Addr{}
	taken := map[netip.Addr]bool{}
	for _, e := range m.Endpoints {
		ips := e.Gateway.Returned
		if slices.ContainsFunc(ips, func(ip netip.Addr) bool {
			return !prefix.Covers(m.Own.Global, prefix.Host(ip))
		}) {
			continue
		}
		for _, ip := range ips {
			if !taken[ip] {
				taken[ip] = true
				node := e.Endpoint.Spec.Hostname
				out[node] = append(out[node], ip)
			}
		}
	}
	return out
}
