package cnf

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"subctl/dataplane"
)

// This file plans the flow table, in which the kernel looks up the packets of established connections: they pass without any chain, and without a
// look at connection tracking. A connection is added when a packet of it has passed the firewall. The kernel then knows two routes: the packet's own, and
// one for the packets of the other direction, which it looks up for the device on which this packet came. So that no packet takes another way than
// without a flow table, a connection is added only
//   - by a packet from a network that is reached through the device on which the packet came: other sources may be reached through another one,
//   - if all packets of the connection have the same mark. Rules of users that mark packets, do not track them, or choose routes by their sources
//     make packets of the two directions differ: then there is no flow table,
//   - if the source is not translated, or the connection leaves through the uplink in its mark. The kernel ends a masqueraded connection
//     that changes its device, and a flow table would send some packets more for it, with the wrong source,
//   - if the uplink in its mark is online: the side that began it chooses another one with its next packet, and the other side's packets must follow,
//   - if it has had a reply since an uplink was chosen (dataplane.UplinkUnanswered): the first reply changes its mark,
//   - if connection tracking has found it to be more than a question and an answer: packets in the table do not shorten or prolong other timeouts.
//
// Packets with flags that begin or end a connection, fragments, packets with options, and those that are too large pass the chains: see
// net/netfilter/nf_flow_table_ip.c of Linux.

// flowTable is the name of the flow table, and of the chain that adds connections to it.
const flowTable = "established"

// flows plans the flow table. All other chains are planned.
func (p *plan) flows() {
	if !p.world.FlowTables || p.config.Awaiting || len(p.table.chains) == 0 || p.differs() {
		return
	}
	f := dataplane.FlowTable{Name: flowTable}
	for _, n := range p.world.Interfaces {
		if n.Device != "" && len(p.addresses(n.Device)) > 0 && !p.serves(n.Device) && !slices.Contains(f.Devices, n.Device) {
			f.Devices = append(f.Devices, n.Device)
		}
	}
	for _, d := range f.Devices {
		if behind := p.behind(d); len(behind) > 0 {
			p.table.add("flow_from", "", devices("iifname", []string{d}), nets("saddr", behind), "goto flow_to")
		}
	}
	if p.table.chains["flow_from"] == nil {
		return
	}
	const unsettled = dataplane.UplinkUnanswered | dataplane.UplinkAnew | dataplane.UplinkSpread
	p.table.add("flow_forward", "", "meta nfproto ipv4 meta l4proto { tcp, udp } ct state established ct status assured", fmt.Sprintf("ct mark & %#x == 0 jump flow_from", unsettled))
	if p.runs("mwan3") {
		for _, u := range p.ups {
			if !u.Online {
				p.table.add("flow_to", "", fmt.Sprintf("ct mark & %#x == %#04x return", dataplane.UplinkMask, u.mark()))
			}
		}
		for _, u := range p.ups {
			if slices.Contains(f.Devices, u.Device) {
				p.table.add("flow_to", "", devices("oifname", []string{u.Device}), fmt.Sprintf("ct mark & %#x == %#04x goto %s", dataplane.UplinkMask, u.mark(), flowTable))
			}
		}
	}
	p.table.add("flow_to", "", devices("oifname", f.Devices), "ct status & snat == 0 goto", flowTable)
	p.table.add(flowTable, "", f.Rule())
	slices.Sort(f.Devices)
	p.table.flows = []dataplane.FlowTable{f}
}

// differs reports whether packets of the two directions of a connection may be routed by different rules, or be protected by IPsec without a device of its own.
func (p *plan) differs() bool {
	if len(p.config.RouteRules)+len(p.config.Applications) > 0 {
		return true
	}
	for name := range p.table.chains {
		if name == "raw_prerouting" || strings.HasPrefix(name, "mark_") {
			return true
		}
	}
	for _, o := range p.state {
		switch o := o.(type) {
		case dataplane.Blackhole: // of a tunnel to everything, which takes packets by their sources
			if o.Table == dataplane.TunnelAllTable {
				return true
			}
		case dataplane.IKERemote:
			if slices.ContainsFunc(o.Children, func(c dataplane.IKEChild) bool { return c.Mode == dataplane.TransportMode }) {
				return true
			}
		}
	}
	return false
}

// serves reports whether the REST API is reached through a device.
func (p *plan) serves(device string) bool {
	return slices.ContainsFunc(p.world.API, func(at netip.AddrPort) bool { return p.world.owner(at.Addr()) == device })
}

// behind returns the networks that are reached through a device, and no part of which is reached through another one.
func (p *plan) behind(device string) (out []netip.Prefix) {
	var elsewhere []netip.Prefix
	for _, o := range p.state {
		if b, is := o.(dataplane.Blackhole); is && b.Table == dataplane.TunnelTable {
			elsewhere = append(elsewhere, b.Dst)
		}
	}
	tunnels := len(elsewhere)
	routes := p.mainRoutes()
	for _, r := range routes {
		if r.Hops[0].Dev != device {
			elsewhere = append(elsewhere, r.Dst)
		}
	}
	for _, r := range routes {
		if r.Hops[0].Dev != device || !r.Dst.Addr().Is4() {
			continue
		}
		// Routes to larger networks do not count, but tunnels do.
		if !slices.ContainsFunc(elsewhere[:tunnels], r.Dst.Overlaps) && !slices.ContainsFunc(elsewhere[tunnels:], func(n netip.Prefix) bool { return n.Bits() >= r.Dst.Bits() && r.Dst.Overlaps(n) }) {
			out = append(out, r.Dst)
		}
	}
	return out
}
