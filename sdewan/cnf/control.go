package cnf

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"subctl/dataplane"
)

// A CNF is configured through the network of its cluster. A rule that refuses everything, a port of
// the CNF that leads to a Service and is that of the REST API, or a tunnel to networks of which the
// cluster's is one would cut off the only one who can remove the rule, and the probe without which
// the pod does not count as ready. So packets for the API are left alone. The sockets of the API
// have a mark, by which its answers are routed.

// control plans the way of the REST API.
func (p *plan) control() {
	ports := map[netip.Addr][]uint16{}
	for _, at := range p.world.API {
		if at.Addr().Is4() && p.world.owner(at.Addr()) != "" && !slices.Contains(ports[at.Addr()], at.Port()) {
			ports[at.Addr()] = append(ports[at.Addr()], at.Port())
		}
	}
	if len(ports) == 0 {
		return
	}
	p.put(
		dataplane.NewRule(
			dataplane.PolicyRule{
				Priority: dataplane.ControlPriority,
				Mark:     dataplane.ControlMark,
				Mask:     dataplane.ControlMark,
				Table:    MainTable,
			},
		),
	)
	for _, address := range slices.SortedFunc(maps.Keys(ports), netip.Addr.Compare) {
		slices.Sort(ports[address])
		from := devices("iifname", []string{p.world.owner(address)})
		rule := fmt.Sprintf("%s ip daddr %v tcp dport %s accept", from, address, list(ports[address]))
		for _, chain := range []string{
			"raw_prerouting", "mark_prerouting", "nat_prerouting", "mark_input", "fw_input",
		} {
			p.table.begin(chain, rule)
		}
		// What is not tracked is no answer for the firewall.
		p.table.begin("fw_output",
			fmt.Sprintf("meta mark & %#x == %#x accept", dataplane.ControlMark, dataplane.ControlMark))
	}
}
