package cnf

import (
	"net/netip"
	"slices"

	"subctl/dataplane"
	"subctl/sdewan/rest"
)

// masquerade plans which of the packets that leave to a zone get the address of the device as their
// source.
func (p *plan) masquerade(z *zone) {
	if z.Masq != "1" {
		return
	}
	var lists [2][]netip.Prefix
	chain := z.chain("postrouting")
	mistaken := [2]bool{}
	if slices.Contains(z.devices, dataplane.CNFTunnelDevice) { // a tunnel takes only packets from its own networks
		p.table.add(chain, z.Name, devices("oifname", []string{dataplane.CNFTunnelDevice}), "return")
	}
	for i, side := range []struct {
		field, direction string
		texts            []string
	}{{"masq_src", "saddr", z.MasqSrc}, {"masq_dest", "daddr", z.MasqDest}} {
		for _, text := range side.texts {
			negative, positive := negated(text)
			n, err := parseNet(positive)
			switch {
			case err != nil:
				p.problem(rest.Zones, z.Name, "%s: %v", side.field, err)
				mistaken[i] = true // rather nothing than everything
			case negative != "":
				p.table.add(chain, z.Name, nets(side.direction, []netip.Prefix{n}), "return")
			default:
				lists[i] = append(lists[i], n)
			}
		}
		if mistaken[i] && len(lists[i]) == 0 {
			return
		}
	}
	p.table.add(chain, z.Name, "meta nfproto ipv4", nets("saddr", lists[0]), nets("daddr", lists[1]), "masquerade")
}

// zoneNAT plans which packets get to the chains of zones that translate addresses.
func (p *plan) zoneNAT() {
	for _, z := range p.zones {
		if z.empty() {
			continue
		}
		if p.table.chains[z.chain("prerouting")] != nil {
			p.table.add("nat_prerouting", z.Name, z.arrives(), "jump", z.chain("prerouting"))
		}
		if p.table.chains[z.chain("postrouting")] != nil {
			p.table.add("nat_postrouting", z.Name, z.leaves(), "jump", z.chain("postrouting"))
		}
	}
}

// publishes reports whether objects that no zone is about make ports of the CNF lead elsewhere:
// what they have translated is accepted from all zones, as what a redirect has translated is from
// its zone.
func (p *plan) publishes() bool {
	return len(p.config.Services) > 0 ||
		slices.ContainsFunc(p.config.NATs, func(n rest.NAT) bool { return n.Target == "DNAT" })
}
