//go:build linux

package route

import (
	"slices"
	"syscall"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Matters reports whether a message of the kernel is about a route, a rule or a next hop that an
// owner has, or that another program has where an owner has its own.
func Matters(m syscall.NetlinkMessage) bool {
	switch m.Header.Type {
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return routeMatters(m.Data)
	case unix.RTM_NEWRULE, unix.RTM_DELRULE:
		if len(m.Data) < unix.SizeofRtMsg {
			return false
		}
		r := parseRule(m.Data)
		return anybodys(func(o dataplane.Owner) bool {
			return r.protocol == o.Protocol || o.Priorities.Has(uint32(r.priority)) // of others: see Conflicts
		})
	case unix.RTM_NEWNEXTHOP, unix.RTM_DELNEXTHOP: // but not messages about single buckets
		n, ok := netlink.Number(m.Data, unix.SizeofNhmsg, unix.NHA_ID)
		return ok && anybodys(func(o dataplane.Owner) bool { return m.Data[2] == o.Protocol || o.IDs.Has(n) })
	}
	return false
}

// routeMatters reports whether a route is in an owner's table, or is the default route,
// which dataplane.Facts describes.
func routeMatters(b []byte) bool {
	if len(b) < unix.SizeofRtMsg {
		return false
	}
	msg := nl.DeserializeRtMsg(b)
	table, ok := netlink.Number(b, unix.SizeofRtMsg, unix.RTA_TABLE)
	if !ok {
		table = uint32(msg.Table)
	}
	return table == unix.RT_TABLE_MAIN && msg.Dst_len == 0 ||
		anybodys(func(o dataplane.Owner) bool {
			return !o.Main && (o.Tables.Has(table) || o.Former.Has(table) && msg.Protocol == o.Protocol)
		}) // see WatchNetwork for the others
}

func anybodys(has func(dataplane.Owner) bool) bool {
	return slices.ContainsFunc(dataplane.Owners(), has)
}
