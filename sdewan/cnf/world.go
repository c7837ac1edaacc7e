package cnf

import (
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"time"

	"subctl/dataplane"
	"subctl/sdewan/rest"
)

// World is the input of a plan besides what the REST API has received: the pod's devices, and what
// is known of them.
type World struct {
	// Interfaces are the networks of the pod, in the order of the annotation that lists them. The
	// number of an uplink is its place in this list, from 1.
	Interfaces []Interface
	// Addrs are the addresses of all devices of the pod, also of those that are no Interface. The
	// cluster's network is one.
	Addrs []Addr
	// Default is the device of the default route of the main table, or "".
	Default string
	// Routes are the other routes of the main table that programs besides this one have made: those
	// to connected networks, for one.
	Routes []MainRoute
	// Taken are the networks to which other programs have routes in the main table that leave no
	// room for one of the REST API: of the same metric, 0. The default route is one to 0.0.0.0/0.
	Taken []netip.Prefix
	// API are the addresses and ports at which the pod serves its REST API and the probe of its
	// readiness. Nothing in a plan concerns their packets, as far as they come from the network of
	// the address: see control.go.
	API []netip.AddrPort
	// Now is the time, by which certificates are judged, or zero if it is unknown.
	Now time.Time
	// IPsec is the engine that handles IPsec packets in the pod.
	IPsec dataplane.Engine
	// Left are the connections of IPsec that have just left the configuration, as they were,
	// without secrets. Packets for their networks are dropped: a connection that is created again
	// at once, or changed, has nothing sent in clear meanwhile.
	Left []rest.Remote
	// Resolved has the IPv4 addresses of Service.FullName, as far as they are known.
	Resolved map[string]netip.Addr
}

// Interface is a network of the pod.
type Interface struct {
	// Name is the name in REST objects: the name of its device.
	Name   string
	Device string
	// Gateway is the next hop of its default route. Without one, it is no uplink.
	Gateway netip.Addr
	// AddrsUnknown specifies that World.Addrs lacks the addresses of the device, because the plan
	// is made outside the pod. The gateway counts as reachable.
	AddrsUnknown bool
	// Up reports that the device exists, is up and has a carrier.
	Up bool
	// Online reports that policies may choose it: it is Up, and the hosts by which it is tracked
	// answer.
	Online bool
	// Quality is what the pings of it measure.
	Quality Quality
}

// Quality is how well an uplink carries packets. What is not known is 0. It is the worst of the
// last rounds of pings, so that an uplink that has exceeded a limit is good again only after
// several rounds within it.
type Quality struct {
	Loss            float64 // percent
	Latency, Jitter time.Duration
}

// Exceeds reports whether a Quality is worse than a member of a policy allows.
func (q Quality) Exceeds(m rest.Member) bool {
	over := func(value float64, limit string) bool {
		most, err := strconv.ParseFloat(limit, 64)
		return err == nil && value > most
	}
	milliseconds := func(d time.Duration) float64 { return d.Seconds() * 1000 }
	return over(q.Loss, m.MaxLoss) || over(milliseconds(q.Latency), m.MaxLatency) ||
		over(milliseconds(q.Jitter), m.MaxJitter)
}

// Addr is an address of a device.
type Addr struct {
	Device string
	Prefix netip.Prefix // with the host's bits
}

// MainRoute is a route of the main table to a network.
type MainRoute struct {
	Dst    netip.Prefix
	Via    netip.Addr // the zero Addr if there is no router
	Device string
	Src    netip.Addr // the source address that it prefers, or the zero Addr
}

// safeDevice matches the names of devices that can be in a rule: Linux accepts quotes and wildcards
// in names, too.
var safeDevice = regexp.MustCompile(`^[A-Za-z0-9@._-]{1,15}$`)

// safe removes devices with other names from the World. The others keep their numbers.
func (p *plan) safe() {
	p.world.Interfaces = slices.Clone(p.world.Interfaces)
	for i, f := range p.world.Interfaces {
		if !safeDevice.MatchString(f.Device) {
			p.report = append(
				p.report,
				Line{
					Collection: "interface",
					Name:       f.Name,
					Message:    "the name of its device has characters other than letters, digits, '@', '.', '_' and '-': rename it",
				},
			)
			p.world.Interfaces[i] = Interface{}
		}
	}
	p.world.Addrs = slices.DeleteFunc(slices.Clone(p.world.Addrs),
		func(a Addr) bool { return !safeDevice.MatchString(a.Device) })
	p.world.Routes = slices.DeleteFunc(slices.Clone(p.world.Routes),
		func(r MainRoute) bool { return !safeDevice.MatchString(r.Device) })
}

// uplink is an Interface with a gateway, and its number.
type uplink struct {
	Interface
	number int
}

// uplinks returns the interfaces that have a gateway, as far as marks can tell them apart.
func (w World) uplinks() (out []uplink) {
	for i, f := range w.Interfaces {
		if f.Gateway.Is4() && i < maxUplinks {
			out = append(out, uplink{f, i + 1})
		}
	}
	return out
}

// network returns the Interface with a name.
func (w World) network(name string) (Interface, bool) {
	i := slices.IndexFunc(w.Interfaces, func(f Interface) bool { return f.Name == name && f.Device != "" })
	if i < 0 {
		return Interface{}, false
	}
	return w.Interfaces[i], true
}

// owner returns the device that has an address, or "".
func (w World) owner(ip netip.Addr) string {
	for _, a := range w.Addrs {
		if a.Prefix.Addr() == ip {
			return a.Device
		}
	}
	return ""
}

// hasDevice reports whether the pod has a device, as far as can be seen.
func (w World) hasDevice(name string) bool {
	return slices.ContainsFunc(w.Addrs, func(a Addr) bool { return a.Device == name }) ||
		slices.ContainsFunc(w.Interfaces, func(f Interface) bool { return f.Device == name })
}
