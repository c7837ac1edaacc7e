package cable

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
	"subctl/globalnet"
	"subctl/internal/prefix"
)

// globalnet returns the table that translates global addresses on the devices of cables.
func (c Cabling) globalnet(devices []cableDevice) dataplane.Ruleset {
	return globalnet.Rules(prefix.Widest(c.Local.Global), prefix.Widest(c.Local.Pods), deviceNames(outputs(devices)),
		c.Globalnet)
}

// ParseReturned parses the addresses to which packets must take the gateway. They are in the
// networks of its cluster.
func ParseReturned(texts []string, subnets []netip.Prefix) (out []netip.Addr, err error) {
	if len(texts) > submarinerv1.MaxAllocatedIPs {
		return nil, fmt.Errorf("it announces %d allocated IPs: at most %d are accepted", len(texts),
			submarinerv1.MaxAllocatedIPs)
	}
	for _, text := range texts {
		ip, err := ParseHost(text)
		if err != nil {
			return nil, fmt.Errorf("allocated IP %.80q: %w", text, err)
		}
		if !prefix.Covers(subnets, prefix.Host(ip)) {
			return nil, fmt.Errorf("allocated IP %v is in none of its subnets", ip)
		}
		out = append(out, ip)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out), nil
}

// returningGroup names the next hop group of a gateway alone. No cluster ID has a space.
func returningGroup(p Cable) string { return p.Cluster + " " + p.Name }

// returning returns the names of the next hop groups of gateways to which addresses of their own
// lead, sorted.
func (c Cabling) returning() []string {
	names := map[string]bool{}
	for _, p := range c.Peers {
		if len(p.Returned) > 0 {
			names[returningGroup(p)] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// addReturns adds routes to the addresses of single gateways, which other clusters' connections
// must return through. If such a gateway does not answer, or has no cable that carries traffic, the
// packets take the next hop group of its cluster, like all others. Of two gateways of a cluster
// with the same address, the first one has it.
func (c Cabling) addReturns(s dataplane.State, links []Link, groups map[string]uint32, src netip.Addr) error {
	taken := map[netip.Addr]bool{}
	for i, p := range c.Peers {
		if !p.Carries() || p.Down || p.Drain == Drained {
			continue
		}
		for _, ip := range p.Returned {
			if taken[ip] {
				continue
			}
			taken[ip] = true
			to := group(groups[returningGroup(p)], singleWay(links[i].Hop))
			route := dataplane.Route{
				Table: dataplane.CableTable,
				Dst:   prefix.Host(ip),
				Group: to.ID,
				Src:   src,
				MTU:   p.MTU(c.Local),
			}
			if err := s.Add(to, route); err != nil {
				return fmt.Errorf("planning the route to %v of gateway %s: %w", ip, p.Name, err)
			}
		}
	}
	return nil
}
