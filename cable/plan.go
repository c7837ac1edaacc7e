package cable

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"

	"subctl/dataplane"
)

// Cabling holds the cables of one gateway.
type Cabling struct {
	Local Local
	Peers []Cable
	// Barred are networks whose packets are dropped, because their clusters are not connected,
	// or not yet, and the packets must not leave in clear text.
	Barred []netip.Prefix
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

// Plan returns the State of an active gateway: the drivers' devices and next hops; a next
// hop group for each remote cluster (even with a single member, so that changes of gateways
// change only the group and no routes); the routes to the remote networks, and blackhole
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
	for _, n := range c.Barred {
		if err := s.Add(dataplane.Blackhole{Table: dataplane.CableTable, Dst: n}, cableRule); err != nil {
			return nil, nil, err
		}
	}
	if len(c.Peers) == 0 {
		return s, nil, nil // no cables: no devices, and no rules for them
	}
	links, listens, err := c.wire(s)
	if err != nil {
		return nil, nil, err
	}
	byCluster := map[string]*remote{}
	for i, p := range c.Peers {
		if !p.Carries() {
			continue
		}
		r := byCluster[p.Cluster]
		if r == nil {
			r = &remote{}
			byCluster[p.Cluster] = r
		}
		r.add(links[i].Hop, p.Subnets, p.MTU(c.Local))
	}
	groups := groupIDs(slices.Sorted(maps.Keys(byCluster)))
	src := c.Local.PodIP
	if c.Local.PodIPMissing {
		src = netip.Addr{}
	}
	for cluster, r := range byCluster {
		if err := s.Add(group(groups[cluster], r.hops)); err != nil {
			return nil, nil, err
		}
		for _, n := range r.nets {
			route := dataplane.Route{Table: dataplane.CableTable, Dst: n, Group: groups[cluster], Src: src, MTU: r.mtu}
			if err := s.Add(route, dataplane.Blackhole{Table: route.Table, Dst: n}); err != nil {
				return nil, nil, fmt.Errorf("planning routes to %s: %w", cluster, err)
			}
		}
	}
	if err := s.Add(cableRule); err != nil {
		return nil, nil, err
	}
	devices := c.devices(links)
	for _, d := range devices {
		if err := s.Add(d.arrival()); err != nil {
			return nil, nil, err
		}
	}
	return s, links, c.addFilter(s, devices, links, listens)
}

// cableRule is the rule by which a gateway looks up packets in the table of the cables.
var cableRule = dataplane.Rule{Priority: dataplane.CablePriority, Table: dataplane.CableTable}

// wire calls Plan of every driver for its cables, and merges the results into s.
func (c Cabling) wire(s dataplane.State) ([]Link, []Listen, error) {
	byDriver := map[string][]int{}
	for i, p := range c.Peers {
		byDriver[p.Driver.Name()] = append(byDriver[p.Driver.Name()], i)
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
			links[i].Passes = passes(w.Listens)
		}
		listens = append(listens, w.Listens...)
	}
	listens = append(listens, Listen{Proto: "udp", Port: dataplane.NATDiscoveryPort}) // unknown gateways may send requests, too
	return links, listens, nil
}

// remote holds the next hops and networks of one remote cluster.
type remote struct {
	hops []uint32
	nets []netip.Prefix
	mtu  int // the smallest MTU of its cables
}

func (r *remote) add(hop uint32, nets []netip.Prefix, mtu int) {
	r.hops = append(r.hops, hop)
	r.nets = append(r.nets, nets...)
	if r.mtu == 0 || mtu < r.mtu {
		r.mtu = mtu
	}
}

// group returns a group of the next hops, sorted, with equal weights.
func group(id uint32, hops []uint32) dataplane.Group {
	slices.Sort(hops)
	g := dataplane.Group{ID: id}
	for _, h := range slices.Compact(hops) {
		g.Members = append(g.Members, dataplane.Member{ID: h, Weight: 1})
	}
	return g
}

// groupIDs returns the ID of each cluster's next hop group: 24 bits of a hash of the cluster
// ID, incremented on a collision. A cluster's ID does not depend on its gateways or, except
// for collisions (one pair in 16 million), on other clusters.
func groupIDs(clusters []string) map[string]uint32 {
	const mask = 1<<24 - 1
	ids, taken := map[string]uint32{}, map[uint32]bool{}
	for _, c := range clusters {
		h := fnv.New32a()
		h.Write([]byte(c)) // never fails
		id := h.Sum32() & mask
		for taken[id] {
			id = (id + 1) & mask
		}
		taken[id] = true
		ids[c] = dataplane.CableGroupID<<24 | id
	}
	return ids
}
