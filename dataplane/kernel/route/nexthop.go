//go:build linux

package route

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	"golang.org/x/sys/unix"
)

// nexthops are the next hops and groups of next hops with the owner's protocol number. The two
// share the space of IDs. The netlink library v1.3.1 supports neither.
type nexthops struct{ *Routing }

// From linux/nexthop.h, where x/sys/unix has no name for them.
const (
	nhaFDB      = 11 // NHA_FDB
	nhaResGroup = 12 // NHA_RES_GROUP

	resBuckets         = 1 // NHA_RES_GROUP_BUCKETS, 16 bits
	resIdleTimer       = 2 // NHA_RES_GROUP_IDLE_TIMER, in clock ticks
	resUnbalancedTimer = 3 // NHA_RES_GROUP_UNBALANCED_TIMER, in clock ticks

	typeResilient = 1 // NEXTHOP_GRP_TYPE_RES
)

// tick is the unit of timers that the kernel shows to programs: USER_HZ is 100 on
// every architecture that Go knows (include/asm-generic/param.h).
const tick = 10 * time.Millisecond

// idleStep divides every idle time. The kernel counts in jiffies (4 ms where CONFIG_HZ is
// 250), so it does not return every number of ticks unchanged; multiples of idleStep it
// does, with every CONFIG_HZ.
const idleStep = 100 * time.Millisecond

func (nexthops) Kinds() []dataplane.Kind {
	return []dataplane.Kind{dataplane.KindNexthop, dataplane.KindGroup}
}

func (s nexthops) List() (out []dataplane.Object, err error) {
	msgs, err := s.conn.Dump(unix.NETLINK_ROUTE, unix.RTM_GETNEXTHOP, nhmsg(unix.AF_UNSPEC, 0))
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil // Linux before 5.3: none
	}
	if err != nil {
		return nil, fmt.Errorf("listing next hops: %w", err)
	}
	for _, m := range msgs {
		n := parseNexthop(m)
		if n.protocol != s.owner.Protocol {
			continue
		}
		if n.group {
			out = append(out, n.asGroup())
			continue
		}
		hop := dataplane.Nexthop{ID: n.id}
		if !n.odd {
			if hop.Dev, err = s.devices.Name(n.oif); err != nil {
				return nil, fmt.Errorf("finding device of next hop %d: %w", n.id, err)
			}
			hop.Via = netlink.Addr(n.via)
		}
		out = append(out, hop)
	}
	return out, nil
}

// hop is a next hop or group as the kernel reports it. It is odd if it has settings that a
// plan cannot express.
type hop struct {
	id        uint32
	protocol  uint8 // of the program that added it
	oif       int
	via       []byte
	group     bool
	members   []dataplane.Member
	resilient bool
	buckets   int
	idle      time.Duration
	odd       bool
}

func parseNexthop(m []byte) (n hop) {
	n.protocol = m[2]
	for t, v := range netlink.Attrs(m[unix.SizeofNhmsg:]) {
		switch t {
		case unix.NHA_ID:
			n.id = netlink.U32(v)
		case unix.NHA_OIF:
			n.oif = int(netlink.U32(v))
		case unix.NHA_GATEWAY:
			n.via = v
		case unix.NHA_GROUP:
			n.group = true
			for e := range slices.Chunk(v, unix.SizeofNexthopGrp) {
				// struct nexthop_grp: id, weight-1, and since Linux 6.12 its upper 8 bits.
				n.members = append(n.members,
					dataplane.Member{ID: netlink.U32(e), Weight: (int(e[4]) | int(e[5])<<8) + 1})
			}
		case unix.NHA_GROUP_TYPE:
			n.resilient = binary.NativeEndian.Uint16(v) == typeResilient
		case nhaResGroup:
			n.parseResilience(v)
		case unix.NHA_BLACKHOLE, nhaFDB, unix.NHA_ENCAP:
			n.odd = true
		}
	}
	return n
}

func (n *hop) parseResilience(b []byte) {
	for t, v := range netlink.Attrs(b) {
		switch t {
		case resBuckets:
			n.buckets = int(binary.NativeEndian.Uint16(v))
		case resIdleTimer:
			n.idle = time.Duration(netlink.U32(v)) * tick
		case resUnbalancedTimer:
			n.odd = n.odd || netlink.U32(v) != 0
		}
	}
}

func (n hop) asGroup() dataplane.Group {
	if n.odd {
		return dataplane.Group{ID: n.id}
	}
	slices.SortFunc(n.members, func(a, b dataplane.Member) int { return int(int64(a.ID) - int64(b.ID)) })
	return dataplane.Group{ID: n.id, Members: n.members, Buckets: n.buckets, Idle: n.idle}
}

func (s nexthops) Put(_, want dataplane.Object) error {
	var b []byte
	var id uint32
	switch w := want.(type) {
	case dataplane.Nexthop:
		i, err := s.devices.Index(w.Dev)
		if err != nil {
			return fmt.Errorf("adding next hop %d: %w", w.ID, err)
		}
		id = w.ID
		b = netlink.PutU32(nhmsg(netlink.Family(w.Via), s.owner.Protocol), unix.NHA_ID, id)
		b = netlink.PutU32(b, unix.NHA_OIF, uint32(i))
		if w.Via.IsValid() {
			b = netlink.PutAttr(b, unix.NHA_GATEWAY, w.Via.AsSlice())
		}
	case dataplane.Group:
		if err := check(w); err != nil {
			return fmt.Errorf("adding group %d: %w", w.ID, err)
		}
		id = w.ID
		b = s.group(w)
	}
	err := s.conn.Change(unix.RTM_NEWNEXTHOP, netlink.Create, b)
	if errors.Is(err, unix.EEXIST) {
		if err := s.refuseForeign(id); err != nil {
			return err
		}
		err = s.conn.Change(unix.RTM_NEWNEXTHOP, netlink.Replace, b)
	}
	if errors.Is(err, unix.EINVAL) && s.otherType(id, want) {
		// The kernel replaces an object only by an object of the same type: no group by a
		// next hop, no group by a group of another type, and no resilient group by a group
		// with another number of buckets. The next pass restores the routes that used it.
		if err = s.delID(id); err == nil {
			err = s.conn.Change(unix.RTM_NEWNEXTHOP, netlink.Replace, b)
		}
	}
	if err != nil {
		return fmt.Errorf("adding next hop or group %d: %w", id, err)
	}
	return nil
}

// check refuses a group that the kernel would store differently.
func check(g dataplane.Group) error {
	if g.Idle%idleStep != 0 {
		return fmt.Errorf("idle time %v is no multiple of %v", g.Idle, idleStep)
	}
	for _, m := range g.Members {
		if m.Weight < 1 || m.Weight > maxWeight {
			return fmt.Errorf("weight %d of member %d is not in 1 to %d", m.Weight, m.ID, maxWeight)
		}
	}
	return nil
}

// maxWeight is the greatest weight: the weight less one has 8 bits in kernels before 6.12.
const maxWeight = 256

// group returns the message that creates g.
func (s nexthops) group(g dataplane.Group) []byte {
	var ms []byte
	for _, m := range g.Members {
		ms = binary.NativeEndian.AppendUint32(ms, m.ID)
		ms = append(ms, byte(m.Weight-1), 0, 0, 0)
	}
	b := netlink.PutU32(nhmsg(unix.AF_UNSPEC, s.owner.Protocol), unix.NHA_ID, g.ID)
	b = netlink.PutAttr(b, unix.NHA_GROUP, ms)
	if g.Buckets > 0 {
		b = netlink.PutAttr(b, unix.NHA_GROUP_TYPE, binary.NativeEndian.AppendUint16(nil, typeResilient))
		res := netlink.PutAttr(nil, resBuckets, binary.NativeEndian.AppendUint16(nil, uint16(g.Buckets)))
		res = netlink.PutU32(res, resIdleTimer, uint32(g.Idle/tick))
		res = netlink.PutU32(res, resUnbalancedTimer, 0)
		b = netlink.PutAttr(b, nhaResGroup|unix.NLA_F_NESTED, res)
	}
	return b
}

// otherType reports whether the object with an ID cannot be replaced by want.
func (s nexthops) otherType(id uint32, want dataplane.Object) bool {
	msgs, err := s.get(id)
	if err != nil || len(msgs) != 1 {
		return false
	}
	n := parseNexthop(msgs[0])
	g, isGroup := want.(dataplane.Group)
	return n.odd || n.group != isGroup || n.resilient != (g.Buckets > 0) || n.buckets != g.Buckets
}

// foreign returns the protocol of the program that has added the next hop or group with an ID, if
// it is not ours.
func (s nexthops) foreign(id uint32) (protocol uint8, is bool, err error) {
	msgs, err := s.get(id)
	if err != nil {
		return 0, false, netlink.OrGone(err)
	}
	for _, m := range msgs {
		protocol = parseNexthop(m).protocol
		is = is || protocol != s.owner.Protocol
	}
	return protocol, is, nil
}

// refuseForeign returns an error if the next hop or group with an ID belongs to another program.
func (s nexthops) refuseForeign(id uint32) error {
	protocol, is, err := s.foreign(id)
	if err != nil {
		return fmt.Errorf("looking for next hop or group %d: %w", id, err)
	}
	if is {
		return fmt.Errorf("next hop or group %d belongs to another program (protocol %d): configure that program to "+
			"use other IDs, and remove it with: ip nexthop del id %[1]d", id, protocol)
	}
	return nil
}

// get returns the message about the next hop or group with an ID.
func (s nexthops) get(id uint32) ([][]byte, error) {
	return s.conn.Request(unix.NETLINK_ROUTE, unix.RTM_GETNEXTHOP, 0,
		netlink.PutU32(nhmsg(unix.AF_UNSPEC, 0), unix.NHA_ID, id))
}

// gone reports whether there is no next hop or group with an ID.
func (s nexthops) gone(id uint32) bool {
	_, err := s.get(id)
	return netlink.Gone(err)
}

func (s nexthops) Delete(old dataplane.Object) error {
	switch o := old.(type) {
	case dataplane.Nexthop:
		return s.delID(o.ID)
	case dataplane.Group:
		return s.delID(o.ID)
	}
	return nil
}

func (s nexthops) delID(id uint32) error {
	if _, is, err := s.foreign(id); is || err != nil {
		return err // if it is: ours is gone, and another program uses the ID
	}
	err := s.conn.Change(unix.RTM_DELNEXTHOP, 0, netlink.PutU32(nhmsg(unix.AF_UNSPEC, 0), unix.NHA_ID, id))
	if err := netlink.OrGone(err); err != nil {
		return fmt.Errorf("removing next hop or group %d: %w", id, err)
	}
	return nil
}

func nhmsg(family, protocol uint8) []byte {
	return []byte{family, 0, protocol, 0, 0, 0, 0, 0} // family, scope, protocol, reserved, flags
}
