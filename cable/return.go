package cable

import (
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"

	"subctl/dataplane"
	"subctl/internal/prefix"
)

// returns adds the return path: a connection from another cluster is answered through the gateway
// of this cluster through which it arrives, which may have translated its destination. On a worker,
// a connection to another cluster stays with one gateway as well. Each gateway has a mark, a table
// with a route to the gateway for marked packets, and a next hop group of its own.
//
// When a gateway fails, only its group changes on a worker: it then has the other gateways, through
// which its plain connections continue. On a gateway, the group goes: they continue through its own
// cables.
//
// A cluster with one gateway node needs none of this, except that the answers to connections which
// did not come through a cable do not enter one: see sources.announced.
func (n Intra) returns(s dataplane.State) error {
	path := returnPath{direct: len(n.Remote) > 0}
	if path.direct {
		rule := dataplane.MarkRule{
			Priority: dataplane.ReturnPriority, Mark: dataplane.DirectMark, Mask: dataplane.ReturnMask,
			Table: dataplane.MainTable,
		}
		if err := s.Add(rule); err != nil {
			return err
		}
	}
	switch {
	case len(n.Ranked) < 2 && !path.direct:
		return nil
	case len(n.Ranked) < 2:
		return s.Add(path.table())
	}
	own := map[string]way{} // the gateways with cables, by name
	var all []way
	silent := true // no gateway answers
	for _, g := range n.siblings() {
		hop, err := addNode(s, g)
		if err != nil {
			return err
		}
		own[g.Name] = g.way(hop)
		all = append(all, g.way(hop))
		silent = silent && g.Down
	}
	others := choose(all, false)
	var share map[string]int // of new connections
	gateway := n.isGateway()
	if gateway {
		path.cables = dataplane.GatewayOwner.DeviceNames() // it sends new connections over cables of its own
	} else {
		share = shares(own)
		path.intraNet = netip.PrefixFrom(netip.AddrFrom4([4]byte{dataplane.IntraVTEPNet}), 8)
	}
	marks := returnMarks(n.Ranked)
	for _, g := range n.Ranked {
		mark, ok := marks[g.Name]
		if !ok || g.Name == n.Self.Name {
			continue
		}
		ip, mac := VTEP(dataplane.IntraVTEPNet, g.IP)
		is, active := own[g.Name]
		quiet := active && is.down && !silent
		path.gateways = append(path.gateways, returnGateway{
			mac:    mac,
			mark:   mark,
			weight: share[g.Name],
			down:   !active || quiet && !is.awaited || is.drain >= Standby && share[g.Name] == 0,
		})
		through := others
		if active && !quiet {
			through = singleWay(is.hop) // also if it is drained: nobody else can translate the replies back
		}
		if len(through) == 0 || gateway && (!active || is.down) {
			continue
		}
		to := group(NexthopID(dataplane.ReturnGroupID, ip), through)
		at := dataplane.ReturnTable + int(mark)
		if err := s.Add(to,
			dataplane.Route{Table: at, Dst: anywhere, Group: to.ID},
			dataplane.MarkRule{Priority: dataplane.ReturnPriority, Mark: mark, Mask: dataplane.ReturnMask, Table: at},
		); err != nil {
			return fmt.Errorf("planning the return path through gateway %s: %w", g.Name, err)
		}
		// Where the sysctl src_valid_mark is 1, the reverse path filter looks up the source of a
		// packet by its mark.
		for _, pods := range prefix.Widest(n.Local.Pods) {
			if err := s.Add(dataplane.Throw{Table: at, Dst: pods}); err != nil {
				return err
			}
		}
	}
	return s.Add(path.table())
}

// shares returns the weights of gateways, by name, without those that get no new connections.
func shares(gateways map[string]way) map[string]int {
	names := map[uint32]string{}
	for name, w := range gateways {
		names[w.hop] = name
	}
	out := map[string]int{}
	for _, m := range members(choose(slices.Collect(maps.Values(gateways)), false)) {
		out[names[m.ID]] = m.Weight
	}
	return out
}

// anywhere is the destination of the routes that only marked packets look up. The gateway's routes
// have the MTU of the path, and its chains clamp the MSS.
var anywhere = netip.PrefixFrom(netip.IPv4Unspecified(), 0)

// returnMarks returns the mark of each gateway, by its name: a hash of its VTEP, or the next free
// mark in case of a collision. So all nodes use the same marks, which stay when gateways come and
// go, except for collisions. Gateways beyond the number of marks have none.
func returnMarks(gateways []Node) map[string]uint32 {
	out := map[string]uint32{}
	taken := map[uint32]bool{dataplane.DirectMark - 1: true}
	for _, g := range gateways {
		if len(taken) == dataplane.ReturnMask {
			break
		}
		vtep := VTEPOf(dataplane.IntraVTEPNet, g.IP).As4()
		h := fnv.New32a()
		h.Write(vtep[:]) // never fails
		mark := h.Sum32() % dataplane.ReturnMask
		for taken[mark] {
			mark = (mark + 1) % dataplane.ReturnMask
		}
		taken[mark] = true
		out[g.Name] = 1 + mark
	}
	return out
}
