package cnf

import (
	"cmp"
	"net/netip"
	"slices"

	"subctl/internal/prefix"
	"subctl/sdewan/rest"
)

// reflect plans that the neighbours of a redirect's destination reach it by the CNF's addresses in
// the zone src, too, as hosts of that zone do: firewall3 has this "reflection" if the zone
// masquerades. For the destination, these packets come from the CNF's address in its own network,
// or it would answer its neighbours directly, which would not know the answers.
func (p *plan) reflect(r rest.Redirect, src *zone, then string) {
	to, err := parseIP(r.DestIP)
	if err != nil || src.Masq != "1" {
		return
	}
	inner := p.neighbourhood(r.Dest, to)
	if inner == nil || inner == src {
		return
	}
	outer := p.reflected(r, src)
	names, _ := protocol(r.Proto, "tcpudp") // which is correct, as the redirect has been planned
	names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n != "tcp" && n != "udp" })
	if len(outer) == 0 || len(names) == 0 {
		return
	}
	var before, after conditions
	before.protocolsAndPorts(names, "", r.SrcDPort)
	after.protocolsAndPorts(names, "", cmp.Or(r.DestPort, r.SrcDPort))
	first, err1 := before.text()
	second, err2 := after.text()
	if err1 != nil || err2 != nil {
		return
	}
	for _, a := range p.world.Addrs {
		if !slices.Contains(inner.devices, a.Device) {
			continue
		}
		from := nets("saddr", []netip.Prefix{a.Prefix.Masked()})
		p.table.add(inner.chain("prerouting"), r.Name, "meta nfproto ipv4", from, nets("daddr", outer), first, then)
		p.table.add(inner.chain("postrouting"), r.Name, "meta nfproto ipv4 ct status dnat", from,
			"ip daddr "+to.String(), second, "snat ip to "+a.Prefix.Addr().String())
		inner.translates = true
	}
}

// neighbourhood returns the zone with a name, or without one, the zone whose networks contain an
// address; nil if there is none.
func (p *plan) neighbourhood(name string, ip netip.Addr) *zone {
	if name != "" && name != anyZone {
		return p.zone(name)
	}
	for _, a := range p.world.Addrs {
		i := slices.IndexFunc(p.zones, func(z *zone) bool { return slices.Contains(z.devices, a.Device) })
		if i >= 0 && a.Prefix.Contains(ip) {
			return p.zones[i]
		}
	}
	return nil
}

// reflected returns the addresses by which a redirect is reached: the one that it names, or all of
// the CNF in the zone from which it comes.
func (p *plan) reflected(r rest.Redirect, src *zone) (out []netip.Prefix) {
	if ip, err := parseIP(r.SrcDIP); err == nil {
		return []netip.Prefix{prefix.Host(ip)}
	}
	for _, a := range p.world.Addrs {
		if r.SrcDIP == "" && slices.Contains(src.devices, a.Device) {
			out = append(out, prefix.Host(a.Prefix.Addr()))
		}
	}
	return out
}
