package dataplane

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Hop is a weighted next hop of a Multipath.
type Hop struct {
	Via    netip.Addr // the zero Addr on devices that choose the peer by the packet's destination
	Dev    string
	Weight int // 1 to 256
}

// Multipath is a Route on a kernel without next hop objects (before Linux 5.3), and a route of a
// CNF: it has the next hops itself, sorted by device and address. Flows are spread over them by
// weight. When they change, each route changes, and flows of the others may move, too.
type Multipath struct {
	Table int
	Dst   netip.Prefix
	Hops  []Hop
	Src   netip.Addr // as for Route
	MTU   int        // as for Route
}

// Key implements Object. A Multipath takes the place of a Route.
func (m Multipath) Key() Key { return Key{KindRoute, routeKey(m.Table, m.Dst, "")} }

// Needs implements Object.
func (m Multipath) Needs() (ks []Key) {
	for _, h := range m.Hops {
		ks = append(ks, onDev(h.Dev)...)
	}
	return ks
}

// Equal implements Object.
func (m Multipath) Equal(o Object) bool {
	other, ok := o.(Multipath)
	return ok && m.Table == other.Table && m.Dst == other.Dst && m.Src == other.Src && m.MTU == other.MTU &&
		slices.Equal(m.Hops, other.Hops)
}

// String implements Object.
func (m Multipath) String() string {
	s := fmt.Sprintf("ip route replace %v table %d", m.Dst, m.Table)
	if m.Src.IsValid() {
		s += " src " + m.Src.String()
	}
	if m.MTU != 0 {
		s += fmt.Sprintf(" mtu %d", m.MTU)
	}
	for _, h := range m.Hops {
		if len(m.Hops) > 1 {
			s += " nexthop"
		}
		if h.Via.IsValid() {
			s += " via " + h.Via.String()
		}
		if s += " dev " + h.Dev; len(m.Hops) > 1 {
			s += fmt.Sprintf(" weight %d", h.Weight)
		}
	}
	return s
}

// Compare orders Hops by device, then by address.
func (h Hop) Compare(other Hop) int {
	if c := strings.Compare(h.Dev, other.Dev); c != 0 {
		return c
	}
	return h.Via.Compare(other.Via)
}

// WithoutNexthops returns the State with a Multipath in place of each Route, and without next hops,
// groups and detours.
func (s State) WithoutNexthops() State {
	out := make(State, len(s))
	for k, o := range s {
		switch o := o.(type) {
		case Nexthop, Group, Detour:
		case Route:
			g, _ := s[Group{ID: o.Group}.Key()].(Group) // planned with the route
			out[k] = Multipath{Table: o.Table, Dst: o.Dst, Hops: s.hops(g), Src: o.Src, MTU: o.MTU}
		default:
			out[k] = o
		}
	}
	return out
}

// hops returns the next hops of a group. What leads the same way is one of them: the twins of a
// resilient group do.
func (s State) hops(g Group) (out []Hop) {
	for _, m := range g.Members {
		n, _ := s[Nexthop{ID: m.ID}.Key()].(Nexthop) // planned with the group
		i := slices.IndexFunc(out, func(h Hop) bool { return h.Via == n.Via && h.Dev == n.Dev })
		if i < 0 {
			out = append(out, Hop{Via: n.Via, Dev: n.Dev, Weight: m.Weight})
		}
	}
	if slices.SortFunc(out, Hop.Compare); len(out) == 1 {
		out[0].Weight = 1
	}
	return out
}
