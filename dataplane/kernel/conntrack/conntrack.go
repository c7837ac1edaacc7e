//go:build linux

// Package conntrack reads and changes the connection tracking of a network namespace: it counts and
// lists connections, ends or marks those that a change of rules concerns, and lets translated TCP
// connections come back from another gateway. It holds no objects of a plan.
package conntrack

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"
	"subctl/internal/prefix"

	"golang.org/x/sys/unix"
)

// Table is the connection tracking of one network namespace.
type Table struct {
	conn *netlink.Conn
	// tracking is a socket of its own for Flows: a request waits until the one before it on the
	// same socket has ended, and to read all conntrack entries can take seconds.
	tracking *netlink.Conn

	// EndMatching deletes the entries whose two directions match. Tests replace it.
	EndMatching func(match func(original, reply dataplane.Flow) bool) error
}

// New returns the connection tracking of the calling thread's network namespace, to which conn
// belongs, too.
func New(conn *netlink.Conn) (*Table, error) {
	tracking, err := netlink.DialNetfilter()
	if err != nil {
		return nil, err
	}
	t := &Table{conn: conn, tracking: tracking}
	t.EndMatching = t.endMatching
	return t, nil
}

// Close closes the socket that is the table's own.
func (t *Table) Close() { t.tracking.Close() }

// From linux/netfilter/nfnetlink_conntrack.h, which x/sys/unix does not have.
const (
	ctNew    = 0 // IPCTNL_MSG_CT_NEW
	ctGet    = 1 // IPCTNL_MSG_CT_GET
	ctDelete = 2 // IPCTNL_MSG_CT_DELETE

	ctaTupleOrig  = 1
	ctaTupleReply = 2
	ctaProtoInfo  = 4
	ctaTimeout    = 7 // seconds, 32 bits
	ctaMark       = 8
	ctaID         = 12
	ctaZone       = 18
	ctaMarkMask   = 21

	ctaTupleIP    = 1
	ctaTupleProto = 2

	ctaSrc = 1 // CTA_IP_V4_SRC
	ctaDst = 2 // CTA_IP_V4_DST

	ctaProtoNum     = 1
	ctaProtoSrcPort = 2
	ctaProtoDstPort = 3

	ctaProtoInfoTCP              = 1
	ctaProtoInfoTCPState         = 1
	ctaProtoInfoTCPFlagsOriginal = 4
	ctaProtoInfoTCPFlagsReply    = 5

	tcpLiberal = 0x08 // IP_CT_TCP_FLAG_BE_LIBERAL, linux/netfilter/nf_conntrack_tcp.h
)

// mostChanged bounds the memory for entries that are about to be changed: whoever can send packets
// decides how many there are.
const mostChanged = 10000

// changeEntries sends a message about each conntrack entry that a dump lists, unless it is nil: an
// entry whose message has been sent has none in the next dump. It keeps no other entry in memory.
func changeEntries(conn *netlink.Conn, typ int, dump []byte, message func(entry []byte) []byte) error {
	for pass, passes := 0, 1; pass < passes; pass++ { // there may be new ones all the time
		var found [][]byte
		n := 0
		err := conn.Each(unix.NFNL_SUBSYS_CTNETLINK<<8|ctGet, dump, func(entry []byte) {
			if len(entry) < unix.SizeofNlAttr {
				return
			}
			m := message(entry)
			if m == nil {
				return
			}
			if n++; len(found) < mostChanged {
				found = append(found, m)
			}
		})
		if err != nil {
			return err
		}
		if pass == 0 {
			passes = (n + mostChanged - 1) / mostChanged
		}
		if err := sendChanges(conn, typ, found); err != nil {
			return err
		}
	}
	return nil
}

// sendChanges sends messages about conntrack entries. An entry may be gone.
func sendChanges(conn *netlink.Conn, typ int, messages [][]byte) error {
	for _, m := range messages {
		if _, err := conn.Request(unix.NETLINK_NETFILTER, unix.NFNL_SUBSYS_CTNETLINK<<8|typ, unix.NLM_F_ACK,
			m); err != nil &&
			!netlink.Gone(err) {
			return err
		}
	}
	return nil
}

// sameEntry returns a message about an entry, without its type: as it is, it deletes the entry.
func sameEntry(entry []byte) []byte {
	out := netlink.NetfilterHeader(unix.AF_INET)
	for typ, v := range netlink.Attrs(entry[unix.SizeofNlAttr:]) {
		switch typ {
		case ctaTupleOrig:
			out = netlink.PutAttr(out, typ|unix.NLA_F_NESTED, v)
		case ctaID, ctaZone:
			out = netlink.PutAttr(out, typ, v)
		}
	}
	return out
}

// direct returns a function that reports whether a connection from one of some networks did not
// come through a cable, as its destination is in none of the networks that other clusters reach:
// see dataplane.DirectConnections.
func direct(from, announced []netip.Prefix) func(original dataplane.Flow) bool {
	for _, d := range dataplane.DeviceNets {
		announced = append(slices.Clip(announced), d.Net)
	}
	remote := prefix.ContainsFunc(from)
	reached := prefix.ContainsFunc(announced)
	return func(original dataplane.Flow) bool {
		return remote(original.Src.Addr()) && !reached(original.Dst.Addr())
	}
}

// MarkDirect gives direct connections from some networks that exist dataplane.DirectMark: the rules
// about new ones do not see them.
func (t *Table) MarkDirect(from, announced []netip.Prefix) error {
	if len(from) == 0 || len(announced) == 0 {
		return nil
	}
	isDirect := direct(from, announced)
	err := changeEntries(t.conn, ctNew, netlink.NetfilterHeader(unix.AF_INET), func(entry []byte) []byte {
		original, _ := entryFlows(entry)
		if connectionMark(entry)&dataplane.ReturnMask != 0 || !isDirect(original) {
			return nil
		}
		return putMark(sameEntry(entry), dataplane.DirectMark, dataplane.ReturnMask)
	})
	if err != nil {
		return fmt.Errorf("marking connections that did not come through a cable: %w", err)
	}
	return nil
}

// entryFlows returns both directions of an entry.
func entryFlows(entry []byte) (original, reply dataplane.Flow) {
	for typ, v := range netlink.Attrs(entry[unix.SizeofNlAttr:]) {
		switch typ {
		case ctaTupleOrig:
			original, _ = parseTuple(v)
		case ctaTupleReply:
			reply, _ = parseTuple(v)
		}
	}
	return original, reply
}

// EndNetworks deletes the conntrack entries of connections from or to addresses in some networks,
// except those that go on beside the cables: from there to networks other than announced, if these
// are known. Then an established connection is a new one, which is subject to all rules, and to no
// translation of before.
func (t *Table) EndNetworks(nets, announced []netip.Prefix) error {
	if len(nets) == 0 {
		return nil
	}
	ended := prefix.ContainsFunc(nets)
	goesOn := direct(nets, announced)
	err := t.EndMatching(func(original, reply dataplane.Flow) bool {
		if len(announced) > 0 && goesOn(original) {
			return false
		}
		return ended(original.Src.Addr()) || ended(original.Dst.Addr()) || ended(reply.Src.Addr()) ||
			ended(reply.Dst.Addr())
	})
	if err != nil {
		return fmt.Errorf("deleting the conntrack entries of %v: %w", nets, err)
	}
	return nil
}

// endMatching deletes the entries whose two directions match.
func (t *Table) endMatching(match func(original, reply dataplane.Flow) bool) error {
	return changeEntries(t.conn, ctDelete, netlink.NetfilterHeader(unix.AF_INET), func(entry []byte) []byte {
		if !match(entryFlows(entry)) {
			return nil
		}
		return sameEntry(entry)
	})
}

// MarkConnections sets bits in the marks of the IPv4 connections of the calling thread's network
// namespace that have other ones.
func MarkConnections(having, set uint32) error {
	conn, err := netlink.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	dump := putMark(netlink.NetfilterHeader(unix.AF_INET), having, having)
	err = changeEntries(conn, ctNew, dump, func(entry []byte) []byte {
		if mark := connectionMark(entry); mark&having != having || mark&set == set {
			return nil
		}
		return putMark(sameEntry(entry), set, set)
	})
	if err != nil {
		return fmt.Errorf("marking conntrack entries: %w", err)
	}
	return nil
}

// EndConnections deletes the conntrack entries of the IPv4 connections of the calling thread's
// network namespace whose first packet matches.
func EndConnections(match func(first dataplane.Flow) bool) error {
	conn, err := netlink.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	err = changeEntries(conn, ctDelete, netlink.NetfilterHeader(unix.AF_INET), func(entry []byte) []byte {
		if first, _ := entryFlows(entry); !match(first) {
			return nil
		}
		return sameEntry(entry)
	})
	if err != nil {
		return fmt.Errorf("ending connections: %w", err)
	}
	return nil
}

// putMark appends the bits of a mark that a dump selects, or a change sets, in a mask.
func putMark(b []byte, bits, mask uint32) []byte {
	b = netlink.PutAttr(b, ctaMark, binary.BigEndian.AppendUint32(nil, bits))
	return netlink.PutAttr(b, ctaMarkMask, binary.BigEndian.AppendUint32(nil, mask))
}

// connectionMark returns the mark of an entry.
func connectionMark(entry []byte) uint32 {
	for typ, v := range netlink.Attrs(entry[unix.SizeofNlAttr:]) {
		if typ == ctaMark && len(v) == 4 {
			return binary.BigEndian.Uint32(v)
		}
	}
	return 0
}
