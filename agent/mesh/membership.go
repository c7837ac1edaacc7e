package mesh

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/dataplane"
)

// Membership holds the members: this cluster with its nodes, and the other clusters.
type Membership struct {
	Submariner *v1alpha1.Submariner // how this cluster is joined
	Own        cable.Networks
	Self       cable.Node
	Nodes      []cable.Node // of this cluster, sorted by name
	Labelled   []cable.Node // the nodes among them that have the label of gateway nodes, oldest first: see cable.Intra.Ranked
	Gateways   []cable.Node // the nodes among these that have an Endpoint
	Doubled    []string     // messages about nodes that are left out because their addresses collide: see distinct
	Engines    Engines
	// Cluster is the Cluster object of this cluster; nil if there is none yet.
	Cluster *submarinerv1.Cluster
	// Sets are the clustersets of this cluster, sorted. The broker's administrator may have changed them since the
	// cluster has joined.
	Sets []string
	// Clusters are the Cluster objects of other clusters, by ID.
	Clusters map[string]*submarinerv1.Cluster
	// Endpoints are the Endpoints of this cluster, with the standbys last; Remote are the Endpoints that other
	// clusters announce.
	Endpoints, Remote []*submarinerv1.Endpoint
}

// Engines are the engines of encrypted cables on the gateway's node. The plans of all
// nodes of a cluster use the engines of its gateway, so that they agree.
type Engines struct{ WireGuard, IPsec dataplane.Engine }

// Siblings returns the other gateways of this cluster that have an Endpoint: active ones and standbys.
func (m Membership) Siblings() []cable.Node {
	return slices.DeleteFunc(slices.Clone(m.Gateways), func(g cable.Node) bool { return g.Name == m.Self.Name })
}

// observed returns the gateways, as this node observes them.
func (m Membership) observed(health Healths) []cable.Node {
	out := slices.Clone(m.Gateways)
	for i, g := range out {
		out[i].Down = health[gatewayProbe(g)].Status == submarinerv1.ConnectionError
	}
	return out
}

// Leaving reports whether the cluster is being uninstalled.
func (m Membership) Leaving() bool { return !m.Submariner.DeletionTimestamp.IsZero() }

// readMembership reads a Snapshot. The error is ErrNotJoined or a mistake in this
// cluster's own objects.
func readMembership(s Snapshot) (Membership, error) {
	subs := List[*v1alpha1.Submariner](s)
	if len(subs) == 0 {
		return Membership{}, ErrNotJoined
	}
	m := Membership{Submariner: subs[0]}
	var err error
	if m.Own.Pods, err = parseCIDRs("clusterCIDR", m.Submariner.Spec.ClusterCIDR); err != nil {
		return m, err
	}
	if m.Own.Services, err = parseCIDRs("serviceCIDR", m.Submariner.Spec.ServiceCIDR); err != nil {
		return m, err
	}
	if m.Submariner.Spec.GlobalCIDR != "" {
		if m.Own.Global, err = parseCIDRs("globalCIDR", m.Submariner.Spec.GlobalCIDR); err != nil {
			return m, err
		}
	}
	if err = apart(m.Own); err != nil {
		return m, err
	}
	host, _, _ := net.SplitHostPort(m.Submariner.Spec.BrokerK8sApiServer) // not an address: no route can cover it
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is4() {
		m.Own.Needed = append(m.Own.Needed, netip.PrefixFrom(ip, 32))
	}
	m.readClusters(s)
	if m.Sets = s.ClusterSets; m.Sets == nil {
		m.Sets = v1alpha1.ClusterSets(m.Submariner.Spec, m.Cluster)
	}
	return m, m.readNodes(s)
}

// readClusters fills in the Clusters and Endpoints of this cluster and of the others.
func (m *Membership) readClusters(s Snapshot) {
	id := m.Submariner.Spec.ClusterID
	m.Clusters = map[string]*submarinerv1.Cluster{}
	for _, c := range List[*submarinerv1.Cluster](s) {
		switch {
		case c.Name == id && !submarinerv1.IsCopy(c):
			m.Cluster = c
		case c.Labels[submarinerv1.ClusterIDLabel] == c.Spec.ClusterID:
			m.Clusters[c.Spec.ClusterID] = c
		}
	}
	for _, e := range List[*submarinerv1.Endpoint](s) {
		if e.Spec.ClusterID == id && !submarinerv1.IsCopy(e) {
			m.Endpoints = append(m.Endpoints, e)
		} else {
			m.Remote = append(m.Remote, e)
		}
	}
	slices.SortStableFunc(m.Endpoints, func(a, b *submarinerv1.Endpoint) int { return cmp.Compare(drainOf(a), drainOf(b)) })
}

// readNodes fills in the nodes.
func (m *Membership) readNodes(s Snapshot) error {
	reported := map[string]submarinerv1.NodeFacts{s.Node: s.Facts}
	for _, ra := range List[*submarinerv1.RouteAgent](s) {
		if f := ra.Status.Node; f != nil && ra.Name != s.Node {
			reported[ra.Name] = *f
		}
	}
	nodes := map[string]*corev1.Node{}
	for _, n := range List[*corev1.Node](s) {
		node := m.readNode(n, reported[n.Name], n.Name == s.Node)
		if n.Name == s.Node {
			m.Self = node
		}
		if nodes[n.Name] = n; node.IP.IsValid() {
			m.Nodes = append(m.Nodes, node)
		}
	}
	m.distinct(nodes)
	for _, n := range m.Nodes {
		if !IsGatewayNode(nodes[n.Name]) {
			continue // if it has an Endpoint, the speaker is about to delete it
		}
		if m.Labelled = append(m.Labelled, n); m.hasEndpoint(n) {
			m.Gateways = append(m.Gateways, n)
		}
	}
	slices.SortStableFunc(m.Labelled, func(a, b cable.Node) int {
		return nodes[a.Name].CreationTimestamp.Compare(nodes[b.Name].CreationTimestamp.Time)
	})
	m.Engines = m.readEngines(s, reported)
	switch {
	case m.Self.Name == "":
		return fmt.Errorf("the cluster has no node %q", s.Node)
	case s.Facts.MTU == 0:
		return fmt.Errorf("node %s has no default route, and none of its devices holds its InternalIP: give it either, so that packets find the other nodes", m.Self.Name)
	case !m.Self.IP.IsValid():
		return fmt.Errorf("Node %s has no IPv4 address of type InternalIP in its status: start its kubelet with --node-ip, or its cloud controller", m.Self.Name)
	case s.Facts.PrivateIP != m.Self.IP.String():
		return fmt.Errorf("no device of node %s has the address %s, which is its InternalIP in Node.status: start its kubelet with a --node-ip that a device has", m.Self.Name, m.Self.IP)
	}
	return nil
}

func (m *Membership) hasEndpoint(n cable.Node) bool {
	return slices.ContainsFunc(m.Endpoints, func(e *submarinerv1.Endpoint) bool { return e.Spec.Hostname == n.Name })
}

// distinct leaves out nodes that would have the address of another node on our devices: see cable.VTEPOf. No plan can have
// both, and a node that was taken over can write any address into its Node.status. Its own node stays, then those
// that have an Endpoint, then those that exist for longer.
func (m *Membership) distinct(nodes map[string]*corev1.Node) {
	first := slices.Clone(m.Nodes)
	rank := func(n cable.Node) (rank int) {
		switch {
		case n.Name == m.Self.Name:
			return 0
		case m.hasEndpoint(n):
			return 1
		}
		return 2
	}
	slices.SortStableFunc(first, func(a, b cable.Node) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), nodes[a.Name].CreationTimestamp.Compare(nodes[b.Name].CreationTimestamp.Time))
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
		m.Doubled = append(m.Doubled, fmt.Sprintf("node %s gets no packets of other clusters: the last three octets of its address %v are those of node %s", n.Name, n.IP, by))
	}
	slices.Sort(m.Doubled)
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
// clusters.
func (m *Membership) readNode(n *corev1.Node, facts submarinerv1.NodeFacts, self bool) cable.Node {
	node := cable.Node{Name: n.Name}
	addresses := internalIPs(n)
	m.Own.Nodes = append(m.Own.Nodes, addresses...)
	if len(addresses) > 0 {
		node.IP = addresses[0]
	}
	if ip, err := netip.ParseAddr(facts.PrivateIP); err == nil && slices.Contains(addresses, ip) {
		node.IP = ip
	}
	if own, err := netip.ParsePrefix(facts.Network); err == nil && own.Contains(node.IP) && (self || own.Bits() >= minReportedBits) &&
		!slices.Contains(m.Own.Needed, own.Masked()) {
		m.Own.Needed = append(m.Own.Needed, own.Masked())
	}
	m.shareOf(&node, n)
	podIP, err := netip.ParseAddr(facts.PodIP)
	if pods := podCIDR(m.Submariner, n); err == nil && pods.IsValid() && pods.Contains(podIP) {
		node.Pods = pods // the CNI does use the node's podCIDR
	}
	return node
}

// readEngines returns the engines of this node if it may be a gateway, and otherwise of
// the active gateway.
func (m *Membership) readEngines(s Snapshot, reported map[string]submarinerv1.NodeFacts) Engines {
	facts := s.Facts
	if n := Find[*corev1.Node](s, s.Node); n == nil || !IsGatewayNode(n) {
		for _, e := range m.Endpoints {
			if f, ok := reported[e.Spec.Hostname]; ok {
				facts = f
				break
			}
		}
	}
	engine := func(f submarinerv1.EngineFact) dataplane.Engine {
		return dataplane.Engine{Name: f.Name, Missing: f.Missing}
	}
	return Engines{WireGuard: engine(facts.WireGuard), IPsec: engine(facts.IPsec)}
}

// IsGatewayNode reports whether a node has the label of gateway nodes.
func IsGatewayNode(n *corev1.Node) bool {
	return n != nil && n.Labels[submarinerv1.GatewayNodeLabel] == "true"
}

// podCIDR returns the node's first IPv4 pod network; the zero Prefix if it has none, or if
// the network plugin ignores it: Calico gives nodes blocks of addresses of its own, so that
// the podCIDR of a node may contain pods of another.
func podCIDR(sub *v1alpha1.Submariner, n *corev1.Node) netip.Prefix {
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

// apart returns an error for each network of this cluster that overlaps one of another field.
func apart(own cable.Networks) error {
	var errs []error
	check := func(field string, nets []netip.Prefix, other string, others []netip.Prefix, remedy string) {
		for _, n := range nets {
			for _, o := range others {
				if n.Overlaps(o) {
					errs = append(errs, fmt.Errorf("Submariner.spec.%s %s overlaps %s %s: run subctl join with %s", field, n, other, o, remedy))
				}
			}
		}
	}
	check("serviceCIDR", own.Services, "clusterCIDR", own.Pods, "the right --clustercidr and --servicecidr")
	check("globalCIDR", own.Global, "clusterCIDR", own.Pods, "another --globalnet-cidr")
	check("globalCIDR", own.Global, "serviceCIDR", own.Services, "another --globalnet-cidr")
	return errors.Join(errs...)
}

// parseCIDRs parses the networks in a field of Submariner.spec, separated by commas.
func parseCIDRs(field, text string) ([]netip.Prefix, error) {
	list := slices.DeleteFunc(strings.Split(text, ","), func(s string) bool { return strings.TrimSpace(s) == "" })
	if len(list) == 0 {
		return nil, fmt.Errorf("Submariner.spec.%s is empty: run subctl join again", field)
	}
	out, err := cable.ParseCIDRs("Submariner.spec."+field, list)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out), nil
}
