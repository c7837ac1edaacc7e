package cnf

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"subctl/dataplane"
	"subctl/internal/prefix"
	"subctl/sdewan/rest"
)

// Refuses returns whether a connection is one that a rule of the firewall refuses which is new, or
// has changed, between two configurations; nil if there is no such rule. Established connections
// pass without a look at rules: the caller ends those that match, so that their next packet meets
// the rules as the first one of a connection does. What a rule says about marks, senders and types
// of ICMP is ignored, and so are rules that come before it: then a connection that ends goes on, as
// its next packet is accepted.
func Refuses(before, after rest.Config, w World) func(dataplane.Flow) bool {
	if slices.Contains(after.Stopped, "firewall") {
		return nil
	}
	p := &plan{config: after, world: w, state: dataplane.State{}, origins: origins{}}
	p.safe()
	p.readZones()
	had := make(map[string]rest.FirewallRule, len(before.Firewall))
	for _, r := range before.Firewall {
		had[r.Name] = r
	}
	var refusals []refusal
	for _, r := range after.Firewall {
		old, is := had[r.Name]
		refuses := r.Target == "" || r.Target == "REJECT" || r.Target == "DROP"
		if !refuses || is && reflect.DeepEqual(old, r) {
			continue
		}
		if one, ok := p.refusal(r); ok {
			refusals = append(refusals, one)
		}
	}
	if len(refusals) == 0 {
		return nil
	}
	api := p.world.API
	return func(f dataplane.Flow) bool {
		return !slices.Contains(api, f.Dst) &&
			slices.ContainsFunc(refusals, func(r refusal) bool { return r.matches(p, f) })
	}
}

// refusal has the conditions of a rule on the first packet of a connection.
type refusal struct {
	protocols    []string // none for all
	src, dest    *zone    // nil for any
	saddr, daddr func(netip.Addr) bool
	sport, dport []ports // none for all
}

// refusal returns the conditions of a rule. It is false for a rule that the plan leaves out, or
// that concerns no IPv4 connection.
func (p *plan) refusal(r rest.FirewallRule) (out refusal, ok bool) {
	var errs [4]error
	out.protocols, errs[0] = protocol(r.Proto, "tcpudp")
	out.src, _, errs[1] = p.refer("src", r.Src)
	out.dest, _, errs[2] = p.refer("dest", r.Dest)
	_, errs[3] = ruleMatches(r, "tcpudp")
	for _, err := range errs {
		if err != nil {
			return out, false
		}
	}
	out.saddr = within(r.SrcIP)
	out.daddr = within(r.DestIP)
	if r.SrcPort != "" {
		out.sport, _ = parsePorts(r.SrcPort) // ruleMatches has the error
	}
	if r.DestPort != "" {
		out.dport, _ = parsePorts(r.DestPort)
	}
	return out, r.Family != "ipv6"
}

// within returns whether an address is in a network, or not in one after "!".
func within(text string) func(netip.Addr) bool {
	not, positive := negated(text)
	n, err := parseNet(positive)
	if text == "" || err != nil {
		return func(netip.Addr) bool { return true }
	}
	return func(a netip.Addr) bool { return n.Contains(a) == (not == "") }
}

func (r refusal) matches(p *plan, f dataplane.Flow) bool {
	port := func(list []ports, n uint16) bool {
		return len(list) == 0 ||
			slices.ContainsFunc(list, func(one ports) bool { return one.First <= n && n <= one.Last })
	}
	proto := strings.ToLower(f.Proto)
	return (len(r.protocols) == 0 || slices.Contains(r.protocols, proto)) &&
		r.saddr(f.Src.Addr()) && r.daddr(f.Dst.Addr()) && port(r.sport, f.Src.Port()) && port(r.dport, f.Dst.Port()) &&
		p.belongs(r.src, f.Src.Addr()) && p.belongs(r.dest, f.Dst.Addr())
}

// belongs reports whether an address can be in a zone, nil for any: in a network of one of its
// devices or in one of its subnets, or, if it is in no network of the CNF, behind one of its
// uplinks.
func (p *plan) belongs(z *zone, a netip.Addr) bool {
	if z == nil {
		return true
	}
	if len(z.subnets) > 0 && !prefix.Contains(z.subnets, a) {
		return false
	}
	if len(z.devices) == 0 {
		return true
	}
	near := false
	for _, own := range p.world.Addrs {
		if own.Prefix.Contains(a) {
			if slices.Contains(z.devices, own.Device) {
				return true
			}
			near = true
		}
	}
	for _, r := range p.world.Routes {
		if r.Dst.Contains(a) {
			if slices.Contains(z.devices, r.Device) {
				return true
			}
			near = true
		}
	}
	return !near && slices.ContainsFunc(p.world.uplinks(),
		func(u uplink) bool { return slices.Contains(z.devices, u.Device) })
}
