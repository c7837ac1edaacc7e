package rest

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Reference is a name in an object of another object, without which it has no effect.
type Reference struct {
	Field string // such as connections[0].crypto_proposal
	To    *Collection
	Name  string
}

// referred are the collections to whose objects others refer, and what one of these objects is
// called.
var referred = map[*Collection]string{Policies: "policy", Zones: "zone", Proposals: "proposal"}

// Reserved are the policies that every CNF has: the route of the table main, an ICMP error, and
// nothing at all.
var Reserved = []string{"default", "unreachable", "blackhole"}

// Any is a zone in firewall rules: all of them.
const Any = "*"

// References returns the references of an object, in the order of its fields. References to what
// every CNF has are not among them.
func (l *Collection) References(o Object) []Reference {
	var all []Reference
	refer := func(field string, to *Collection, name string) {
		if name = strings.TrimSpace(name); name != "" && !(to == Policies && slices.Contains(Reserved, name)) &&
			!(to == Zones && name == Any) {
			all = append(all, Reference{field, to, name})
		}
	}
	switch o := o.(type) {
	case *Rule:
		refer("policy", Policies, o.Policy)
	case *Forwarding:
		refer("src", Zones, o.Src)
		refer("dest", Zones, o.Dest)
	case *FirewallRule:
		if l == FirewallRules {
			refer("src", Zones, o.Src)
			refer("dest", Zones, o.Dest)
		}
	case *Redirect:
		refer("src", Zones, o.Src)
		refer("dest", Zones, o.Dest)
	case *Remote:
		for _, name := range o.Proposals {
			refer("crypto_proposal", Proposals, name)
		}
		for i := range o.Connections {
			for _, name := range o.Connections[i].Proposals {
				refer(fmt.Sprintf("connections[%d].crypto_proposal", i), Proposals, name)
			}
		}
	}
	return all
}

// Devices holds the properties of a CNF's network to which objects can refer.
type Devices struct {
	Names     []string     // of the devices, which are the interfaces of rules and routes
	Networks  []string     // those of networks, which are the interfaces of policies and zones; nil for all
	Addresses []netip.Addr // of all devices
	Default   bool         // whether there is a default route
}

// has reports whether a field refers to a device: by its name, "#default" or "#ADDRESS".
func (d *Devices) has(value string) bool {
	selector, ok := strings.CutPrefix(value, "#")
	if !ok {
		return slices.Contains(d.Names, value)
	}
	a, err := netip.ParseAddr(selector)
	return selector == "default" && d.Default || err == nil && slices.Contains(d.Addresses, a)
}

// CheckReferences returns a *Refusal if an object refers to something that the CNF does not have:
// code 400, or 428 if that may appear later, as OpenWrt has it. devices may be nil: references to
// devices are then not checked. The object is one that Check accepts.
func (c *Config) CheckReferences(l *Collection, o Object, devices *Devices) error {
	r := &Refusal{Code: 400}
	o = Trimmed(o)
	for _, ref := range l.References(o) {
		if ref.To.items.index(c, ref.Name) >= 0 {
			continue
		}
		if ref.To == Proposals {
			r.Code = 428
		}
		r.Problems = append(r.Problems,
			fmt.Sprintf("%s: %s %s is not defined: create it first", ref.Field, referred[ref.To], quote(ref.Name)))
	}
	if devices != nil {
		r.devices(l, o, devices)
	}
	if r.Problems == nil {
		return nil
	}
	return r
}

// devices checks the references to devices.
func (r *Refusal) devices(l *Collection, o Object, d *Devices) {
	missing := func(code int, field, value string, known []string) {
		r.Code = code
		r.Problems = append(
			r.Problems,
			fmt.Sprintf("%s: interface %s is not defined: the CNF has %s", field, quote(value),
				strings.Join(known, ", ")),
		)
	}
	device := func(field, value string) {
		if value != "" && !d.has(value) {
			missing(428, field, value, d.Names)
		}
	}
	networks := d.Networks
	if networks == nil {
		networks = d.Names
	}
	switch o := o.(type) {
	case *Policy:
		for i, m := range o.Members {
			if !slices.Contains(networks, m.Interface) {
				missing(400, fmt.Sprintf("members[%d].interface", i), m.Interface, networks)
			}
		}
	case *Zone:
		for _, n := range o.Network {
			if !slices.Contains(networks, n) {
				missing(400, "network", n, networks)
			}
		}
	case *FirewallRule:
		if l == NetworkRules {
			device("src", o.Src)
			device("dest", o.Dest)
		}
	case *NAT:
		source := func(value string) string { // "#source" is the device that owns src_dip
			if value == "#source" {
				return "#" + o.SrcDIP
			}
			return value
		}
		device("src", source(o.Src))
		device("dest", source(o.Dest))
	case *Route:
		device("dev", o.Dev)
	}
}

// CheckDelete returns a *Refusal with code 400 if other objects refer to the one with this name.
func (c *Config) CheckDelete(l *Collection, name string) error {
	users := c.Users(l, name)
	if users == nil {
		return nil
	}
	const shown = 5
	text := strings.Join(users[:min(len(users), shown)], ", ")
	if len(users) > shown {
		text += fmt.Sprintf(" and %d others", len(users)-shown)
	}
	return &Refusal{
		400,
		[]string{fmt.Sprintf("%s %s is used by %s: delete what uses it first", referred[l], name, text)},
	}
}

// Users returns the objects that refer to the one with this name, as mwan3/rules/NAME.
func (c *Config) Users(l *Collection, name string) []string {
	var users []string
	if referred[l] == "" {
		return nil
	}
	for _, from := range Collections {
		for _, o := range from.items.all(c) {
			if slices.ContainsFunc(from.References(o), func(r Reference) bool { return r.To == l && r.Name == name }) {
				users = append(users, from.String()+"/"+o.GetName())
			}
		}
	}
	return users
}
