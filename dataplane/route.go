package dataplane

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Nexthop is a single next hop. Via is the zero Addr on devices that know by
// themselves whom a packet is for.
type Nexthop struct {
	ID  uint32
	Via netip.Addr
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
// with its next hop when others come and go.
type Group struct {
	ID      uint32
	Members []Member
	Buckets int           // resilient groups: how many buckets flows are hashed to
	Idle    time.Duration // resilient groups: after how long without traffic a bucket may move
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
	return ok && g.ID == other.ID && g.Buckets == other.Buckets && g.Idle == other.Idle && slices.Equal(g.Members, other.Members)
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

// Route sends Dst, looked up in Table, to a next hop group. Src is the address
// that the node's own processes send from; the zero Addr leaves it to the kernel.
// MTU is that of the way, in bytes; 0 leaves it to the device.
type Route struct {
	Table int
	Dst   netip.Prefix
	Group uint32
	Src   netip.Addr
	MTU   int
}

// Key implements Object.
func (r Route) Key() Key { return Key{KindRoute, routeKey(r.Table, r.Dst)} }

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

// BlackholeMetric is the metric of Blackholes: any Route comes first.
const BlackholeMetric = 1 << 30

// Blackhole drops what is for Dst and is looked up in Table while no Route is there
// for it: when a cable's device goes, the kernel takes its routes along, and packets
// must not leave by another way, in clear.
type Blackhole struct {
	Table int
	Dst   netip.Prefix
}

// Key implements Object.
func (b Blackhole) Key() Key { return Key{KindRoute, routeKey(b.Table, b.Dst) + " blackhole"} }

// Needs implements Object.
func (Blackhole) Needs() []Key { return nil }

// Equal implements Object.
func (b Blackhole) Equal(o Object) bool { return o == b }

// String implements Object.
func (b Blackhole) String() string {
	return fmt.Sprintf("ip route replace blackhole %v table %d metric %d", b.Dst, b.Table, BlackholeMetric)
}

// Rule looks packets up in Table. IIF restricts it to packets that come in on a
// device (which need not exist); empty means all packets. The kernel has no way
// to replace a rule: it is removed and added.
type Rule struct {
	Priority int
	IIF      string
	Table    int
}

// Key implements Object.
func (r Rule) Key() Key { return Key{KindRule, fmt.Sprintf("%05d %s", r.Priority, r.IIF)} }

// Needs implements Object.
func (Rule) Needs() []Key { return nil }

// Equal implements Object.
func (r Rule) Equal(o Object) bool { return o == r }

// String implements Object.
func (r Rule) String() string {
	if r.IIF != "" {
		return fmt.Sprintf("ip rule add pref %d iif %s lookup %d", r.Priority, r.IIF, r.Table)
	}
	return fmt.Sprintf("ip rule add pref %d lookup %d", r.Priority, r.Table)
}

// digits is a number with zeros in front, so that keys are sorted as their numbers are.
// Keys are made by the thousand at every plan, which fmt would double the time of.
func digits(n uint32) string {
	s := strconv.FormatUint(uint64(n), 10)
	return "0000000000"[len(s):] + s
}

func routeKey(table int, dst netip.Prefix) string { return strconv.Itoa(table) + " " + dst.String() }
