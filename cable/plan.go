package cable

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"subctl/dataplane"
	"subctl/globalnet"
)

// Cabling holds the cables of one gateway.
type Cabling struct {
	Local Local
	Peers []Cable
	// Siblings are the other gateways of this cluster that have a working cable to a cluster, by
	// the ID of that cluster. If no cable of this gateway to the cluster works, they get its
	// packets.
	Siblings map[string][]Node
	// Detours are networks of clusters to which this gateway has no cable yet, or can make none.
	// Their MTU is 0 if it is not known.
	Detours []Reached
	// Blackholed are networks whose packets are dropped, because their clusters are not connected,
	// or not yet, and the packets must not leave in clear text.
	Blackholed []netip.Prefix
	// Carried specifies that the CNI brings packets to the pods of other nodes, and that the pods'
	// replies may take another gateway of this cluster: see unseen. Here is the network of the pods
	// of this node, if it is known.
	Carried bool
	Here    netip.Prefix
	// Globalnet is what this gateway translates, if its cluster has global networks.
	Globalnet globalnet.Elements
	// Clusters are the IDs of other clusters, in the order in which they get the IDs of their next
	// hop groups and next hops: see groupIDs. Clusters that are missing follow, sorted.
	Clusters []string
	// FormerRoutes is dataplane.Facts.FormerRoutes.
	FormerRoutes bool
}

// Cable is a cable to a peer by a driver. While a pair changes its cable, a peer
// has two.
type Cable struct {
	Peer
	Driver Driver
	// Idle specifies that the cable is set up but carries no traffic from this end: it has not
	// answered yet, or it stays for packets that the other end still sends.
	Idle bool
	// Silent specifies that the cable is the one that the pair uses, but carries no traffic from
	// this end until it answers again.
	Silent bool
	// Down specifies that the other end of the cable does not answer. It carries no traffic while
	// there is another way to its cluster.
	Down bool
}

// way returns the cable as a way to its cluster, with its next hop.
func (c Cable) way(hop uint32) way {
	return way{hop: hop, weight: c.Weight, drain: c.Drain, down: c.Down}
}

// Carries reports whether the cable carries traffic.
func (c Cable) Carries() bool { return !c.Idle && !c.Silent }

// Device returns the device of the cable.
func (c Cable) Device() string { return c.Driver.Device(c.Config) }

// MTU returns the MTU of the cable, in bytes.
func (c Cable) MTU(l Local) int {
	most := cmp.Or(c.Peer.MTU, l.MTU) - c.Driver.Overhead(l, c.Peer)
	if set := c.Config.Number(OptionMTU); set != 0 {
		return min(set, most)
	}
	return most
}

// Plan returns the State of a gateway: the drivers' devices and next hops; a next
// hop group for each remote cluster (even with a single member, so that changes of gateways
// change only the group and no routes); the routes to the remote networks, detours to other
// gateways of this cluster if the devices of the cables disappear (see addDetours), and blackhole
// routes that drop their packets if the device of a cable disappears, or if the network is
// barred; and the filter rules:
//
//   - no packets from one cable to another: clustersets have no transit;
//   - from a cable, only packets whose source is behind a cable of the same device, to this
//     cluster's pods and Services (or to the destination that kube-proxy chose: a Service may
//     be backed by a node);
//   - the packets of cables themselves only from known gateways;
//   - no forged packets: see antispoof.
//
// Packets to and from pods of the gateway node, and to the node itself, are returned and
// not accepted, so that the following chains of the CNI (network policies) and of the host's
// firewall apply. Only health checks are accepted.
//
// Packets from a cable to the pods of a worker are routed by the table of the route agent (see
// PlanIntra). The rule that looks it up exists before the device of the cable does, as the other
// end uses the cable as soon as it answers.
//
// Plan also returns the links of the cables, in the order of c.Peers.
func Plan(c Cabling) (dataplane.State, []Link, error) {
	s := make(dataplane.State, 12*len(c.Peers)) // a next hop, a group, two neighbours, and a few routes each
	if err := s.Add(cableRule); err != nil {
		return nil, nil, err
	}
	for _, n := range c.Blackholed {
		if err := s.Add(dataplane.Blackhole{Table: dataplane.CableTable, Dst: n}); err != nil {
			return nil, nil, err
		}
	}
	if len(c.Peers) == 0 { // no devices, and no rules for them
		return s, nil, c.addRoutes(s, nil)
	}
	links, listens, err := c.planDrivers(s)
	if err != nil {
		return nil, nil, err
	}
	if err := c.addRoutes(s, links); err != nil {
		return nil, nil, err
	}
	devices := c.devices(links)
	for _, d := range devices {
		if err := s.Add(c.arrivals(d)...); err != nil {
			return nil, nil, err
		}
	}
	return s, links, c.filter(s, devices, links, listens)
}

// addRoutes adds the routes to the networks of other clusters: through the cables that carry
// traffic, or through the other gateways of this cluster.
func (c Cabling) addRoutes(s dataplane.State, links []Link) error {
	byCluster := map[string]*remote{}
	for i, p := range c.Peers {
		if p.Carries() {
			remoteOf(byCluster, p.Cluster).add(p, links[i].Hop, p.MTU(c.Local))
		}
	}
	waits := func(cluster string) bool {
		r := byCluster[cluster]
		return len(c.Siblings[cluster]) > 0 && (r == nil || len(r.ways) == 0)
	}
	for _, p := range c.Peers {
		if waits(p.Cluster) {
			remoteOf(byCluster, p.Cluster).addNetworks(p.Subnets, p.MTU(c.Local))
		}
	}
	for _, d := range c.Detours {
		if waits(d.Cluster) {
			remoteOf(byCluster, d.Cluster).addNetworks(d.Subnets, d.MTU)
		}
	}
	groups := groupIDs(slices.Concat(c.Clusters, slices.Sorted(maps.Keys(byCluster)), c.returning()))
	src := c.Local.PodIP
	if c.Local.PodIPMissing {
		src = netip.Addr{}
	}
	for cluster, r := range byCluster {
		id, err := c.addGroup(s, groups[cluster], cluster, *r)
		if err != nil {
			return err
		}
		for _, n := range r.nets {
			route := dataplane.Route{Table: dataplane.CableTable, Dst: n, Group: id, Src: src, MTU: r.mtu}
			if err := s.Add(route, dataplane.Blackhole{Table: route.Table, Dst: n}); err != nil {
				return fmt.Errorf("planning routes to %s: %w", cluster, err)
			}
		}
		if err := c.addDetours(s, cluster, *r, src); err != nil {
			return err
		}
	}
	return c.addReturns(s, links, groups, src)
}

// cableRule is the rule by which a gateway looks up packets in the table of the cables. A gateway
// without cables has it, too: the route agent of the node takes it for the sign that the gateway
// agent has run. See dataplane.Facts.NoCableRule.
var cableRule = dataplane.Rule{Priority: dataplane.CablePriority, Table: dataplane.CableTable, Specific: true}

// planDrivers calls Plan of every driver for its cables, in the order of c.Clusters, and merges the
// results into s.
func (c Cabling) planDrivers(s dataplane.State) ([]Link, []Listen, error) {
	byDriver := map[string][]int{}
	for i, p := range c.Peers {
		byDriver[p.Driver.Name()] = append(byDriver[p.Driver.Name()], i)
	}
	rank := map[string]int{}
	for i, id := range c.Clusters {
		rank[id] = i - len(c.Clusters) // others follow
	}
	for _, of := range byDriver {
		slices.SortStableFunc(of, func(a, b int) int { return rank[c.Peers[a].Cluster] - rank[c.Peers[b].Cluster] })
	}
	links := make([]Link, len(c.Peers))
	var listens []Listen
	for _, name := range slices.Sorted(maps.Keys(byDriver)) {
		peers := make([]Peer, 0, len(byDriver[name]))
		for _, i := range byDriver[name] {
			peers = append(peers, c.Peers[i].Peer)
		}
		w, err := c.Peers[byDriver[name][0]].Driver.Plan(c.Local, peers)
		if err != nil {
			return nil, nil, err
		}
		if err := s.Merge(w.State); err != nil {
			return nil, nil, err
		}
		for k, i := range byDriver[name] {
			links[i] = w.Links[k]
			links[i].Passes = packetKinds(w.Listens)
		}
		listens = append(listens, w.Listens...)
	}
	// unknown gateways may send requests, too
	listens = append(listens, Listen{Proto: "udp", Port: dataplane.NATDiscoveryPort})
	return links, listens, nil
}

// remote holds the next hops and networks of one remote cluster.
type remote struct {
	ways []way // over the cables that carry traffic
	nets []netip.Prefix
	mtu  int // the smallest MTU of its cables
}

func remoteOf(all map[string]*remote, cluster string) *remote {
	if all[cluster] == nil {
		all[cluster] = &remote{}
	}
	return all[cluster]
}

// add adds a cable that carries traffic.
func (r *remote) add(c Cable, hop uint32, mtu int) {
	r.ways = append(r.ways, c.way(hop))
	r.addNetworks(c.Subnets, mtu)
}

// addNetworks adds the networks behind a cable, given its MTU, which is 0 if it is not known.
func (r *remote) addNetworks(nets []netip.Prefix, mtu int) {
	r.nets = append(r.nets, nets...)
	if r.mtu == 0 || mtu != 0 && mtu < r.mtu {
		r.mtu = mtu
	}
}
