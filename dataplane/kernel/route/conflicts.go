//go:build linux

package route

import (
	"fmt"
	"net/netip"
	"slices"

	"subctl/dataplane"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// maxConflicts is the maximum number of conflicts of one kind that are described.
const maxConflicts = 10

// Conflicts describes what other programs do that keeps packets from the owner's routes, as far as
// the last lists of routes and rules show it.
func (r *Routing) Conflicts() []string {
	return slices.Concat(r.conflicts[dataplane.KindRoute], r.conflicts[dataplane.KindRule])
}

// foreignRoute notes a route of another program in a table of the owner.
func (s routes) foreignRoute(table uint32, dst netip.Prefix, msg *nl.RtMsg) {
	if s.owner.Main || !s.owner.Tables.Has(table) || len(s.conflicts[dataplane.KindRoute]) >= maxConflicts {
		return
	}
	kind := ""
	if msg.Type != unix.RTN_UNICAST {
		kind = routeTypes[msg.Type] + " "
	}
	s.conflicts[dataplane.KindRoute] = append(s.conflicts[dataplane.KindRoute],
		fmt.Sprintf("another program (protocol %d) has the route %v in table %d, which packets between clusters use: "+
			"configure that program to use another table, and remove the route with: ip route del %s%[2]v table "+
			"%[3]d proto %[1]d", msg.Protocol, dst, table, kind))
}

// routeTypes has the names of ip-route(8) for types of routes.
var routeTypes = map[uint8]string{
	unix.RTN_LOCAL: "local", unix.RTN_BROADCAST: "broadcast", unix.RTN_BLACKHOLE: "blackhole",
	unix.RTN_UNREACHABLE: "unreachable", unix.RTN_PROHIBIT: "prohibit", unix.RTN_THROW: "throw",
}

// foreignRules describes the rules of other programs that keep packets from the owner's, or compete
// with them.
func foreignRules(owner dataplane.Owner, every []rule) (out []string) {
	if owner.Main {
		return nil // a CNF has its network namespace for itself
	}
	priorities := map[int]bool{}
	last := -1
	var marks []rule
	for _, r := range every {
		if r.protocol != owner.Protocol {
			continue
		}
		priorities[r.priority] = true
		last = max(last, r.priority)
		if r.mask == dataplane.ReturnMask && r.table > dataplane.ReturnTable {
			marks = append(marks, r)
		}
	}
	for _, r := range every {
		if anybodys(func(o dataplane.Owner) bool { return o.Protocol == r.protocol }) ||
			r.table == unix.RT_TABLE_LOCAL || len(out) == maxConflicts {
			continue // Cilium moves the rule for "local" to priority 100
		}
		marked := slices.IndexFunc(marks, r.competes)
		switch {
		case r.priority <= last && r.matchesAll():
			out = append(out, fmt.Sprintf("the rule of another program (%v) comes before ours with priority %d, and "+
				"concerns all packets: give it a priority above %[2]d", r, last))
		case priorities[r.priority]:
			out = append(out, fmt.Sprintf("the rule of another program (%v) has the same priority as ours: which one "+
				"comes first depends on which was added first. Give it another priority", r))
		case marked >= 0:
			out = append(out, fmt.Sprintf("the rule of another program (%v) selects the same packets as ours (%v): "+
				"let that program use a mark without the bits %#x", r, marks[marked], dataplane.ReturnMask))
		}
	}
	return out
}

// competes reports whether the packets that one of two rules is meant for, by their mark, are
// selected by the other one, too, which comes first.
func (r rule) competes(ours rule) bool {
	if r.mask == 0 {
		return false
	}
	if r.priority < ours.priority {
		return ours.mark&r.mask == r.mark // our packets may have no other bits
	}
	return r.mark&ours.mask == ours.mark
}

// matchesAll reports whether a rule concerns all packets, and its table may have a default route.
func (r rule) matchesAll() bool {
	return r.dev == "" && r.mask == 0 && !r.not && !r.src.IsValid() && !r.dst.IsValid() && !r.specific && !r.odd
}
