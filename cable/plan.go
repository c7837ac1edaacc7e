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

// Names of the gateway's sets and chains.
const (
	setPeers  = "SUBMARINER-GW-PEERS"  // addresses of the remote gateways
	setLocal  = "SUBMARINER-GW-LOCAL"  // this cluster's networks
	setRemote = "SUBMARINER-GW-REMOTE" // the networks behind the cables
)

// Cabling is the cables of one gateway: each peer with the driver that joins it.
type Cabling struct {
	Local Local
	Peers []Cable
}

// Cable is one peer and how it is joined.
type Cable struct {
	Gateway
	Driver Driver
}

// Plan returns what an active gateway's kernel holds: the drivers' devices and
// next hops; a next hop group for each remote cluster (even of one member: when
// gateways come and go only the group changes, never the routes); the routes to
// what is behind them; and the rules of who may pass:
//
//   - from cable to cable nobody: clustersets have no transit;
//   - from a cable only sources that are behind a cable, to this cluster's pods
//     and Services (or to where kube-proxy sent them: a Service may be backed by
//     a node);
//   - cable packets themselves only from known gateways.
//
// What goes to and from pods of the gateway node itself, and to the node, is
// returned, not accepted: chains of the CNI and of the host's own firewall come
// next, and with them network policies. Health checks alone are accepted.
func Plan(c Cabling) (dataplane.State, error) {
	s := dataplane.State{}
	byDriver := map[string][]Gateway{}
	drivers := map[string]Driver{}
	for _, p := range c.Peers {
		byDriver[p.Driver.Name()] = append(byDriver[p.Driver.Name()], p.Gateway)
		drivers[p.Driver.Name()] = p.Driver
	}
	if len(byDriver) == 0 {
		return s, nil // a gateway without peers has no device that somebody could send to
	}
	hops := map[string][]uint32{} // by cluster
	nets := map[string][]netip.Prefix{}
	for _, name := range slices.Sorted(maps.Keys(byDriver)) {
		state, ids, err := drivers[name].Plan(c.Local, byDriver[name])
		if err != nil {
			return nil, err
		}
		if err := s.Merge(state); err != nil {
			return nil, err
		}
		for i, g := range byDriver[name] {
			hops[g.Cluster] = append(hops[g.Cluster], ids[i])
			nets[g.Cluster] = append(nets[g.Cluster], g.Subnets...)
		}
	}
	groups := groupIDs(slices.Sorted(maps.Keys(hops)))
	for cluster, ids := range hops {
		if err := s.Add(group(groups[cluster], ids)); err != nil {
			return nil, err
		}
		for _, n := range nets[cluster] {
			r := dataplane.Route{Table: dataplane.CableTable, Dst: n, Group: groups[cluster], Src: c.Local.PodIP}
			if err := s.Add(r); err != nil {
				return nil, fmt.Errorf("planning routes to %s: %w", cluster, err)
			}
		}
	}
	if err := s.Add(dataplane.Rule{Priority: dataplane.CablePriority, Table: dataplane.CableTable}); err != nil {
		return nil, err
	}
	return s, s.Add(gatewayFilter(c, nets)...)
}

func gatewayFilter(c Cabling, nets map[string][]netip.Prefix) []dataplane.Object {
	var peers []netip.Addr
	var remote []netip.Prefix
	for _, p := range c.Peers {
		peers = append(peers, p.PrivateIP)
	}
	for _, n := range nets {
		remote = append(remote, n...)
	}
	local := append(slices.Clone(c.Local.Svcs), c.Local.Pods...)
	input, objs := onlyFrom(peers, setPeers, c.Local.Port)
	input.Name = "SUBMARINER-GW-INPUT"
	input.Sets = append(input.Sets, setLocal, setRemote)
	input.Rules = append(input.Rules,
		fmt.Sprintf("! -i %s -j RETURN", dataplane.CableDevice),
		fmt.Sprintf("-p icmp -m icmp --icmp-type 8 -m set --match-set %s src -m set --match-set %s dst -j ACCEPT", setRemote, setLocal),
		fmt.Sprintf("-m set --match-set %s src -m set --match-set %s dst -j RETURN", setRemote, setLocal),
		"-j DROP")
	return append(objs, set(setLocal, local), set(setRemote, remote), input, c.forward())
}

// forward says what may pass through the gateway. Every packet between workers
// and other clusters comes through here, so what most of them match is first and
// looked up in as few sets as will do.
func (c Cabling) forward() dataplane.Chain {
	const cable, intra = dataplane.CableDevice, dataplane.IntraDevice
	f := dataplane.Chain{Table: "filter", Name: "SUBMARINER-GW-FORWARD", Hook: "FORWARD", Sets: []string{setRemote}}
	rule := func(format string, args ...any) { f.Rules = append(f.Rules, fmt.Sprintf(format, args...)) }
	rule("-i %s -o %s -j ACCEPT", intra, cable) // from our own nodes; the other side checks the source
	rule("! -i %s -j RETURN", cable)
	for _, p := range c.Local.Pods {
		rule("-d %v -o %s -m set --match-set %s src -j ACCEPT", p, intra, setRemote)
	}
	for _, n := range append(slices.Clone(c.Local.Pods), c.Local.Svcs...) {
		rule("-d %v -m set --match-set %s src -j RETURN", n, setRemote)
	}
	rule("-o %s -j DROP", cable) // not even if kube-proxy sends it there
	rule("-m set --match-set %s src -m conntrack --ctstate DNAT -j RETURN", setRemote)
	rule("-j DROP")
	return f
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

// set masks, sorts and merges members: a network inside another is left out.
func set(name string, members []netip.Prefix) dataplane.Set {
	ms := slices.Clone(members)
	slices.SortFunc(ms, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	var out []netip.Prefix
	for _, m := range ms {
		if n := len(out); n > 0 && out[n-1].Overlaps(m) {
			continue // sorted, so the wider one came first
		}
		out = append(out, m)
	}
	return dataplane.Set{Name: name, Members: out}
}
