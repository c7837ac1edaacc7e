package view

import (
	"cmp"
	"slices"

	"subctl/sdewan"
	"subctl/sdewan/rest"
)

// This file is about the order in which the rules of a CNF decide about a packet. It agrees with
// what sdewan/cnf plans, and with OpenWrt.

// hook is where decisions about packets are made, one after the other until one applies.
type hook int

const (
	untracked hook = iota // before connection tracking
	tunnels
	uplinks
	translated // destinations
	marked     // before it is known where packets go
	markedIn   // what is for the CNF
	markedPass // what is forwarded
	markedOut  // what the CNF sends
	markedLast // as packets leave
	input      // what is for the CNF
	forward
	output // what the CNF sends
	hidden // sources
)

// filters reports whether packets are accepted or refused there.
func (h hook) filters() bool { return h == input || h == forward || h == output }

// stage is the place of a decision in its hook.
type stage int

const (
	accepting  stage = iota // tunnels that zones do not concern
	rules                   // FirewallRules of any zone
	passing                 // FirewallForwardings from any zone
	zoneRules               // FirewallRules of a zone
	forwarding              // FirewallForwardings from a zone
	redirected              // acceptance of packets whose destinations have been translated
	policies                // of zones
)

// The stages of translations, and the one of hooks with no others.
const (
	redirects stage = iota // of zones
	services
	only = redirects
)

// place is where an object decides: about packets from one zone or any, to one zone or any.
type place struct {
	hook      hook
	stage     stage
	src, dest string
}

// meets reports whether a packet can come to both places.
func (a place) meets(b place) bool {
	return a.hook == b.hook && same(a.src, b.src) && same(a.dest, b.dest)
}

// compare compares what comes first for a packet. A packet passes one of the hooks that filter, or
// two.
func (a place) compare(b place) int {
	if a.hook.filters() && b.hook.filters() {
		return cmp.Compare(a.stage, b.stage)
	}
	return cmp.Or(cmp.Compare(a.hook, b.hook), cmp.Compare(a.stage, b.stage))
}

func same(a, b string) bool { return a == b || a == anyZone || b == anyZone }

// placesOf returns where an object of a CNF decides about packets.
func placesOf(o rest.Object) []place {
	switch o := o.(type) {
	case *rest.Rule:
		return []place{{uplinks, only, anyZone, anyZone}}
	case *rest.FirewallRule:
		return []place{placeOfRule(*o)}
	case *rest.Forwarding:
		src := cmp.Or(o.Src, anyZone)
		at := forwarding
		if src == anyZone {
			at = passing
		}
		return []place{{forward, at, src, cmp.Or(o.Dest, anyZone)}}
	case *rest.Redirect:
		if o.Target == "SNAT" {
			return []place{{hidden, redirects, anyZone, o.Dest}}
		}
		return []place{
			{translated, redirects, o.Src, anyZone},
			{input, redirected, o.Src, anyZone},
			{forward, redirected, o.Src, anyZone},
		}
	case *rest.NAT: // of a CNFService or a CNFNAT
		if o.Target != "DNAT" {
			return []place{{hidden, services, anyZone, anyZone}}
		}
		return []place{
			{translated, services, anyZone, anyZone},
			{input, redirected, anyZone, anyZone},
			{forward, redirected, anyZone, anyZone},
		}
	case *rest.Zone:
		out := []place{
			{input, policies, o.Name, anyZone},
			{forward, policies, o.Name, anyZone},
			{output, policies, anyZone, o.Name},
		}
		if o.Masq == "1" {
			out = append(out, place{hidden, services, anyZone, o.Name})
		}
		return out
	case *rest.Remote:
		out := []place{{tunnels, only, anyZone, anyZone}}
		if slices.ContainsFunc(o.Connections, func(c rest.Connection) bool { return c.LocalFirewall == "yes" }) {
			for _, h := range []hook{input, forward, output} {
				out = append(out, place{h, accepting, anyZone, anyZone})
			}
		}
		return out
	}
	return nil // policies and proposals do what the rules say that use them
}

// placeOfRule returns the place of a rule of the firewall.
func placeOfRule(r rest.FirewallRule) place {
	src := cmp.Or(r.Src, anyZone)
	dest := cmp.Or(r.Dest, anyZone)
	switch r.Target {
	case "NOTRACK":
		return place{untracked, only, src, anyZone}
	case "MARK":
		h := markedOut
		switch {
		case r.Src != "" && r.Dest == anyZone:
			h = marked
		case r.Src != "" && r.Src != anyZone && r.Dest != "":
			h = markedPass
		case r.Src != "" && r.Dest == "":
			h = markedIn
		case r.Dest != "" && r.Dest != anyZone:
			h = markedLast
		}
		return place{h, only, src, dest}
	}
	p := place{output, zoneRules, anyZone, dest}
	switch {
	case r.Src != "" && r.Dest != "":
		p = place{forward, zoneRules, src, dest}
	case r.Src != "":
		p = place{input, zoneRules, src, anyZone}
	}
	if r.Src == anyZone || r.Src == "" && dest == anyZone {
		p.stage = rules
	}
	return p
}

// before returns the rules that decide before a rule about packets that it may match, in their
// order.
func (v *View) before(r sdewan.Rule, kind sdewan.Kind, networks sdewan.Networks) (out []string) {
	o, err := v.render(kind, r, networks)
	if err != nil {
		return nil
	}
	type earlier struct {
		sdewan.Rule
		place
	}
	var list []earlier
	for _, other := range v.Rules {
		k, ok := sdewan.KindOf(other)
		if !ok || !neighbours(r, other) || other == r || apart(k, kind) {
			continue
		}
		if kind.Collection == rest.RouteRules || kind.Collection == rest.NetworkRules {
			if sdewan.Order(other, r) < 0 {
				list = append(list, earlier{other, place{}})
			}
			continue
		}
		x, err := v.render(k, other, networks)
		if err != nil {
			continue // it is on no CNF
		}
		if at, before := precedes(x, o, sdewan.Order(other, r) < 0); before {
			list = append(list, earlier{other, at})
		}
	}
	slices.SortStableFunc(list,
		func(a, b earlier) int { return cmp.Or(a.compare(b.place), sdewan.Order(a.Rule, b.Rule)) })
	for _, e := range list {
		out = append(out, KindName(e.Rule)+" "+e.GetName())
	}
	return out
}

// apart reports whether the order of two kinds is not compared: rules for routes are an order of
// their own, and so are rules for devices, which come after those for zones.
func apart(a, b sdewan.Kind) bool {
	alone := func(l *rest.Collection) bool {
		return l == rest.Routes || l == rest.RouteRules || l == rest.NetworkRules
	}
	return (alone(a.Collection) || alone(b.Collection)) && a.Collection != b.Collection
}

// precedes reports whether a decides before b about the same packets, and where. older reports
// whether a is older.
func precedes(a, b rest.Object, older bool) (place, bool) {
	if x, y := zonesOf(a, b); x != nil && older {
		return placesOf(a)[0], len(x.Subnet)+len(y.Subnet) > 0 ||
			slices.ContainsFunc(x.Network, func(n string) bool { return slices.Contains(y.Network, n) })
	}
	for _, y := range placesOf(b) {
		for _, x := range placesOf(a) {
			_, forwards := a.(*rest.Forwarding)
			if !x.meets(y) || forwards && y.stage == redirected { // both accept
				continue
			}
			if x.stage < y.stage || x.stage == y.stage && older && x.stage != redirected {
				return x, true
			}
		}
	}
	return place{}, false
}

// zonesOf returns two objects as zones, or nil.
func zonesOf(a, b rest.Object) (x, y *rest.Zone) {
	x, isZone := a.(*rest.Zone)
	y, areZones := b.(*rest.Zone)
	if !isZone || !areZones {
		return nil, nil
	}
	return x, y
}
