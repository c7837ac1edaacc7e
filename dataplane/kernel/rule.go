//go:build linux

package kernel

import (
	"errors"
	"fmt"
	"slices"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// rules are the IPv4 policy rules with a priority of the owner that look up a table of any owner.
type rules struct{ *Host }

// rule is a rule as the kernel reports it. It is odd if it has settings that a plan cannot
// express.
type rule struct {
	priority, table int
	dev             string // only packets that arrive on it; empty for all
	mark, mask      uint32 // only packets with these bits in the mark
	odd             bool
	msg             []byte
}

// object returns the rule as a plan has it.
func (r rule) object() dataplane.Object {
	switch {
	case r.dev != "":
		return dataplane.Arrival{Priority: r.priority, Dev: r.dev, Table: r.table}
	case r.mask != 0:
		return dataplane.MarkRule{Priority: r.priority, Mark: r.mark, Mask: r.mask, Table: r.table}
	}
	return dataplane.Rule{Priority: r.priority, Table: r.table}
}

// all returns the rules that are ours.
func (s rules) all() (out []rule, err error) {
	msgs, err := s.conn.Dump(unix.NETLINK_ROUTE, unix.RTM_GETRULE, rtmsg(unix.AF_INET).Serialize())
	if err != nil {
		return nil, fmt.Errorf("listing rules: %w", err)
	}
	for _, m := range msgs {
		msg := nl.DeserializeRtMsg(m) // struct fib_rule_hdr has the same layout; its action is Type
		r := rule{msg: m}
		r.table = int(msg.Table)
		r.odd = msg.Type != nl.FR_ACT_TO_TBL || msg.Flags&invert != 0 || msg.Src_len != 0 || msg.Dst_len != 0 || msg.Tos != 0
		for t, v := range netlink.Attrs(m[msg.Len():]) {
			switch t {
			case nl.FRA_PRIORITY:
				r.priority = int(netlink.U32(v))
			case nl.FRA_TABLE:
				r.table = int(netlink.U32(v))
			case nl.FRA_IIFNAME:
				r.dev = netlink.Text(v)
			case nl.FRA_FWMARK:
				r.mark = netlink.U32(v)
			case nl.FRA_FWMASK:
				r.mask = netlink.U32(v)
			case nl.FRA_SUPPRESS_PREFIXLEN, nl.FRA_SUPPRESS_IFGROUP:
				r.odd = r.odd || int32(netlink.U32(v)) != -1 // -1 is "off"
			case nl.FRA_PROTOCOL, nl.FRA_PAD:
			default:
				r.odd = true
			}
		}
		r.odd = r.odd || r.mask != 0 && (r.mark == 0 || r.dev != "")
		if s.owner.Priorities.Has(uint32(r.priority)) && anybodys(func(o dataplane.Owner) bool { return o.Tables.Has(uint32(r.table)) }) {
			out = append(out, r)
		}
	}
	return out, nil
}

const invert = 2 // FIB_RULE_INVERT, linux/fib_rules.h

func (s rules) list() (out []dataplane.Object, err error) {
	all, err := s.all()
	if err != nil {
		return nil, err
	}
	at := map[dataplane.Key]int{}
	for _, r := range all {
		key := r.object().Key()
		i, twice := at[key]
		if r.odd || twice {
			r.table = 0
		}
		if twice {
			out[i] = r.object()
			continue
		}
		at[key] = len(out)
		out = append(out, r.object())
	}
	return out, nil
}

// put adds the rule before it removes the old one, so that there is a rule for every packet.
func (s rules) put(old, want dataplane.Object) error {
	var w rule
	switch o := want.(type) {
	case dataplane.Arrival:
		w = rule{priority: o.Priority, table: o.Table, dev: o.Dev}
	case dataplane.MarkRule:
		w = rule{priority: o.Priority, table: o.Table, mark: o.Mark, mask: o.Mask}
	case dataplane.Rule:
		w = rule{priority: o.Priority, table: o.Table}
	}
	b := rtmsg(unix.AF_INET)
	b.Type = nl.FR_ACT_TO_TBL
	m := netlink.PutU32(b.Serialize(), nl.FRA_PRIORITY, uint32(w.priority))
	m = netlink.PutU32(m, nl.FRA_TABLE, uint32(w.table))
	m = netlink.PutAttr(m, nl.FRA_PROTOCOL, []byte{s.owner.Protocol})
	if w.dev != "" {
		m = netlink.PutString(m, nl.FRA_IIFNAME, w.dev)
	}
	if w.mask != 0 {
		m = netlink.PutU32(netlink.PutU32(m, nl.FRA_FWMARK, w.mark), nl.FRA_FWMASK, w.mask)
	}
	// EEXIST: the wanted rule exists.
	if err := s.conn.Change(unix.RTM_NEWRULE, netlink.Create, m); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("adding rule %d to table %d: %w", w.priority, w.table, err)
	}
	if old == nil {
		return nil
	}
	return s.keepOne(want.Key(), want)
}

func (s rules) del(old dataplane.Object) error { return s.keepOne(old.Key(), nil) }

// keepOne removes all rules of ours with a key, except one rule that equals keep.
func (s rules) keepOne(key dataplane.Key, keep dataplane.Object) error {
	all, err := s.all()
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(r rule) bool { return r.object().Key() != key })
	if keep != nil {
		if i := slices.IndexFunc(all, func(r rule) bool { return !r.odd && r.object() == keep }); i >= 0 {
			all = slices.Delete(all, i, i+1)
		}
	}
	var errs []error
	for _, r := range all { // as the kernel sent them: it removes the rule that matches in every attribute
		if err := netlink.OrGone(s.conn.Change(unix.RTM_DELRULE, 0, r.msg)); err != nil {
			errs = append(errs, fmt.Errorf("removing rule %d to table %d: %w", r.priority, r.table, err))
		}
	}
	return errors.Join(errs...)
}
