package agent

import (
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
	"subctl/policy"
)

// view is a Snapshot understood: whose node this is, what its cluster consists of
// and which of the other clusters' gateways it may talk to.
type view struct {
	snap     Snapshot
	sub      *v1alpha1.Submariner
	driver   cable.Driver   // this cluster's default
	listed   []cable.Driver // what it may offer, the default first
	offer    []cable.Driver // what it does offer
	book     *policy.Book
	us       policy.Cluster                   // this cluster as policies see it
	clusters map[string]*submarinerv1.Cluster // of other clusters, by ID
	engines  submarinerv1.NodeFacts           // of the gateway: this node if it may be one, else the active one
	self     cable.Node
	own      cable.Networks
	nodes    []cable.Node                         // of this cluster, sorted by name
	active   []cable.Node                         // those with an Endpoint
	remote   []cable.Peer                         // gateways of other clusters that are what they say, connected or not
	peers    []cable.Cable                        // as policy wants them
	specs    map[string]submarinerv1.EndpointSpec // of peers, by cable name
	held     []cable.Gateway                      // whose claims stand
	kept     map[string]string                    // why peers keep the cable they have, by cable name
	before   map[string]Using                     // by cluster; see inUse
	devices  map[string]bool                      // that policies have made; see room
	// refused lists the endpoints that are not programmed, and why.
	refused []refusal
	// settings are this cluster's own, by driver; configErr says why they, or the drivers
	// listed, are not what the user wants.
	settings  map[string]cable.Config
	configErr error
	listedErr error // the part of configErr that is about the drivers
}

// refusal is an endpoint of another cluster that we do not connect to.
type refusal struct {
	spec submarinerv1.EndpointSpec
	err  error
}

// errNotJoined means there is no Submariner: the agent has nothing to do.
var errNotJoined = errors.New("there is no Submariner object in this cluster: run subctl join")

// newView understands a Snapshot. An error is a mistake in this cluster's own
// objects; mistakes of others are refusals.
func newView(s Snapshot) (*view, error) {
	subs := List[*v1alpha1.Submariner](s)
	if len(subs) == 0 {
		return nil, errNotJoined
	}
	v := &view{snap: s, sub: subs[0], specs: map[string]submarinerv1.EndpointSpec{}, kept: map[string]string{}}
	var err error
	if v.own.Pods, err = parseCIDRs("clusterCIDR", v.sub.Spec.ClusterCIDR); err != nil {
		return nil, err
	}
	if v.own.Services, err = parseCIDRs("serviceCIDR", v.sub.Spec.ServiceCIDR); err != nil {
		return nil, err
	}
	host, _, _ := net.SplitHostPort(v.sub.Spec.BrokerK8sApiServer)
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is4() {
		v.own.Needed = append(v.own.Needed, netip.PrefixFrom(ip, 32))
	}
	if err := v.readNodes(); err != nil {
		return nil, err
	}
	v.readListed()
	v.readSettings()
	v.readOffer()
	v.readClusters()
	v.us = policy.Cluster{ID: v.sub.Spec.ClusterID, Labels: v.ownLabels(), Sets: v.sub.Spec.Sets(), Driver: v.driver.Name()}
	v.readEndpoints()
	return v, nil
}

// leaving says that the cluster is being uninstalled.
func (v *view) leaving() bool { return !v.sub.DeletionTimestamp.IsZero() }

func parseCIDRs(field, text string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		p, err := cable.ParseCIDR(part)
		if err != nil {
			return nil, fmt.Errorf("Submariner.spec.%s: %w", field, err)
		}
		out = append(out, p)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("Submariner.spec.%s is empty: run subctl join again", field)
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out), nil
}

// readNodes fills in self and nodes. What a node's own agent found out about it
// counts more than what the API server thinks.
func (v *view) readNodes() error {
	reported := map[string]submarinerv1.NodeFacts{v.snap.Node: v.snap.Facts}
	for _, ra := range List[*submarinerv1.RouteAgent](v.snap) {
		if f := ra.Status.Node; f != nil && ra.Name != v.snap.Node {
			reported[ra.Name] = *f
		}
	}
	for _, n := range List[*corev1.Node](v.snap) {
		node := cable.Node{Name: n.Name}
		for _, a := range n.Status.Addresses {
			if ip, err := netip.ParseAddr(a.Address); err == nil && ip.Is4() && a.Type == corev1.NodeInternalIP {
				v.own.Nodes = append(v.own.Nodes, ip)
				if !node.IP.IsValid() {
					node.IP = ip
				}
			}
		}
		facts, known := reported[n.Name]
		if ip, err := netip.ParseAddr(facts.PrivateIP); known && err == nil && ip.Is4() {
			if node.IP != ip {
				v.own.Nodes = append(v.own.Nodes, ip)
			}
			node.IP = ip
		}
		if own, err := netip.ParsePrefix(facts.Network); err == nil && !slices.Contains(v.own.Needed, own.Masked()) {
			v.own.Needed = append(v.own.Needed, own.Masked())
		}
		podIP, err := netip.ParseAddr(facts.PodIP)
		if pods := podCIDR(n); err == nil && pods.IsValid() && pods.Contains(podIP) {
			node.Pods = pods // the CNI does use the node's podCIDR
		}
		if n.Name == v.snap.Node {
			v.self = node
		}
		if node.IP.IsValid() {
			v.nodes = append(v.nodes, node)
		}
	}
	if v.self.Name == "" {
		return fmt.Errorf("the cluster has no node %q", v.snap.Node)
	}
	if v.snap.Facts.MTU == 0 {
		return fmt.Errorf("node %s has no default route, and none of its devices holds its InternalIP: give it either, so that packets find the other nodes", v.self.Name)
	}
	v.readEngines(reported)
	if !v.self.IP.IsValid() {
		return fmt.Errorf("node %s has no IPv4 address", v.self.Name)
	}
	return nil
}

// readEngines fills in engines: what a cable can be made of is up to the gateway,
// and the other nodes must come to the same conclusion.
func (v *view) readEngines(reported map[string]submarinerv1.NodeFacts) {
	v.engines = v.snap.Facts
	if n := find[*corev1.Node](v.snap, v.snap.Node); n != nil && isGatewayNode(n) {
		return
	}
	for _, e := range List[*submarinerv1.Endpoint](v.snap) {
		if f, ok := reported[e.Spec.Hostname]; ok && v.isOwn(e) {
			v.engines = f
			return
		}
	}
}

// isOwn says whether an Endpoint is of this cluster.
func (v *view) isOwn(e *submarinerv1.Endpoint) bool {
	return e.Spec.ClusterID == v.sub.Spec.ClusterID && e.Labels[submarinerv1.ClusterIDLabel] == ""
}

// podCIDR is the node's first IPv4 pod network; the zero Prefix if it has none.
func podCIDR(n *corev1.Node) netip.Prefix {
	for _, c := range append([]string{n.Spec.PodCIDR}, n.Spec.PodCIDRs...) {
		if p, err := netip.ParsePrefix(c); err == nil && p.Addr().Is4() {
			return p.Masked()
		}
	}
	return netip.Prefix{}
}

// local is this node as a gateway.
func (v *view) local() cable.Local {
	podIP, _ := netip.ParseAddr(v.snap.Facts.PodIP)
	return cable.Local{
		Gateway: cable.Gateway{
			Cluster: v.sub.Spec.ClusterID, Host: v.self.Name, PrivateIP: v.self.IP, PublicIP: v.snap.PublicIP, HealthIP: podIP,
			Subnets: v.own.All(), NAT: v.sub.Spec.NatEnabled,
			Name: cableName(v.sub.Spec.ClusterID, v.self.IP),
		},
		MTU: v.snap.Facts.MTU, PodIP: podIP, PodIPMissing: v.snap.PodIPMissing, Pods: v.own.Pods, Svcs: v.own.Services, Keys: v.snap.Keys, Settings: v.settings,
		WireGuard: engine(v.engines.WireGuard), IPsec: engine(v.engines.IPsec),
	}
}

// cableName names a cable by where it ends, as Submariner does.
func cableName(cluster string, ip netip.Addr) string {
	return "submariner-cable-" + cluster + "-" + strings.ReplaceAll(ip.String(), ".", "-")
}

func engine(f submarinerv1.EngineFact) dataplane.Engine {
	return dataplane.Engine{Name: f.Name, Missing: f.Missing}
}
