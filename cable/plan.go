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

// Cabling is the cables of one gateway: each peer with the driver that joins it.
type Cabling struct {
	Local Local
	Peers []Cable
}

// Cable is one peer and how it is joined. While a pair changes its cable, a peer
// has two.
type Cable struct {
	Peer
	Driver Driver
	// Idle says that the cable is up but carries no traffic: it has yet to be seen
	// working, or is kept for what the other side still sends.
	Idle bool
}

// Device is the device of the cable.
func (c Cable) Device() string { return c.Driver.Device(c.Config) }

// MTU is the size of the largest packet that fits into the cable, in bytes.
func (c Cable) MTU(l Local) int {
	most := cmp.Or(c.Peer.MTU, l.MTU) - c.Driver.Overhead(l, c.Peer)
	if set := c.Config.Number(OptionMTU); set != 0 {
		return min(set, most)
	}
	return most
}

// Plan returns what an active gateway's kernel holds: the drivers' devices and
// next hops; a next hop group for each remote cluster (even of one member: when
// gateways come and go only the group changes, never the routes); the routes to
// what is behind them, and what drops packets for it should its cable's device go;
// and the rules of who may pass:
//
//   - from cable to cable nobody: clustersets have no transit;
//   - from a cable only sources that are behind a cable of the same device, to this
//     cluster's pods and Services (or to where kube-proxy sent them: a Service may be backed by
//     a node);
//   - cable packets themselves only from known gateways.
//
// What goes to and from pods of the gateway node itself, and to the node, is
// returned, not accepted: chains of the CNI and of the host's own firewall come
// next, and with them network policies. Health checks alone are accepted.
//
// The links are those of the cables, in the same order.
func Plan(c Cabling) (dataplane.State, []Link, error) {
	s := make(dataplane.State, 12*len(c.Peers)) // a next hop, a group, two neighbours, and a few routes each
	if len(c.Peers) == 0 {
		return s, nil, nil // a gateway without peers has no device that somebody could send to
	}
	links, listens, err := c.wire(s)
	if err != nil {
		return nil, nil, err
	}
	byCluster := map[string]*remote{}
	for i, p := range c.Peers {
		if p.Idle {
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
	if err := s.Add(dataplane.Rule{Priority: dataplane.CablePriority, Table: dataplane.CableTable}); err != nil {
		return nil, nil, err
	}
	return s, links, s.Add(gatewayFilter(c, links, listens)...)
}

// wire has every driver plan its cables, and puts what they plan in s.
func (c Cabling) wire(s dataplane.State) ([]Link, []Listen, error) {
	byDriver := map[string][]int{}
	for i, p := range c.Peers {
		byDriver[p.Driver.Name()] = append(byDriver[p.Driver.Name()], i)
	}
	links := make([]Link, len(c.Peers))
	var listens []Listen
	for _, name := range slices.Sorted(maps.Keys(byDriver)) {
		var peers []Peer
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
		}
		listens = append(listens, w.Listens...)
	}
	listens = append(listens, Listen{Proto: "udp", Port: dataplane.NATDiscoveryPort}) // who does not know us yet asks there
	return links, listens, nil
}

// remote is what is behind the cables to one cluster.
type remote struct {
	hops []uint32
	nets []netip.Prefix
	mtu  int // of the narrowest cable
}

func (r *remote) add(hop uint32, nets []netip.Prefix, mtu int) {
	r.hops = append(r.hops, hop)
	r.nets = append(r.nets, nets...)
	if r.mtu == 0 || mtu < r.mtu {
		r.mtu = mtu
	}
}

// group lists next hops with equal weight, sorted.
func group(id uint32, hops []uint32) dataplane.Group {
	slices.Sort(hops)
	g := dataplane.Group{ID: id}
	for _, h := range slices.Compact(hops) {
		g.Members = append(g.Members, dataplane.Member{ID: h, Weight: 1})
	}
	return g
}

// groupIDs gives each cluster a next hop group: 24 bits of a hash of its ID,
// counted up where two clusters would share one. A cluster keeps its group
// whatever happens to its gateways and, but for collisions (one pair in 16
// million), to other clusters.
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
