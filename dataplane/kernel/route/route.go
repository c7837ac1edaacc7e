//go:build linux

package route

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// routes are the IPv4 routes in the owner's tables, and in the main table if the owner has Main,
// with the owner's protocol number. A route of another protocol in such a table belongs to another
// program: it is neither observed nor removed, and if a plan has a route to the same destination,
// put returns an error.
type routes struct{ *Routing }

const rtaNHID = 30 // RTA_NH_ID, linux/rtnetlink.h

func (routes) Kinds() []dataplane.Kind { return []dataplane.Kind{dataplane.KindRoute} }

func (s routes) List() (out []dataplane.Object, err error) {
	s.conflicts[dataplane.KindRoute] = nil
	for _, table := range s.tables() {
		seen := map[dataplane.Key]int{}
		err := s.each(table, func(_ []byte, o dataplane.Object) {
			if dst, is := leadsTo(o); is {
				if i, twice := seen[o.Key()]; twice {
					out[i] = dataplane.Route{Table: int(table), Dst: dst}
					return
				}
				seen[o.Key()] = len(out)
			}
			out = append(out, o)
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// tables returns the tables in which the owner has routes, or had some in a version before.
func (s routes) tables() (out []uint32) {
	for _, r := range []dataplane.Range{s.owner.Tables, s.owner.Former} {
		for table := r.Min; table <= r.Max && table > 0; table++ {
			out = append(out, table)
		}
	}
	if s.owner.Main {
		out = append(out, unix.RT_TABLE_MAIN)
	}
	return out
}

// leadsTo returns the destination of a route that leads somewhere.
func leadsTo(o dataplane.Object) (dst netip.Prefix, is bool) {
	switch o := o.(type) {
	case dataplane.Route:
		return o.Dst, true
	case dataplane.Multipath:
		return o.Dst, true
	}
	return netip.Prefix{}, false
}

// each calls f for each route of ours in a table: a Route, a Detour, a Multipath, a Blackhole or a
// Throw. A route with settings that a plan cannot express (such as a metric) is a Route with group
// 0.
func (s routes) each(table uint32, f func(msg []byte, o dataplane.Object)) error {
	q := rtmsg(unix.AF_INET)
	if shared := !s.owner.Tables.Has(table); shared { // else those of others count, too: see Conflicts
		q.Protocol = s.owner.Protocol
	}
	msgs, err := s.conn.Dump(unix.NETLINK_ROUTE, unix.RTM_GETROUTE,
		netlink.PutU32(q.Serialize(), unix.RTA_TABLE, table))
	if netlink.Gone(err) {
		return nil // a table without routes does not exist
	}
	if err != nil {
		return fmt.Errorf("listing routes of table %d: %w", table, err)
	}
	for _, m := range msgs {
		msg := nl.DeserializeRtMsg(m)
		r := dataplane.Route{Table: int(msg.Table)}
		dst := netip.IPv4Unspecified()
		odd := msg.Type != unix.RTN_UNICAST || msg.Tos != 0
		metric := uint32(0)
		var hops []rawHop
		single := rawHop{weight: 1}
		for t, v := range netlink.Attrs(m[msg.Len():]) {
			switch t {
			case unix.RTA_TABLE:
				r.Table = int(netlink.U32(v))
			case unix.RTA_DST:
				dst = netlink.Addr(v)
			case unix.RTA_PREFSRC:
				r.Src = netlink.Addr(v)
			case unix.RTA_PRIORITY:
				odd = true
				metric = netlink.U32(v)
			case unix.RTA_METRICS:
				for metric, v := range netlink.Attrs(v) {
					if metric == unix.RTAX_MTU {
						r.MTU = int(netlink.U32(v))
					}
				}
			case rtaNHID:
				r.Group = netlink.U32(v)
			case unix.RTA_OIF:
				single.index = int(netlink.U32(v))
			case unix.RTA_GATEWAY:
				single.via = netlink.Addr(v)
			case unix.RTA_MULTIPATH:
				hops = rawHops(v)
			}
		}
		if uint32(r.Table) != table || msg.Flags&unix.RTM_F_CLONED != 0 {
			continue // the kernel does not filter
		}
		r.Dst = netip.PrefixFrom(dst, int(msg.Dst_len))
		if msg.Protocol != s.owner.Protocol {
			s.foreignRoute(table, r.Dst, msg)
			continue
		}
		if msg.Type == unix.RTN_UNICAST && metric == dataplane.DetourMetric && msg.Tos == 0 && r.Group != 0 {
			f(m, dataplane.Detour{Table: r.Table, Dst: r.Dst, Hop: r.Group, Src: r.Src, MTU: r.MTU})
			continue
		}
		if odd {
			r.Group = 0
		}
		if msg.Type == unix.RTN_BLACKHOLE && metric == dataplane.BlackholeMetric && msg.Tos == 0 {
			f(m, dataplane.Blackhole{Table: r.Table, Dst: r.Dst})
			continue
		}
		if msg.Type == unix.RTN_THROW && metric == 0 && msg.Tos == 0 {
			f(m, dataplane.Throw{Table: r.Table, Dst: r.Dst})
			continue
		}
		if len(hops) == 0 && single.index != 0 {
			hops = []rawHop{single}
		}
		if odd || r.Group != 0 || len(hops) == 0 {
			f(m, r)
			continue
		}
		multi, err := s.multipath(r, hops)
		if err != nil {
			return err
		}
		f(m, multi)
	}
	return nil
}

func (s routes) Put(old, want dataplane.Object) error {
	if m := s.nowhere(want); m != nil {
		if err := s.conn.Change(unix.RTM_NEWROUTE, netlink.Create, m); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("adding route (%v): %w", want, err)
		}
		return nil
	}
	flags := netlink.Create
	switch o := old.(type) {
	case dataplane.Multipath, dataplane.Detour:
		flags = netlink.Replace
	case dataplane.Route:
		if flags = netlink.Replace; o.Group == 0 {
			flags = netlink.Create
			if err := s.clear(o); err != nil {
				return err
			}
		}
	}
	m, err := s.message(want)
	if err == nil {
		err = s.conn.Change(unix.RTM_NEWROUTE, flags, m)
	}
	if errors.Is(err, unix.EEXIST) {
		err = fmt.Errorf("there is a route of another program: %w", err)
	}
	if err != nil {
		return fmt.Errorf("adding route (%v): %w", want, err)
	}
	return nil
}

func (s routes) Delete(old dataplane.Object) error {
	if m := s.nowhere(old); m != nil {
		if err := netlink.OrGone(s.conn.Change(unix.RTM_DELROUTE, 0, m)); err != nil {
			return fmt.Errorf("removing route (%v): %w", old, err)
		}
		return nil
	}
	var m []byte
	hop := uint32(0)
	switch o := old.(type) {
	case dataplane.Route:
		if o.Group == 0 {
			return s.clear(o)
		}
		m = s.to(o.Table, o.Dst)
		hop = o.Group
	case dataplane.Detour:
		m = s.detourTo(o)
		hop = o.Hop
	case dataplane.Multipath:
		m = s.to(o.Table, o.Dst)         // without the devices, which may be gone
		const scope = 6                  // its place in struct rtmsg
		m[scope] = unix.RT_SCOPE_NOWHERE // any: ip-route(8) gives routes without a router the scope "link"
	}
	if hop != 0 {
		// Metric 0 stands for any metric here: without the group, the message for a Route that is
		// gone would remove the Detour.
		m = netlink.PutU32(m, rtaNHID, hop)
	}
	err := netlink.OrGone(s.conn.Change(unix.RTM_DELROUTE, 0, m))
	if hop != 0 && err != nil && nexthops(s).gone(hop) {
		return nil // and its routes with it
	}
	if err != nil {
		return fmt.Errorf("removing route (%v): %w", old, err)
	}
	return nil
}

// clear removes all routes of ours to one destination, whatever their settings.
func (s routes) clear(r dataplane.Route) error {
	var errs []error
	err := s.each(uint32(r.Table), func(m []byte, o dataplane.Object) {
		if dst, is := leadsTo(o); is && dst == r.Dst {
			errs = append(errs, netlink.OrGone(s.conn.Change(unix.RTM_DELROUTE, 0, identity(m))))
		}
	})
	if err := errors.Join(append(errs, err)...); err != nil {
		return fmt.Errorf("removing routes %v table %d: %w", r.Dst, r.Table, err)
	}
	return nil
}

// identity returns a message that identifies a route: without the next hops, for which the
// kernel reports attributes that it does not accept.
func identity(m []byte) []byte {
	b := slices.Clone(m[:unix.SizeofRtMsg])
	for t, v := range netlink.Attrs(m[unix.SizeofRtMsg:]) {
		switch t {
		case unix.RTA_TABLE, unix.RTA_DST, unix.RTA_PRIORITY:
			b = netlink.PutAttr(b, t, v)
		}
	}
	return b
}

// nowhere returns the message that adds or removes a Blackhole or a Throw; nil for a Route.
func (s routes) nowhere(o dataplane.Object) []byte {
	var dst netip.Prefix
	var table, metric int
	var typ uint8
	switch o := o.(type) {
	case dataplane.Blackhole:
		dst = o.Dst
		table = o.Table
		typ = unix.RTN_BLACKHOLE
		metric = dataplane.BlackholeMetric
	case dataplane.Throw:
		dst = o.Dst
		table = o.Table
		typ = unix.RTN_THROW
	default:
		return nil
	}
	msg := rtmsg(netlink.Family(dst.Addr()))
	msg.Dst_len = uint8(dst.Bits())
	msg.Protocol = s.owner.Protocol
	msg.Type = typ
	b := netlink.PutU32(msg.Serialize(), unix.RTA_TABLE, uint32(table))
	b = netlink.PutAttr(b, unix.RTA_DST, dst.Addr().AsSlice())
	if metric != 0 {
		b = netlink.PutU32(b, unix.RTA_PRIORITY, uint32(metric))
	}
	return b
}

// to returns the message that identifies the route to a destination.
func (s routes) to(table int, dst netip.Prefix) []byte {
	msg := rtmsg(netlink.Family(dst.Addr()))
	msg.Dst_len = uint8(dst.Bits())
	msg.Protocol = s.owner.Protocol
	msg.Type = unix.RTN_UNICAST
	b := netlink.PutU32(msg.Serialize(), unix.RTA_TABLE, uint32(table)) // the header has room for 8 bits
	return netlink.PutAttr(b, unix.RTA_DST, dst.Addr().AsSlice())
}

// detourTo returns the message that identifies a Detour.
func (s routes) detourTo(d dataplane.Detour) []byte {
	return netlink.PutU32(s.to(d.Table, d.Dst), unix.RTA_PRIORITY, dataplane.DetourMetric)
}

// message returns the message that adds a Route, a Detour or a Multipath. The message always has
// metrics. Without metrics, Linux gives the route the metrics of any route with the same next hop
// object and source, and does not remove the MTU of a route that is replaced (fib_find_info_nh in
// net/ipv4/fib_semantics.c does not compare metrics).
func (s routes) message(o dataplane.Object) (b []byte, err error) {
	var src netip.Addr
	var mtu int
	switch r := o.(type) {
	case dataplane.Route:
		b = netlink.PutU32(s.to(r.Table, r.Dst), rtaNHID, r.Group)
		src = r.Src
		mtu = r.MTU
	case dataplane.Detour:
		b = netlink.PutU32(s.detourTo(r), rtaNHID, r.Hop)
		src = r.Src
		mtu = r.MTU
	case dataplane.Multipath:
		src = r.Src
		mtu = r.MTU
		if b, err = s.putHops(s.to(r.Table, r.Dst), r.Hops); err != nil {
			return nil, err
		}
	}
	if src.IsValid() {
		b = netlink.PutAttr(b, unix.RTA_PREFSRC, src.AsSlice())
	}
	return netlink.PutAttr(b, unix.RTA_METRICS|unix.NLA_F_NESTED, netlink.PutU32(nil, unix.RTAX_MTU, uint32(mtu))), nil
}

func rtmsg(family uint8) *nl.RtMsg {
	return &nl.RtMsg{RtMsg: unix.RtMsg{Family: family}}
}
