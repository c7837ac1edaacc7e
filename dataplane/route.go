package dataplane

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Nexthop is a single next hop.
type Nexthop struct {
	ID  uint32
	Via netip.Addr // the zero Addr on devices that choose the peer by the packet's destination
	Dev string
}

// Key implements Object.
func (n Nexthop) Key() Key { return Key{KindNexthop, digits(n.ID)} }

// Needs implements Object.
func (n Nexthop) Needs() []Key { return onDev(n.Dev) }

// Equal implements Object.
func (n Nexthop) Equal(o Object) bool { return o == n }

// String implements Object.
func (n Nexthop) String() string {
	if !n.Via.IsValid() {
		return fmt.Sprintf("ip nexthop replace id %d dev %s", n.ID, n.Dev)
	}
	return fmt.Sprintf("ip nexthop replace id %d via %v dev %s", n.ID, n.Via, n.Dev)
}

// Member is one weighted next hop of a Group.
type Member struct {
	ID     uint32
	Weight int // 1 to 256
}

// Group spreads flows over next hops by weight. Members are sorted by ID.
// The group is resilient if Buckets is not 0 (Linux ≥ 5.13): a flow then stays
// with its next hop when others are added or removed.
type Group struct {
	ID      uint32
	Members []Member
	Buckets int           // resilient groups: the number of buckets that flows are hashed to
	Idle    time.Duration // resilient groups: the time without traffic after which a bucket may move
}

// Key implements Object.
func (g Group) Key() Key { return Key{KindGroup, digits(g.ID)} }

// Needs implements Object.
func (g Group) Needs() (ks []Key) {
	for _, m := range g.Members {
		ks = append(ks, Nexthop{ID: m.ID}.Key())
	}
	return ks
}

// Equal implements Object.
func (g Group) Equal(o Object) bool {
	other, ok := o.(Group)
	return ok && g.ID == other.ID && g.Buckets == other.Buckets && g.Idle == other.Idle &&
		slices.Equal(g.Members, other.Members)
}

// String implements Object.
func (g Group) String() string {
	ms := make([]string, len(g.Members))
	for i, m := range g.Members {
		ms[i] = fmt.Sprintf("%d,%d", m.ID, m.Weight)
	}
	s := fmt.Sprintf("ip nexthop replace id %d group %s", g.ID, strings.Join(ms, "/"))
	if g.Buckets > 0 {
		s += fmt.Sprintf(" type resilient buckets %d idle_timer %g", g.Buckets, g.Idle.Seconds())
	}
	return s
}

// Route sends packets for Dst, if they are looked up in Table, to a next hop group.
type Route struct {
	Table int
	Dst   netip.Prefix
	Group uint32
	Src   netip.Addr // source address of the node's own packets; the zero Addr lets the kernel choose
	MTU   int        // of the path, in bytes; 0 for the MTU of the device
}

// Key implements Object.
func (r Route) Key() Key { return Key{KindRoute, routeKey(r.Table, r.Dst, "")} }

// Needs implements Object.
func (r Route) Needs() []Key { return []Key{Group{ID: r.Group}.Key()} }

// Equal implements Object.
func (r Route) Equal(o Object) bool { return o == r }

// String implements Object.
func (r Route) String() string {
	s := fmt.Sprintf("ip route replace %v table %d nhid %d", r.Dst, r.Table, r.Group)
	if r.Src.IsValid() {
		s += " src " + r.Src.String()
	}
	if r.MTU != 0 {
		s += fmt.Sprintf(" mtu %d", r.MTU)
	}
	return s
}

// BlackholeMetric is the metric of Blackholes: any Route and any Detour is preferred.
const BlackholeMetric = 1 << 30

// DetourMetric is the metric of Detours: any Route is preferred, and a Detour to a Blackhole.
const DetourMetric = 1 << 29

// Detour sends packets for Dst, if they are looked up in Table, to a single next hop while there is
// no Route for Dst. The kernel removes the Route with the device of its cable, such as when the
// program that made the device ends.
type Detour struct {
	Table int
	Dst   netip.Prefix
	Hop   uint32     // ID of the Nexthop
	Src   netip.Addr // as for Route
	MTU   int        // as for Route
}

// Key implements Object.
func (d Detour) Key() Key { return Key{KindRoute, routeKey(d.Table, d.Dst, " detour")} }

// Needs implements Object.
func (d Detour) Needs() []Key { return []Key{Nexthop{ID: d.Hop}.Key()} }

// Equal implements Object.
func (d Detour) Equal(o Object) bool { return o == d }

// String implements Object.
func (d Detour) String() string {
	s := fmt.Sprintf("ip route replace %v table %d metric %d nhid %d", d.Dst, d.Table, DetourMetric, d.Hop)
	if d.Src.IsValid() {
		s += " src " + d.Src.String()
	}
	if d.MTU != 0 {
		s += fmt.Sprintf(" mtu %d", d.MTU)
	}
	return s
}

// Blackhole drops packets for Dst, if they are looked up in Table, while there is no Route and no
// Detour for Dst. When the device of a cable is removed, the kernel removes its routes, too, and
// packets must not leave through another device, in clear.
type Blackhole struct {
	Table int
	Dst   netip.Prefix
}

// Key implements Object.
func (b Blackhole) Key() Key { return Key{KindRoute, routeKey(b.Table, b.Dst, " blackhole")} }

// Needs implements Object.
func (Blackhole) Needs() []Key { return nil }

// Equal implements Object.
func (b Blackhole) Equal(o Object) bool { return o == b }

// String implements Object.
func (b Blackhole) String() string {
	return fmt.Sprintf("ip route replace blackhole %v table %d metric %d", b.Dst, b.Table, BlackholeMetric)
}

// Throw ends the lookup in Table for packets for Dst, as if there was no route: the next rules
// apply.
type Throw struct {
	Table int
	Dst   netip.Prefix
}

// Key implements Object.
func (t Throw) Key() Key { return Key{KindRoute, routeKey(t.Table, t.Dst, " throw")} }

// Needs implements Object.
func (Throw) Needs() []Key { return nil }

// Equal implements Object.
func (t Throw) Equal(o Object) bool { return o == t }

// String implements Object.
func (t Throw) String() string {
	return fmt.Sprintf("ip route replace throw %v table %d", t.Dst, t.Table)
}

// Rule looks packets up in Table. The kernel cannot replace a rule: it is added and the old
// one removed.
type Rule struct {
	Priority, Table int
	// Specific specifies that default routes in Table do not count.
	Specific bool
}

// Key implements Object.
func (r Rule) Key() Key { return Key{KindRule, fmt.Sprintf("%05d", r.Priority)} }

// Needs implements Object.
func (Rule) Needs() []Key { return nil }

// Equal implements Object.
func (r Rule) Equal(o Object) bool { return o == r }

// String implements Object.
func (r Rule) String() string {
	return fmt.Sprintf("ip rule add pref %d lookup %d", r.Priority, r.Table) + specific(r.Specific)
}

// specific returns the end of the command that adds a rule.
func specific(is bool) string {
	if is {
		return " suppress_prefixlength 0"
	}
	return ""
}

// MarkRule looks packets up in Table whose mark has the bits Mark among the bits Mask.
type MarkRule struct {
	Priority   int
	Mark, Mask uint32 // not 0
	Table      int
}

// Key implements Object.
func (r MarkRule) Key() Key {
	return Key{KindRule, fmt.Sprintf("%05d %#x/%#x", r.Priority, r.Mark, r.Mask)}
}

// Needs implements Object.
func (MarkRule) Needs() []Key { return nil }

// Equal implements Object.
func (r MarkRule) Equal(o Object) bool { return o == r }

// String implements Object.
func (r MarkRule) String() string {
	return fmt.Sprintf("ip rule add pref %d fwmark %#x/%#x lookup %d", r.Priority, r.Mark, r.Mask, r.Table)
}

// Arrival is a rule for the packets that arrive on a device, which need not exist: they are looked
// up in Table.
type Arrival struct {
	Priority int
	Dev      string
	Table    int
	Specific bool // as for Rule
}

// Key implements Object.
func (a Arrival) Key() Key { return Key{KindArrival, fmt.Sprintf("%05d %s", a.Priority, a.Dev)} }

// Needs implements Object.
func (Arrival) Needs() []Key { return nil }

// Equal implements Object.
func (a Arrival) Equal(o Object) bool { return o == a }

// String implements Object.
func (a Arrival) String() string {
	return fmt.Sprintf("ip rule add pref %d iif %s lookup %d", a.Priority, a.Dev, a.Table) + specific(a.Specific)
}

// Every plan and every look at the kernel makes thousands of keys. So digits and routeKey
// allocate nothing but the key.

// digits returns a number with leading zeros, so that keys sort like their numbers.
func digits(n uint32) string {
	b := [...]byte{'0', '0', '0', '0', '0', '0', '0', '0', '0', '0'}
	for i := len(b) - 1; n > 0; i, n = i-1, n/10 {
		b[i] += byte(n % 10)
	}
	return string(b[:])
}

func routeKey(table int, dst netip.Prefix, suffix string) string {
	var room [64]byte
	b := strconv.AppendInt(room[:0], int64(table), 10)
	b = dst.AppendTo(append(b, ' '))
	return string(append(b, suffix...))
}
