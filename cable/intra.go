package cable

import (
	"fmt"
	"net/netip"
	"slices"

	"subctl/dataplane"
	"subctl/internal/prefix"
)

// Node is a node of this cluster.
type Node struct {
	Name string
	IP   netip.Addr // outer address of its VXLAN packets
	// Pods is the network of the node's pods; the zero Prefix if the CNI does not use one
	// network per node. The CNI's routes to the pods then apply.
	Pods netip.Prefix
	// Weight is the share of new flows that the node gets as a gateway, compared to the weights of
	// the others: 1 to MaxWeight, or 0 for DefaultWeight.
	Weight int
	// Drain is the progress of the node on its way out of service, as a gateway.
	Drain Drain
	// Down specifies that the node does not answer this one. A gateway gets no packets then while
	// another gateway answers, and a gateway hands the packets for the pods of such a node over to
	// the other gateways.
	Down bool
	// Awaited specifies that a gateway which is Down has been so for a short time only, and may
	// answer again at any moment. Connections that go through it take another gateway meanwhile,
	// and do not choose again.
	Awaited bool
}

// way returns the node as a gateway, with its next hop.
func (n Node) way(hop uint32) way {
	return way{hop: hop, weight: n.Weight, drain: n.Drain, down: n.Down, awaited: n.Awaited}
}

// Intra is the input of PlanIntra: a node and the other nodes of its cluster.
type Intra struct {
	Self     Node
	MTU      int        // MTU of the device of the node's default route, in bytes
	PodIP    netip.Addr // source address of the node's own processes towards other clusters
	OwnPodIP bool       // PodIP is on our device, since no device of the CNI holds it
	Gateways []Node     // the gateways with cables: see Drain
	// Returned are the global addresses of single gateways, by the name of the node. Answers to
	// them that reach another gateway go to this one.
	Returned map[string][]netip.Addr
	Workers  []Node // all other nodes
	// Former are the workers that were gateways until a moment ago: other clusters, and this one's
	// nodes, may still send through them.
	Former []Node
	// Ranked are the nodes that may be gateways, active or not, oldest first: of two whose marks
	// for the return path collide, the first one keeps its mark.
	Ranked     []Node
	Local      Networks       // the networks of this cluster
	Remote     []Reached      // the networks of connected clusters
	Blackholed []netip.Prefix // networks whose packets are dropped: see Cabling.Blackholed
	// Ends are the addresses between which VXLAN packets are sent: of the nodes and of the gateways
	// of other clusters.
	Ends []netip.Addr
	// VXLANPorts are the UDP ports of VXLAN packets between gateways: see OverVXLAN.
	VXLANPorts []int
	// OnlyOurDevices reports whether packets of other clusters reach this node only on our devices:
	// no gateway sends them over the CNI's.
	OnlyOurDevices bool
	// Resilient reports whether the kernel has resilient next hop groups.
	Resilient bool
	// FormerRules is dataplane.Facts.FormerRules.
	FormerRules bool
}

// Reached holds the networks behind one cable.
type Reached struct {
	Cluster string
	Subnets []netip.Prefix
	MTU     int    // MTU of the cable, in bytes
	Device  string // device of the cable on a gateway
}

func (n Intra) isGateway() bool {
	for _, g := range n.Gateways {
		if g.Name == n.Self.Name {
			return true
		}
	}
	return false
}

// siblings returns the other gateways with cables.
func (n Intra) siblings() (out []Node) {
	for _, g := range n.Gateways {
		if g.Name != n.Self.Name {
			out = append(out, g)
		}
	}
	return out
}

// PlanIntra returns the State of a node's route agent.
//
// On a worker, the networks of other clusters are routed over a VXLAN between the nodes to
// the gateways of this cluster. On a gateway with cables, the table has routes to the pods of the
// workers over the same VXLAN, for packets from other clusters (see Plan). So both directions of a
// connection cross the same devices of the same nodes: a network that drops
// packets with foreign source addresses (most clouds) never sees one, and
// connection tracking sees both directions.
//
// Packets to other clusters that find no way are dropped: the default route would send them in
// clear text.
//
// On every node, the TCP MSS is clamped to the path's MTU in both directions (on a gateway by
// Plan), and source addresses are kept: neither the CNI nor kube-proxy masquerades packets
// between clusters.
func PlanIntra(n Intra) (dataplane.State, error) {
	own, mac := VTEP(dataplane.IntraVTEPNet, n.Self.IP)
	const dev = dataplane.IntraDevice
	s, err := dataplane.Of(
		dataplane.VXLAN{
			Name: dev, MAC: mac, VNI: dataplane.IntraVNI, Local: n.Self.IP, Port: dataplane.IntraPort,
			MTU: n.MTU - dataplane.VXLANOverhead, Conf: dataplane.Conf{RPFilter: 2, Forwarding: 1},
		},
		dataplane.Addr{Dev: dev, Prefix: netip.PrefixFrom(own, 8)},
		dataplane.FDB{Dev: dev, MAC: mac, Dst: n.Self.IP}, // for dataplane.ForwardProbe
	)
	if err != nil {
		return nil, err
	}
	if n.OwnPodIP && n.PodIP.IsValid() {
		if err := s.Add(dataplane.Addr{Dev: dev, Prefix: prefix.Host(n.PodIP)}); err != nil {
			return nil, err
		}
	}
	if err := s.Add(n.rules()...); err != nil {
		return nil, err
	}
	if err := n.returns(s); err != nil {
		return nil, err
	}
	link := dataplane.Key{Kind: dataplane.KindLink, Name: dev}
	input := acceptChain(dataplane.RouteOwner, "INPUT").Key()
	s[link] = dataplane.Guarded(s[link], input)
	if n.isGateway() {
		if err := n.addBlackholes(s, dataplane.DropTable, dataplane.DropPriority); err != nil {
			return nil, err
		}
		if err := n.toWorkers(s); err != nil || !n.FormerRules {
			return s, err
		}
		return s, addFormer(s)
	}
	if err := n.addBlackholes(s, dataplane.IntraTable, dataplane.IntraPriority); err != nil {
		return nil, err
	}
	return s, n.toGateways(s)
}

// addBlackholes adds routes to a table that drop the packets to other clusters, and the rule that
// looks the table up.
func (n Intra) addBlackholes(s dataplane.State, table, priority int) error {
	nets := slices.Clone(n.Blackholed)
	for _, r := range n.Remote {
		nets = append(nets, r.Subnets...)
	}
	for _, net := range nets {
		rule := dataplane.Rule{Priority: priority, Table: table, Specific: true}
		if err := s.Add(dataplane.Blackhole{Table: table, Dst: net}, rule); err != nil {
			return err
		}
	}
	return nil
}

// addFormer adds the routes of IntraTable to FormerIntraTable, which the rules of a gateway agent
// of a version before look up.
func addFormer(s dataplane.State) error {
	for _, o := range s.Sorted() {
		if r, is := o.(dataplane.Route); is && r.Table == dataplane.IntraTable {
			r.Table = dataplane.FormerIntraTable
			if err := s.Add(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// toGateways adds the routes to other clusters' networks over our gateways.
func (n Intra) toGateways(s dataplane.State) error {
	if len(n.Gateways) == 0 {
		return nil
	}
	var ways []way
	for _, g := range n.Gateways {
		hop, err := addNode(s, g)
		if err != nil {
			return err
		}
		ways = append(ways, g.way(hop))
	}
	id := uint32(dataplane.IntraGroupID << 24)
	chosen := choose(ways, n.Resilient)
	var err error
	if n.Resilient {
		id = dataplane.ResilientIntraGroupID << 24
		err = addResilient(s, id, ways, chosen, dataplane.IntraBuckets)
	} else {
		err = s.Add(group(id, chosen))
	}
	if err != nil {
		return err
	}
	rule := dataplane.Rule{Priority: dataplane.IntraPriority, Table: dataplane.IntraTable, Specific: true}
	if err := s.Add(rule); err != nil {
		return err
	}
	// A packet may take any cable of a cluster, so the smallest MTU applies.
	narrowest := map[string]int{}
	for _, r := range n.Remote {
		mtu := min(r.MTU, n.MTU-dataplane.VXLANOverhead)
		if old, ok := narrowest[r.Cluster]; !ok || mtu < old {
			narrowest[r.Cluster] = mtu
		}
	}
	for _, r := range n.Remote {
		for _, net := range r.Subnets {
			route := dataplane.Route{
				Table: dataplane.IntraTable,
				Dst:   net,
				Group: id,
				Src:   n.PodIP,
				MTU:   narrowest[r.Cluster],
			}
			if err := s.Add(route); err != nil {
				return fmt.Errorf("planning routes to %s: %w", r.Cluster, err)
			}
		}
	}
	return nil
}

// addNode adds the entries that make another node reachable over the VXLAN, and returns the ID of
// its next hop.
func addNode(s dataplane.State, other Node) (uint32, error) {
	ip, mac := VTEP(dataplane.IntraVTEPNet, other.IP)
	id := NexthopID(dataplane.IntraNexthopID, ip)
	if err := s.Add(dataplane.FDB{Dev: dataplane.IntraDevice, MAC: mac, Dst: other.IP},
		dataplane.Neigh{Dev: dataplane.IntraDevice, IP: ip, MAC: mac},
		dataplane.Nexthop{ID: id, Via: ip, Dev: dataplane.IntraDevice}); err != nil {
		return 0, fmt.Errorf("planning the path to node %s: %w", other.Name, err)
	}
	return id, nil
}

// rules returns the tables of the node and its chains of iptables.
func (n Intra) rules() []dataplane.Object {
	objs := []dataplane.Object{
		acceptChain(dataplane.RouteOwner, "INPUT"), acceptChain(dataplane.RouteOwner, "FORWARD"),
	}
	tables := n.antispoof().Tables()
	n.addFilter(&tables[0])
	for _, t := range tables {
		objs = append(objs, t)
	}
	var remote []netip.Prefix
	for _, r := range n.Remote {
		remote = append(remote, r.Subnets...)
	}
	if len(remote) > 0 {
		objs = append(objs, n.sources(prefix.Widest(remote)).table(), lastChain())
	}
	return objs
}

// echoing reports whether nodes send echoes to gateways of their cluster: there is more than one,
// or may be.
func (n Intra) echoing() bool { return len(n.Ranked) > 1 }

// echo returns the echoes over the VXLAN between the nodes.
func (n Intra) echo() Echo {
	return Echo{
		Dev:  dataplane.IntraDevice,
		Port: dataplane.IntraEchoPort,
		Own:  VTEPOf(dataplane.IntraVTEPNet, n.Self.IP),
	}
}

// echoes returns the devices with echoes, and the nodes whose echoes this node forwards back if it
// is a gateway with cables. The gateway agent decides whose echoes are forwarded from one cable to
// the same.
func (n Intra) echoes() (on []Echo, of []netip.Addr) {
	if n.echoing() {
		on = append(on, n.echo())
	}
	if !n.isGateway() {
		return on, nil
	}
	for _, dev := range dataplane.EchoDevices {
		on = append(on, Echo{Dev: dev, Port: dataplane.EchoPort})
	}
	if n.echoing() {
		for _, node := range slices.Concat(n.Workers, n.siblings()) {
			of = append(of, VTEPOf(dataplane.IntraVTEPNet, node.IP))
		}
		slices.SortFunc(of, netip.Addr.Compare)
	}
	return on, slices.Compact(of)
}

// senders returns the nodes that may send to this one. Gateways and former gateways may send to all
// nodes, and workers to gateways.
func (n Intra) senders() []netip.Addr {
	nodes := slices.Concat(n.Gateways, n.Former)
	if n.isGateway() {
		nodes = slices.Concat(n.Workers, n.siblings())
	}
	ips := []netip.Addr{} // not nil, which means all senders
	for _, node := range nodes {
		ips = append(ips, node.IP)
	}
	return ips
}
