package cnf

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"subctl/dataplane"
	"subctl/sdewan/rest"
)

// MainTable is the number of the main table of routes (linux/rtnetlink.h).
const MainTable = 254

// tables are the tables of routes that have names: the tables of every Linux, and the table of the
// REST API.
var tables = map[string]int{"default": 253, "main": MainTable, "local": 255, "cnf": dataplane.CNFTable}

// TableName returns the name of a table of routes, or its number.
func TableName(n int) string {
	for name, number := range tables {
		if number == n {
			return name
		}
	}
	return strconv.Itoa(n)
}

var everywhere = netip.PrefixFrom(netip.IPv4Unspecified(), 0)

// routes plans the routes of the REST API.
func (p *plan) routes() {
	for _, r := range p.config.Routes {
		o, err := p.route(r)
		if err != nil {
			p.problem(rest.Routes, r.Name, "%v", err)
			continue
		}
		p.add(rest.Routes, r.Name, o)
	}
}

func (p *plan) route(r rest.Route) (o dataplane.Multipath, err error) {
	switch r.Table {
	case "", "default":
		o.Table = MainTable
	case "cnf":
		o.Table = dataplane.CNFTable
	default:
		return o, fmt.Errorf("table %q is neither default nor cnf", r.Table)
	}
	if o.Dst = everywhere; r.Dst != "default" {
		if o.Dst, err = parseNet(r.Dst); err != nil {
			return o, fmt.Errorf("dst: %w", err)
		}
	}
	if o.Table == MainTable && slices.Contains(p.world.Taken, o.Dst) {
		return o, fmt.Errorf("dst: the pod has a route to %s already, which another program has made: use another "+
			"network, or the table cnf", r.Dst)
	}
	if r.Src != "" {
		if o.Src, err = parseIP(r.Src); err != nil {
			return o, fmt.Errorf("src: %w", err)
		}
		if p.world.owner(o.Src) == "" {
			return o, fmt.Errorf("src: no device of the pod has the address %v", o.Src)
		}
	}
	hop := dataplane.Hop{Weight: 1}
	if r.GW != "" {
		if hop.Via, err = parseIP(r.GW); err != nil {
			return o, fmt.Errorf("gw: %w", err)
		}
	}
	if hop.Dev, err = p.device(r.Dev); err != nil {
		return o, fmt.Errorf("dev: %w", err)
	}
	if hop.Via.IsValid() && !p.onLink(hop) {
		return o, fmt.Errorf("gw: %v is in no network of device %s", hop.Via, hop.Dev)
	}
	o.Hops = []dataplane.Hop{hop}
	return o, nil
}

// onLink reports whether a router is in a network of its device: Linux refuses other routes, and
// one route that it refuses would keep the kernel from ever holding the plan.
func (p *plan) onLink(hop dataplane.Hop) bool {
	return slices.ContainsFunc(p.world.Interfaces,
		func(f Interface) bool { return f.Device == hop.Dev && f.AddrsUnknown }) ||
		slices.ContainsFunc(p.world.Addrs,
			func(a Addr) bool { return a.Device == hop.Dev && contains(a.Prefix, hop.Via) }) ||
		slices.ContainsFunc(p.world.Routes,
			func(r MainRoute) bool { return r.Device == hop.Dev && !r.Via.IsValid() && contains(r.Dst, hop.Via) })
}

// contains reports whether an address can be a host's of a network.
func contains(network netip.Prefix, host netip.Addr) bool {
	const pointToPoint = 31 // all addresses of which are hosts
	return network.Contains(host) && (network.Bits() >= pointToPoint || host != rest.LastAddr(network.Masked()))
}

// device returns the device of a reference: a name, "#default" for the device of the default route,
// or "#" and one of its addresses.
func (p *plan) device(ref string) (string, error) {
	name, special := strings.CutPrefix(ref, "#")
	switch {
	case !special && p.world.hasDevice(ref):
		return ref, nil
	case !special:
		return "", fmt.Errorf("the pod has no device %q", ref)
	case name == "default" && p.world.Default == "":
		return "", fmt.Errorf("%s: the pod has no default route", ref)
	case name == "default":
		return p.world.Default, nil
	}
	ip, err := parseIP(name)
	if err != nil {
		return "", err
	}
	if dev := p.world.owner(ip); dev != "" {
		return dev, nil
	}
	return "", fmt.Errorf("no device of the pod has the address %v", ip)
}

// policyRules plans the policy rules of the REST API. Those without a priority of their own get one
// each, in their order.
func (p *plan) policyRules() {
	next := dataplane.CNFRulePriority
	for _, r := range p.config.RouteRules {
		o, err := parseRule(r)
		if err == nil && r.Prio == "" {
			if next >= dataplane.ApplicationPriority {
				err = fmt.Errorf("there are %d rules without prio already: give the others one",
					next-dataplane.CNFRulePriority)
			}
			o.Priority = next
			next++
		}
		if err != nil {
			p.problem(rest.RouteRules, r.Name, "%v", err)
			continue
		}
		p.add(rest.RouteRules, r.Name, dataplane.NewRule(o))
	}
}

func parseRule(r rest.RouteRule) (o dataplane.PolicyRule, err error) {
	o.Not = r.Not
	if r.Prio != "" {
		n, err := strconv.ParseUint(r.Prio, 10, 16)
		if err != nil || n < 1 || n > rest.MaxPriority {
			return o, fmt.Errorf("prio %q is not a number from 1 to %d", r.Prio, rest.MaxPriority)
		}
		o.Priority = int(n)
	}
	for _, a := range []struct {
		field, text string
		to          *netip.Prefix
	}{{"src", r.Src, &o.Src}, {"dst", r.Dst, &o.Dst}} {
		if a.text == "" {
			continue
		}
		if *a.to, err = parseNet(a.text); err != nil {
			return o, fmt.Errorf("%s: %w", a.field, err)
		}
		if a.to.Bits() == 0 {
			*a.to = netip.Prefix{}
		}
	}
	if r.FwMark != "" {
		if o.Mark, o.Mask, err = parseMark(r.FwMark); err != nil {
			return o, fmt.Errorf("fwmark: %w", err)
		}
		if o.Mark == 0 {
			return o, fmt.Errorf("fwmark %q matches every packet: use a mark that is not 0, or leave it out", r.FwMark)
		}
	}
	if o.Not && o.Src == o.Dst && !o.Src.IsValid() && o.Mask == 0 {
		return o, fmt.Errorf("the flag \"not\" without a condition matches no packet")
	}
	var known bool
	if o.Table, known = tables[cmp.Or(r.Table, "main")]; !known {
		n, err := strconv.ParseUint(r.Table, 10, 31)
		if err != nil || n == 0 {
			return o, fmt.Errorf("table %q is neither main, local, default or cnf nor a number from 1", r.Table)
		}
		o.Table = int(n)
	}
	return o, nil
}

// applications plans a policy rule for each address of an application, to the table of routes
// "cnf".
func (p *plan) applications() {
	for _, a := range p.config.Applications {
		for _, text := range strings.Split(a.IPList, ",") {
			if text = strings.TrimSpace(text); text == "" {
				continue
			}
			src, err := parseNet(text)
			if err != nil {
				p.problem(rest.Applications, a.Name, "iplist: %v", err)
				continue
			}
			p.add(
				rest.Applications,
				a.Name,
				dataplane.NewRule(
					dataplane.PolicyRule{Priority: dataplane.ApplicationPriority, Src: src, Table: dataplane.CNFTable}),
			)
		}
	}
}
