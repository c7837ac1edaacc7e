//go:build linux

package kernel

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

// routes are the IPv4 routes in the owner's tables with the owner's protocol number. A route
// of another protocol in such a table belongs to another program: it is neither observed
// nor removed, and if a plan has a route to the same destination, put returns an error.
type routes struct{ *Host }

const rtaNHID = 30 // RTA_NH_ID, linux/rtnetlink.h

func (s routes) list() (out []dataplane.Object, err error) {
	for table := s.owner.Tables.Min; table <= s.owner.Tables.Max; table++ {
		seen := map[netip.Prefix]int{}
		err := s.each(table, func(_ []byte, o dataplane.Object) {
			if r, is := o.(dataplane.Route); is {
				if i, twice := seen[r.Dst]; twice {
					r.Group = 0
					out[i] = r
					return
				}
				seen[r.Dst] = len(out)
			}
			out = append(out, o)
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// each calls f for each route of ours in a table: a Route, a Blackhole or a Throw. A route with
// settings that a plan cannot express (a metric, a device instead of a group) has group 0.
func (s routes) each(table uint32, f func(msg []byte, o dataplane.Object)) error {
	q := rtmsg(unix.AF_INET)
	q.Protocol = s.owner.Protocol
	msgs, err := s.conn.Dump(unix.NETLINK_ROUTE, unix.RTM_GETROUTE, netlink.PutU32(q.Serialize(), unix.RTA_TABLE, table))
	if netlink.Gone(err) {
		return nil // a table without routes does not exist
	}
	if err != nil {
		return fmt.Errorf("listing routes of table %d: %w", table, err)
	}
	for _, m := range msgs {
		msg := nl.DeserializeRtMsg(m)
		r := dataplane.Route{Table: int(msg.Table)}
		dst, odd, metric := netip.IPv4Unspecified(), msg.Type != unix.RTN_UNICAST || msg.Tos != 0, uint32(0)
		for t, v := range netlink.Attrs(m[msg.Len():]) {
			switch t {
			case unix.RTA_TABLE:
				r.Table = int(netlink.U32(v))
			case unix.RTA_DST:
				dst = netlink.Addr(v)
			case unix.RTA_PREFSRC:
				r.Src = netlink.Addr(v)
			case unix.RTA_PRIORITY:
				odd, metric = true, netlink.U32(v)
			case unix.RTA_METRICS:
				for metric, v := range netlink.Attrs(v) {
					if metric == unix.RTAX_MTU {
						r.MTU = int(netlink.U32(v))
					}
				}
			case rtaNHID:
				r.Group = netlink.U32(v)
			}
		}
		if uint32(r.Table) != table || msg.Protocol != s.owner.Protocol || msg.Flags&unix.RTM_F_CLONED != 0 {
			continue // the kernel does not filter
		}
		if odd {
			r.Group = 0
		}
		r.Dst = netip.PrefixFrom(dst, int(msg.Dst_len))
		if msg.Type == unix.RTN_BLACKHOLE && metric == dataplane.BlackholeMetric && msg.Tos == 0 {
			f(m, dataplane.Blackhole{Table: r.Table, Dst: r.Dst})
			continue
		}
		if msg.Type == unix.RTN_THROW && metric == 0 && msg.Tos == 0 {
			f(m, dataplane.Throw{Table: r.Table, Dst: r.Dst})
			continue
		}
		f(m, r)
	}
	return nil
}

func (s routes) put(old, want dataplane.Object) error {
	if m := s.nowhere(want); m != nil {
		if err := s.conn.Change(unix.RTM_NEWROUTE, netlink.Create, m); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("adding route (%v): %w", want, err)
		}
		return nil
	}
	r := want.(dataplane.Route)
	flags := netlink.Create
	if o, ok := old.(dataplane.Route); ok && o.Group != 0 {
		flags = netlink.Replace
	} else if ok {
		if err := s.clear(o); err != nil {
			return err
		}
	}
	err := s.conn.Change(unix.RTM_NEWROUTE, flags, s.message(r))
	if errors.Is(err, unix.EEXIST) {
		err = fmt.Errorf("there is a route of another program: %w", err)
	}
	if err != nil {
		return fmt.Errorf("adding route %v table %d: %w", r.Dst, r.Table, err)
	}
	return nil
}

func (s routes) del(old dataplane.Object) error {
	if m := s.nowhere(old); m != nil {
		if err := netlink.OrGone(s.conn.Change(unix.RTM_DELROUTE, 0, m)); err != nil {
			return fmt.Errorf("removing route (%v): %w", old, err)
		}
		return nil
	}
	r := old.(dataplane.Route)
	if r.Group == 0 {
		return s.clear(r)
	}
	// The kernel does not look for a route whose group is gone: leave the group out.
	if err := netlink.OrGone(s.conn.Change(unix.RTM_DELROUTE, 0, identity(s.message(r)))); err != nil {
		return fmt.Errorf("removing route %v table %d: %w", r.Dst, r.Table, err)
	}
	return nil
}

// clear removes all routes of ours to one destination, whatever their settings.
func (s routes) clear(r dataplane.Route) error {
	var errs []error
	err := s.each(uint32(r.Table), func(m []byte, o dataplane.Object) {
		if have, is := o.(dataplane.Route); is && have.Dst == r.Dst {
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
		dst, table, typ, metric = o.Dst, o.Table, unix.RTN_BLACKHOLE, dataplane.BlackholeMetric
	case dataplane.Throw:
		dst, table, typ = o.Dst, o.Table, unix.RTN_THROW
	default:
		return nil
	}
	msg := rtmsg(netlink.Family(dst.Addr()))
	msg.Dst_len, msg.Protocol, msg.Type = uint8(dst.Bits()), s.owner.Protocol, typ
	b := netlink.PutU32(msg.Serialize(), unix.RTA_TABLE, uint32(table))
	b = netlink.PutAttr(b, unix.RTA_DST, dst.Addr().AsSlice())
	if metric != 0 {
		b = netlink.PutU32(b, unix.RTA_PRIORITY, uint32(metric))
	}
	return b
}

func (s routes) message(r dataplane.Route) []byte {
	msg := rtmsg(netlink.Family(r.Dst.Addr()))
	msg.Dst_len, msg.Protocol, msg.Type = uint8(r.Dst.Bits()), s.owner.Protocol, unix.RTN_UNICAST
	b := netlink.PutU32(msg.Serialize(), unix.RTA_TABLE, uint32(r.Table)) // the header has room for 8 bits
	b = netlink.PutAttr(b, unix.RTA_DST, r.Dst.Addr().AsSlice())
	b = netlink.PutU32(b, rtaNHID, r.Group)
	if r.Src.IsValid() {
		b = netlink.PutAttr(b, unix.RTA_PREFSRC, r.Src.AsSlice())
	}
	if r.MTU != 0 {
		b = netlink.PutAttr(b, unix.RTA_METRICS|unix.NLA_F_NESTED, netlink.PutU32(nil, unix.RTAX_MTU, uint32(r.MTU)))
	}
	return b
}

func rtmsg(family uint8) *nl.RtMsg {
	return &nl.RtMsg{RtMsg: unix.RtMsg{Family: family}}
}
