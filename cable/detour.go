package cable

import (
	"fmt"
	"slices"

	"subctl/dataplane"
)

// toWorkers adds the routes for packets from other clusters to the nodes of the pods: the workers, and the
// other gateways. If a node does not answer, they lead to the other gateways that do. What those hand over
// to this gateway takes the straight way: see dataplane.NearTable.
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
			dataplane.Arrival{Priority: dataplane.NearPriority, Dev: dataplane.IntraDevice, Table: dataplane.NearTable},
			dataplane.Arrival{Priority: dataplane.HandedPriority, Dev: dataplane.IntraDevice, Table: dataplane.IntraTable},
		); err != nil {
			return err
		}
	}
	for _, w := range slices.Concat(n.Workers, n.siblings()) {
		hop, err := addNode(s, w)
		if err != nil {
			return err
		}
		if !w.Pods.IsValid() {
			continue
		}
		vtep, through := VTEPOf(dataplane.IntraVTEPNet, w.IP), solely(hop)
		around := slices.DeleteFunc(slices.Clone(others), func(g way) bool { return g.down || g.hop == hop })
		if w.Down && len(around) > 0 {
			straight := group(NexthopID(dataplane.NearGroupID, vtep), through)
			if err := s.Add(straight, dataplane.Route{Table: dataplane.NearTable, Dst: w.Pods, Group: straight.ID}); err != nil {
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

// detour returns the rules of a gateway for packets that it forwards to another gateway of its cluster, as none of its
// own cables to the other cluster works, and for those that another gateway hands over, as that one has lost its way to a
// node. Packets from another gateway take no second detour, so there is no loop.
func (n Intra) detour() (rules []string) {
	const both = "-i " + dataplane.IntraDevice + " -o " + dataplane.IntraDevice + " "
	siblings := n.siblings()
	if len(siblings) > 0 {
		for _, pods := range set("", n.Local.Pods).Members { // dataplane.NearTable leads straight to them
			rules = append(rules, both+"-d "+pods.String()+" -j ACCEPT")
		}
	}
	for _, g := range siblings {
		_, mac := VTEP(dataplane.IntraVTEPNet, g.IP)
		rules = append(rules, fmt.Sprintf("%s-m mac --mac-source %s -j DROP", both, mac))
	}
	if len(rules) > 0 {
		rules = append(rules, both+"-j ACCEPT")
	}
	if n.echoing() {
		rules = append([]string{echoForward(n.echo())}, rules...)
	}
	return rules
}
