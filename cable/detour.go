package cable

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"subctl/dataplane"
	"subctl/internal/prefix"
)

// toWorkers adds the routes for packets from other clusters to the nodes of the pods: the workers,
// and the other gateways. If a node does not answer, they lead to the other gateways that do. What
// those hand over to this gateway takes the straight way: see dataplane.NearTable.
func (n Intra) toWorkers(s dataplane.State) error {
	var others []way
	for _, g := range n.siblings() {
		hop, err := addNode(s, g)
		if err != nil {
			return err
		}
		others = append(others, g.way(hop))
	}
	if len(others) > 0 {
		if err := s.Add(
			dataplane.Arrival{
				Priority: dataplane.NearPriority, Dev: dataplane.IntraDevice, Table: dataplane.NearTable,
				Specific: true,
			},
			dataplane.Arrival{
				Priority: dataplane.HandedPriority, Dev: dataplane.IntraDevice, Table: dataplane.IntraTable,
				Specific: true,
			},
		); err != nil {
			return err
		}
	}
	for _, w := range slices.Concat(n.Workers, n.siblings()) {
		hop, err := addNode(s, w)
		if err != nil {
			return err
		}
		if err := n.toTranslator(s, w, hop); err != nil {
			return err
		}
		if !w.Pods.IsValid() {
			continue
		}
		vtep := VTEPOf(dataplane.IntraVTEPNet, w.IP)
		through := singleWay(hop)
		around := slices.DeleteFunc(slices.Clone(others), func(g way) bool { return g.down || g.hop == hop })
		if w.Down && len(around) > 0 {
			straight := group(NexthopID(dataplane.NearGroupID, vtep), through)
			if err := s.Add(straight, dataplane.Route{
				Table: dataplane.NearTable,
				Dst:   w.Pods,
				Group: straight.ID,
			}); err != nil {
				return fmt.Errorf("planning the straight route to the pods of node %s: %w", w.Name, err)
			}
			through = choose(around, false)
		}
		g := group(NexthopID(dataplane.IntraGroupID, vtep), through)
		if err := s.Add(g, dataplane.Route{Table: dataplane.IntraTable, Dst: w.Pods, Group: g.ID}); err != nil {
			return fmt.Errorf("planning route to the pods of node %s: %w", w.Name, err)
		}
	}
	return nil
}

// toTranslator adds the routes to the global addresses of another gateway, for answers to what it
// has translated and handed over, as none of its own cables works.
func (n Intra) toTranslator(s dataplane.State, w Node, hop uint32) error {
	for _, ip := range n.Returned[w.Name] {
		to := group(NexthopID(dataplane.NearGroupID, VTEPOf(dataplane.IntraVTEPNet, w.IP)), singleWay(hop))
		if err := s.Add(to, dataplane.Route{
			Table: dataplane.IntraTable,
			Dst:   prefix.Host(ip),
			Group: to.ID,
		}); err != nil {
			return fmt.Errorf("planning the route to %v of gateway %s: %w", ip, w.Name, err)
		}
	}
	return nil
}

// addDetours adds the routes through another gateway of this cluster that the kernel uses by itself
// when the devices of the cables disappear: the devices of wireguard-go end with it, and it ends
// with the agent. The other nodes do not notice, as the kernel of this node returns their echoes.
// All packets take the same gateway: the next agent, or the end of this gateway's Lease, follows
// soon. Which one it is does not depend on which gateways answer: if one fails, only groups change,
// and not a route to each network.
func (c Cabling) addDetours(s dataplane.State, cluster string, r remote, src netip.Addr) error {
	hops, err := c.siblingHops(s, cluster)
	if err != nil || len(hops) == 0 {
		return err
	}
	for i := range hops {
		hops[i].down = false
	}
	first := slices.MinFunc(choose(hops, false), func(a, b way) int { return cmp.Compare(a.hop, b.hop) })
	for _, n := range r.nets {
		if err := s.Add(dataplane.Detour{
			Table: dataplane.CableTable,
			Dst:   n,
			Hop:   first.hop,
			Src:   src,
			MTU:   r.mtu,
		}); err != nil {
			return fmt.Errorf("planning detours to %s: %w", cluster, err)
		}
	}
	return nil
}

// siblingHops adds the next hops to the other gateways of this cluster that have a working cable to
// a cluster, and returns them as ways.
func (c Cabling) siblingHops(s dataplane.State, cluster string) (ways []way, err error) {
	for _, n := range c.Siblings[cluster] {
		ip := VTEPOf(dataplane.IntraVTEPNet, n.IP)
		hop := dataplane.Nexthop{ID: NexthopID(dataplane.SiblingNexthopID, ip), Via: ip, Dev: dataplane.IntraDevice}
		if err := s.Add(hop); err != nil {
			return nil, fmt.Errorf("planning the path to %s through gateway %s: %w", cluster, n.Name, err)
		}
		ways = append(ways, n.way(hop.ID))
	}
	return ways, nil
}
