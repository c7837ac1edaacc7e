package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"subctl/sdewan/rest"
)

// What an object of a CNF means, in words. The texts agree with what sdewan/cnf plans, and have no
// secrets.

// anyZone is the name that stands for all zones.
const anyZone = "*"

// theCNF is one end of packets that the CNF sends, or that are for it.
const theCNF = "the CNF itself"

// words describes which packets an object is about, and what it does with them.
func words(o rest.Object, c rest.Config) (matches, does string) {
	switch o := o.(type) {
	case *rest.Policy:
		return "connections of rules that use it", spread(*o)
	case *rest.Rule:
		does = "takes an uplink by policy " + o.Policy
		if p, ok := c.Get(rest.Policies, o.Policy); ok {
			does += ": " + spread(*p.(*rest.Policy))
		}
		if o.Sticky == "1" {
			does += fmt.Sprintf("; connections of a source stay with one uplink for %s s", cmp.Or(o.Timeout, "600"))
		}
		return packets(cmp.Or(o.Proto, "all"), end("", o.SrcIP, o.SrcPort), end("", o.DestIP, o.DestPort)) +
			family(o.Family) + ", unless an earlier rule matches", does
	case *rest.Zone:
		return zoneWords(*o)
	case *rest.Forwarding:
		return fmt.Sprintf("new connections from %s to %s", zone(o.Src), zone(o.Dest)) +
			family(o.Family), "ACCEPT, and their replies"
	case *rest.FirewallRule:
		return firewallWords(*o)
	case *rest.Redirect:
		return redirectWords(*o)
	case *rest.Proposal:
		return "IPsec connections that use it", strings.Join(
			slices.DeleteFunc([]string{o.Encryption, o.Hash, o.DHGroup}, func(s string) bool { return s == "" }), "-")
	case *rest.Remote:
		return remoteWords(*o)
	case *rest.Route:
		return "packets to " + o.Dst, "leave by " + strings.TrimSpace(o.Dev+" "+o.GW) + tableWords(o.Table)
	case *rest.RouteRule:
		not := ""
		if o.Not {
			not = "not "
		}
		return not + packets("all", end("", o.Src, ""), end("", o.Dst, "")) + mark(o.FwMark),
			"take the routes" + tableWords(cmp.Or(o.Table, "main"))
	case *rest.NAT:
		if o.Target != "DNAT" {
			does = "the source address becomes " + join(cmp.Or(o.SrcDIP, theCNF), o.SrcDPort)
			return packets(cmp.Or(o.Proto, "all"), end("", o.SrcIP, o.SrcPort), end("", o.DestIP, o.DestPort)) +
				", which leave by " + o.Dest, does
		}
		to := cmp.Or(o.SrcDIP, theCNF)
		if o.SrcDPort != "" {
			to += " port " + o.SrcDPort
		}
		return packets(cmp.Or(o.Proto, "all"), end("", o.SrcIP, o.SrcPort), to), "lead to " +
			join(cmp.Or(o.DestIP, theCNF), o.DestPort)
	}
	return "", ""
}

func tableWords(table string) string {
	if table == "" || table == "default" || table == "main" {
		return " of the table main"
	}
	return " of the table " + table
}

// zoneWords describes a zone.
func zoneWords(z rest.Zone) (matches, does string) {
	policy := func(p string) string { return cmp.Or(p, "ACCEPT") }
	does = fmt.Sprintf("to the CNF: %s; from the CNF: %s; between networks of the zone: %s", policy(z.Input),
		policy(z.Output), policy(z.Forward))
	if z.Masq == "1" {
		does += "; to it: source addresses become the CNF's"
		if len(z.MasqSrc) > 0 {
			does += ", of packets from " + strings.Join(z.MasqSrc, ", ")
		}
		if len(z.MasqDest) > 0 {
			does += ", of packets to " + strings.Join(z.MasqDest, ", ")
		}
		if z.MasqAllowInvalid == "1" {
			does += "; packets of no known connection leave to it, too"
		}
	}
	if z.MTUFix == "1" {
		does += "; TCP segments are limited to what fits the path"
	}
	return "packets from and to " + cmp.Or(strings.Join(slices.Concat(z.Network, z.Subnet), ", "),
		"no network") + family(z.Family) + iptables(z.ExtraSrc) + iptables(z.ExtraDest), does
}

// firewallWords describes a rule of the firewall. Without src, it concerns what the CNF sends;
// without dest, what is for the CNF. Marks are set elsewhere, so that some concern more.
func firewallWords(r rest.FirewallRule) (matches, does string) {
	does = cmp.Or(r.Target, "REJECT")
	from := cmp.Or(r.Src, theCNF)
	to := cmp.Or(r.Dest, theCNF)
	if r.Src == "" && r.Dest == "" {
		to = anyZone
	}
	switch r.Target {
	case "MARK":
		does += " " + cmp.Or(r.SetMark, r.SetXMark)
		switch {
		case r.Src != "" && r.Dest == anyZone: // before it is known where they go
			to = anyZone + " or " + theCNF
		case (r.Src == "" || r.Src == anyZone) && r.Dest != "" && r.Dest != anyZone: // as they leave
			from = anyZone + " or " + theCNF
		}
	case "NOTRACK":
		to = anyZone + " or " + theCNF
	}
	if len(r.ICMPType) > 0 && r.Proto == "icmp" {
		r.Proto += " " + strings.Join(r.ICMPType, ", ")
	}
	matches = packets(cmp.Or(r.Proto, "tcpudp"), end(from, r.SrcIP, r.SrcPort), end(to, r.DestIP, r.DestPort))
	return matches + mac(r.SrcMAC) + mark(r.Mark) + family(r.Family) + iptables(r.Extra), does
}

// redirectWords describes a translation of addresses.
func redirectWords(r rest.Redirect) (matches, does string) {
	proto := cmp.Or(r.Proto, "tcpudp")
	from := end("", r.SrcIP, r.SrcPort)
	if r.Target == "SNAT" { // after routing, whatever the source
		return packets(proto, from, end(r.Dest, r.DestIP, r.DestPort)) +
			mark(r.Mark), "the source address becomes " + join(r.SrcDIP, r.SrcDPort)
	}
	to := join(cmp.Or(r.DestIP, theCNF), r.DestPort)
	switch {
	case r.DestPort != "" || r.SrcDPort == "":
	case strings.ContainsAny(r.SrcDPort, ",-:"):
		to += ", with the port that it has"
	default:
		to = join(to, r.SrcDPort)
	}
	matches = packets(proto, end(r.Src, r.SrcIP, r.SrcPort), end("", r.SrcDIP, r.SrcDPort)) + mac(r.SrcMAC) +
		mark(r.Mark)
	return matches, "the destination becomes " + to + ", and the packets are accepted"
}

// remoteWords describes the tunnels to a remote.
func remoteWords(r rest.Remote) (matches, does string) {
	matches = "IPsec with " + r.Gateway + ", authenticated by " + r.Auth
	for _, id := range []struct{ who, name string }{{"this CNF", r.LocalID}, {"the remote", r.RemoteID}} {
		if id.name != "" {
			matches += fmt.Sprintf(", %s as %q", id.who, id.name)
		}
	}
	if len(r.Proposals) > 0 {
		matches += ", IKE with " + strings.Join(r.Proposals, ", ")
		if r.ForceProposal == "1" {
			matches += " and nothing else"
		}
	}
	side := func(subnet, address, neither string) string {
		if address == "%config" {
			address = "an address that the remote assigns"
		}
		return cmp.Or(
			strings.Join(slices.DeleteFunc([]string{subnet, address}, func(s string) bool { return s == "" }), " and "),
			neither)
	}
	var list []string
	for _, x := range r.Connections {
		text := fmt.Sprintf("%s (%s, %s): %s === %s", x.Name, cmp.Or(x.Type, "tunnel"), x.Mode,
			side(cmp.Or(x.LocalNAT, x.LocalSubnet), x.LocalSourceIP, "this CNF"),
			side(x.RemoteSubnet, x.RemoteSourceIP, "the remote"))
		if len(x.Proposals) > 0 {
			text += ", ESP with " + strings.Join(x.Proposals, ", ")
		}
		if x.LocalFirewall == "yes" {
			text += ", accepted whatever zones say"
		}
		list = append(list, text)
	}
	return matches, strings.Join(list, "; ")
}

// spread describes a policy.
func spread(p rest.Policy) string {
	var list []string
	for _, m := range p.Members {
		text := fmt.Sprintf("%s (metric %s, weight %s", m.Interface, cmp.Or(m.Metric, "1"), cmp.Or(m.Weight, "1"))
		for _, limit := range []struct{ name, value, unit string }{
			{"loss", m.MaxLoss, "%"}, {"latency", m.MaxLatency, " ms"}, {"jitter", m.MaxJitter, " ms"},
		} {
			if limit.value != "" {
				text += fmt.Sprintf(", %s up to %s%s", limit.name, limit.value, limit.unit)
			}
		}
		list = append(list, text+")")
	}
	if p.LastResort != "" {
		list = append(list, "if none is online "+p.LastResort)
	}
	return "of the uplinks that are online, those with the lowest metric share the connections by weight: " +
		strings.Join(list, ", ")
}

// packets describes which packets match.
func packets(proto, from, to string) string { return fmt.Sprintf("%s from %s to %s", proto, from, to) }

// end describes one end of packets: in a zone, the CNF itself, or "" if neither matters.
func end(z, ip, port string) string {
	out := cmp.Or(ip, "any address")
	switch {
	case z == theCNF && ip == "":
		out = theCNF
	case z == theCNF:
		out = theCNF + " at " + ip
	case z != "":
		out += " in " + zone(z)
	}
	if port != "" {
		out += " port " + port
	}
	return out
}

func zone(name string) string {
	if rest, ok := strings.CutPrefix(name, anyZone); ok || name == "" {
		return "any zone" + rest
	}
	return "zone " + name
}

func join(ip, port string) string {
	if port == "" {
		return ip
	}
	return ip + " port " + port
}

// The following describe further conditions; "" if there is none.

func family(f string) string {
	switch f {
	case "ipv4":
		return ", IPv4 only"
	case "ipv6":
		return ", IPv6 only"
	}
	return ""
}

func mac(address string) string {
	if address == "" {
		return ""
	}
	return ", sent by the device " + address
}

func mark(m string) string {
	if m == "" {
		return ""
	}
	if m, not := strings.CutPrefix(m, "!"); not {
		return ", without the mark " + strings.TrimSpace(m)
	}
	return ", with the mark " + m
}

func iptables(arguments string) string {
	if arguments == "" {
		return ""
	}
	return ", and as iptables matches " + arguments + " (on OpenWrt only)"
}
