package cnf

import (
	"fmt"
	"math/bits"
	"net/netip"
	"strconv"
	"strings"

	"subctl/dataplane"
	"subctl/internal/prefix"
	"subctl/sdewan/rest"
)

// This file chooses uplinks, as mwan3 does on OpenWrt. The first packet of a connection decides,
// and the connection mark remembers the uplink (dataplane.UplinkMask). The packet mark makes a
// policy rule look up the table of the uplink.
//
// A connection that arrives on an uplink is answered through it. Connections to networks of the pod
// take no uplink. What the CNF itself sends from the address of an uplink that is online leaves
// through it, as answers would return there: so does its end of a tunnel that was idle for so long
// that connection tracking has forgotten it. For the others the first rule decides that matches, by
// its policy. Connections that have begun before stay where they are, whatever changes, with one
// exception: if the uplink of a connection goes offline, its next packet chooses again. (mwan3 lets
// such connections run into the dark, unless it is set to forget all connections.) A TCP connection
// that was masqueraded to the address of the uplink is reset then, as the other end would not know
// it from another address. Of other protocols, the kernel drops the packet and ends the masqueraded
// connection that changes its device, and so the next packet begins a new one.
//
// A connection that has had no reply since an uplink was chosen for it has a bit for this in its
// mark (dataplane.UplinkUnanswered), which the first reply removes. When there may be a better
// uplink, package agent sets another bit (dataplane.UplinkAnew), by which the next packet chooses
// again. Otherwise retries would keep the connection where nobody answers. If an uplink has come
// online, the connection chooses as a new one does (dataplane.UplinkSpread). If only policies or
// rules have changed, it keeps its uplink if the policy could choose this one again. Not every
// packet without an answer chooses: those of a stream that nobody answers would be spread over
// uplinks.
//
// The value of a rule is a constant: only since Linux 6.13 can nftables combine the bits of two
// marks. So there are chains for each uplink.
//
// Policies concern IPv4 only, as the uplinks of ICN SD-EWAN do.

var multicastAndReserved = netip.MustParsePrefix("224.0.0.0/3")

// uplinks plans the choice of uplinks.
func (p *plan) uplinks() {
	ups := p.world.uplinks()
	if len(ups) == 0 {
		for _, r := range p.config.Rules {
			p.problem(rest.Rules, r.Name,
				"the CNF has no uplink: give a network a gateway, with the annotation sdewan.subctl.io/uplinks")
		}
		return
	}
	for i := range ups {
		p.reach(&ups[i])
		p.uplinkRoutes(ups[i])
	}
	for _, special := range []struct {
		priority int
		mark     uint32
		action   string
	}{
		{dataplane.UplinkBlackholePriority, dataplane.UplinkBlackhole, dataplane.ActionBlackhole},
		{dataplane.UplinkUnreachablePriority, dataplane.UplinkUnreachable, dataplane.ActionUnreachable},
	} {
		p.put(
			dataplane.PolicyRule{
				Priority: special.priority,
				Mark:     special.mark,
				Mask:     dataplane.UplinkMask,
				Action:   special.action,
			},
		)
	}
	p.ups = ups
	p.steer(ups)
	p.choose(ups)
	p.lost(ups)
}

// lost resets the TCP connections that leave through another uplink than the one to whose address
// they were translated, because it is offline.
func (p *plan) lost(ups []uplink) {
	for _, u := range ups {
		own := p.addresses(u.Device)
		if u.Online || len(own) == 0 {
			continue
		}
		var others []string
		for _, o := range ups {
			if o.Online {
				others = append(others, o.Device)
			}
		}
		if len(others) > 0 {
			p.table.add("uplink_lost", u.Name, devices("oifname", others),
				"meta l4proto tcp ct direction original ct status snat", "ct reply ip daddr "+list(own),
				"reject with tcp reset")
		}
	}
}

// reach makes sure that an uplink is used only if its gateway is in a network of its device.
func (p *plan) reach(u *uplink) {
	if u.Up && !p.onLink(dataplane.Hop{Via: u.Gateway, Dev: u.Device}) {
		u.Up = false
		u.Online = false
		p.report = append(
			p.report,
			Line{
				Collection: "interface",
				Name:       u.Name,
				Message:    fmt.Sprintf("its gateway %v is in no network of device %s", u.Gateway, u.Device),
			},
		)
	}
}

// UplinkMark returns the mark of packets for the uplink with a number.
func UplinkMark(number int) uint32 {
	return uint32(number) << bits.TrailingZeros32(dataplane.UplinkMask)
}

func (u uplink) mark() uint32 { return UplinkMark(u.number) }

// table returns its routing table.
func (u uplink) table() int { return dataplane.CNFTable + u.number }

// uplinkRoutes plans the table of an uplink, and the rules that lead to it. The table has the
// default route of the uplink, and all other routes of the main table: of two to the same network
// the uplink's own.
func (p *plan) uplinkRoutes(u uplink) {
	p.put(dataplane.Arrival{Priority: dataplane.UplinkArrivalPriority + u.number, Dev: u.Device, Table: u.table()})
	p.put(
		dataplane.MarkRule{
			Priority: dataplane.UplinkPriority + u.number,
			Mark:     u.mark(),
			Mask:     dataplane.UplinkMask,
			Table:    u.table(),
		},
	)
	p.put(
		dataplane.PolicyRule{
			Priority: dataplane.UplinkDownPriority + u.number,
			Mark:     u.mark(),
			Mask:     dataplane.UplinkMask,
			Action:   dataplane.ActionUnreachable,
		},
	)
	routes := map[netip.Prefix]dataplane.Multipath{}
	for _, r := range p.mainRoutes() {
		if _, taken := routes[r.Dst]; !taken || r.Hops[0].Dev == u.Device {
			routes[r.Dst] = r
		}
	}
	if u.Up {
		routes[everywhere] = dataplane.Multipath{
			Dst:  everywhere,
			Hops: []dataplane.Hop{{Via: u.Gateway, Dev: u.Device, Weight: 1}},
		}
	}
	for _, r := range routes {
		from := r.Key()
		r.Table = u.table()
		p.put(r)
		if of := p.origins[from]; len(of) > 0 {
			p.origins[r.Key()] = of
		}
	}
}

// behindDefault reports whether the pod reaches an address only through its default route, that is,
// through the cluster's network.
func (p *plan) behindDefault(to netip.Addr) bool {
	if p.nearby == nil {
		p.nearby = p.connected()
	}
	return p.world.Default != "" && !prefix.Contains(p.nearby, to)
}

// toCluster plans the route of connections that arrive on an uplink and are translated to an
// address in the cluster, such as the address of a Service. They take the default route of the pod.
// The table of the uplink would send them back through the uplink. Other packets to the same
// address still use that table.
func (p *plan) toCluster() {
	var from []string
	for _, u := range p.world.uplinks() {
		from = append(from, u.Device)
	}
	if len(p.inCluster) == 0 || len(from) == 0 || !p.runs("mwan3") {
		return
	}
	p.table.add("uplink_translated", "", devices("iifname", from), "meta nfproto ipv4 ct status dnat",
		nets("daddr", compact(p.inCluster)), setPacket(dataplane.UplinkNone))
	p.put(
		dataplane.MarkRule{
			Priority: dataplane.UplinkArrivalPriority,
			Mark:     dataplane.UplinkNone,
			Mask:     dataplane.UplinkMask,
			Table:    MainTable,
		},
	)
}

// leadsTo records that a port of the CNF leads to an address, for toCluster.
func (p *plan) leadsTo(to netip.Addr) {
	if p.behindDefault(to) {
		p.inCluster = append(p.inCluster, prefix.Host(to))
	}
}

// mainRoutes returns the routes of the main table except the default route: those of others, and
// those that are planned.
func (p *plan) mainRoutes() (out []dataplane.Multipath) {
	for _, r := range p.world.Routes {
		out = append(out,
			dataplane.Multipath{Dst: r.Dst, Hops: []dataplane.Hop{{Via: r.Via, Dev: r.Device, Weight: 1}}, Src: r.Src})
	}
	for _, o := range p.state.Sorted() {
		if m, is := o.(dataplane.Multipath); is && m.Table == MainTable && m.Dst != everywhere {
			out = append(out, m)
		}
	}
	return out
}

// connected returns the networks and addresses that the pod reaches without an uplink.
func (p *plan) connected() []netip.Prefix {
	out := []netip.Prefix{multicastAndReserved, netip.MustParsePrefix("127.0.0.0/8")}
	for _, r := range p.mainRoutes() {
		out = append(out, r.Dst)
	}
	for _, a := range p.world.Addrs {
		if a.Prefix.Addr().Is4() {
			out = append(out, a.Prefix.Masked(), prefix.Host(a.Prefix.Addr()))
		}
	}
	return compact(out)
}

// otherMarks are the bits of the packet mark that say nothing about an uplink.
const otherMarks = ^uint32(dataplane.UplinkMask)

// setPacket returns the statement that marks a packet.
func setPacket(mark uint32) string {
	return fmt.Sprintf("meta mark set meta mark & %#x | %#04x", otherMarks, mark)
}

// byConnection returns the statement that looks up a verdict by bits of the connection mark.
func byConnection(mask uint32, verdicts []string) string {
	return fmt.Sprintf("ct mark & %#x vmap { %s }", mask, strings.Join(verdicts, ", "))
}

// steer plans the chains that every packet passes. For a packet of a connection that has an uplink
// and a reply, or needs no uplink, one look at the connection mark is all: throughput depends on
// it.
func (p *plan) steer(ups []uplink) {
	const anew = dataplane.UplinkUnanswered | dataplane.UplinkAnew
	const again = anew | dataplane.UplinkSpread
	setConnection := func(mark uint32) string {
		return fmt.Sprintf("ct mark set ct mark & %#x | %#04x", ^uint32(dataplane.UplinkMask|again), mark)
	}
	p.table.add("uplink_prerouting", "", "meta nfproto ipv4 jump uplink")
	// pings that track uplinks have a mark
	p.table.add("uplink_output", "",
		fmt.Sprintf("meta nfproto ipv4 meta mark & %#x == 0 jump uplink", dataplane.UplinkMask))
	local := nets("daddr", p.connected())
	first := []string{"0x0000 : goto uplink_first", fmt.Sprintf("%#04x : return", dataplane.UplinkNone)}
	marked := []string{}
	offline := []string{}
	mark := func(name string, value uint32, online bool) {
		p.table.add("uplink_use_"+name, "", setConnection(value|dataplane.UplinkUnanswered))
		// the tables of uplinks have these networks
		if value == dataplane.UplinkBlackhole || value == dataplane.UplinkUnreachable {
			p.table.add("uplink_mark_"+name, "", local, "return")
		}
		p.table.add("uplink_mark_"+name, "", setPacket(value))
		then := fmt.Sprintf("%#04x : goto uplink_mark_%s", value, name)
		if marked = append(marked, then); online {
			first = append(first, then)
		} else {
			offline = append(offline, fmt.Sprintf("%#04x : goto uplink_again", value))
		}
	}
	for _, u := range ups {
		mark(strconv.Itoa(u.number), u.mark(), u.Online)
	}
	mark("blackhole", dataplane.UplinkBlackhole, false)
	mark("unreachable", dataplane.UplinkUnreachable, false)
	p.table.add("uplink_use_none", "", setConnection(dataplane.UplinkNone|dataplane.UplinkUnanswered))
	p.table.add("uplink", "", byConnection(dataplane.UplinkMask|again, first))
	p.table.add("uplink", "", byConnection(dataplane.UplinkMask, offline))
	p.table.add("uplink", "", fmt.Sprintf("ct direction original ct mark & %#x == %#x jump uplink_new", anew, anew))
	// not by an error of ICMP
	p.table.add("uplink", "",
		fmt.Sprintf("ct direction reply ct state established ct mark set ct mark & %#x", ^uint32(again)))
	p.table.add("uplink", "", "goto uplink_marked")
	p.table.add("uplink_first", "", "ct state new jump uplink_new")
	p.table.add("uplink_first", "", "goto uplink_marked")
	p.table.add("uplink_again", "", "ct direction original jump uplink_new")
	p.table.add("uplink_again", "", "goto uplink_marked")
	p.table.add("uplink_marked", "", byConnection(dataplane.UplinkMask, marked))
	for _, u := range ups {
		p.table.add("uplink_new", "", devices("iifname", []string{u.Device}), nets("saddr", p.connected()),
			setConnection(dataplane.UplinkNone), "return")
		p.table.add("uplink_new", u.Name, devices("iifname", []string{u.Device}), setConnection(u.mark()), "return")
	}
	p.table.add("uplink_new", "", local, setConnection(dataplane.UplinkNone), "return")
	for _, u := range ups {
		if own := p.addresses(u.Device); u.Online && len(own) > 0 {
			p.table.add("uplink_new", u.Name, nets("saddr", own), setConnection(u.mark()), "return")
		}
	}
}

// addresses returns the IPv4 addresses of a device.
func (p *plan) addresses(device string) (out []netip.Prefix) {
	for _, a := range p.world.Addrs {
		if a.Device == device && a.Prefix.Addr().Is4() {
			out = append(out, prefix.Host(a.Prefix.Addr()))
		}
	}
	return compact(out)
}
