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

// rules are the IPv4 policy rules with a priority of the owner that look up a table of any owner, or, if the owner has Main, those
// with its protocol number.
type rules struct{ *Host }

// rule is a rule as the kernel reports it. It is odd if it has settings that a plan cannot
// express.
type rule struct {
	priority, table int
	dev             string // only packets that arrive on it; empty for all
	mark, mask      uint32 // only packets with these bits in the mark
	not             bool
	src, dst        netip.Prefix // of packets; the zero Prefix for all
	action          string       // "" if the rule looks up a table
	protocol        uint8        // of the program that added it
	odd             bool
	msg             []byte
}

// object returns the rule as a plan has it.
func (r rule) object() dataplane.Object {
	switch {
	case r.dev != "":
		return dataplane.Arrival{Priority: r.priority, Dev: r.dev, Table: r.table}
	}
	return dataplane.NewRule(dataplane.PolicyRule{
		Priority: r.priority, Not: r.not, Src: r.src, Dst: r.dst, Mark: r.mark, Mask: r.mask, Table: r.table, Action: r.action,
	})
}

// rawRule returns the rule of a plan.
func rawRule(o dataplane.Object) rule {
	switch o := o.(type) {
	case dataplane.Arrival:
		return rule{priority: o.Priority, table: o.Table, dev: o.Dev}
	case dataplane.MarkRule:
		return rule{priority: o.Priority, table: o.Table, mark: o.Mark, mask: o.Mask}
	case dataplane.PolicyRule:
		return rule{priority: o.Priority, table: o.Table, mark: o.Mark, mask: o.Mask, not: o.Not, src: o.Src, dst: o.Dst, action: o.Action}
	case dataplane.Rule:
		return rule{priority: o.Priority, table: o.Table}
	}
	return rule{}
}

// The actions of rules without a table, by their numbers in linux/fib_rules.h.
var ruleActions = map[uint8]string{nl.FR_ACT_BLACKHOLE: dataplane.ActionBlackhole, nl.FR_ACT_UNREACHABLE: dataplane.ActionUnreachable}

// extra reports whether a rule has what only rules of an owner with Main have.
func (r rule) extra() bool {
	return r.not || r.src.IsValid() || r.dst.IsValid() || r.action != ""
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
		r.table, r.not, r.action = int(msg.Table), msg.Flags&invert != 0, ruleActions[msg.Type]
		r.odd = msg.Type != nl.FR_ACT_TO_TBL && r.action == "" || msg.Tos != 0
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
			case nl.FRA_SRC:
				r.src = netip.PrefixFrom(netlink.Addr(v), int(msg.Src_len))
			case nl.FRA_DST:
				r.dst = netip.PrefixFrom(netlink.Addr(v), int(msg.Dst_len))
			case nl.FRA_SUPPRESS_PREFIXLEN, nl.FRA_SUPPRESS_IFGROUP:
				r.odd = r.odd || int32(netlink.U32(v)) != -1 // -1 is "off"
			case nl.FRA_PROTOCOL:
				r.protocol = v[0]
			case nl.FRA_PAD:
			default:
				r.odd = true
			}
		}
		if r.action != "" {
			r.table = 0
		}
		r.odd = r.odd || r.mask != 0 && (r.mark == 0 || r.dev != "") || r.dev != "" && r.extra()
		if s.owner.Main {
			if r.protocol == s.owner.Protocol {
				out = append(out, r)
			}
			continue
		}
		if r.odd = r.odd || r.extra(); r.odd { // the key is without them
			r.not, r.src, r.dst, r.action = false, netip.Prefix{}, netip.Prefix{}, ""
		}
		if s.owner.Priorities.Has(uint32(r.priority)) && anybodys(func(o dataplane.Owner) bool { return !o.Main && o.Tables.Has(uint32(r.table)) }) {
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
	w := rawRule(want)
	b := rtmsg(unix.AF_INET)
	b.Type = nl.FR_ACT_TO_TBL
	for number, action := range ruleActions {
		if action == w.action {
			b.Type = number
		}
	}
	if w.not {
		b.Flags |= invert
	}
	b.Src_len, b.Dst_len = uint8(max(w.src.Bits(), 0)), uint8(max(w.dst.Bits(), 0))
	m := netlink.PutU32(b.Serialize(), nl.FRA_PRIORITY, uint32(w.priority))
	if w.action == "" {
		m = netlink.PutU32(m, nl.FRA_TABLE, uint32(w.table))
	}
	m = netlink.PutAttr(m, nl.FRA_PROTOCOL, []byte{s.owner.Protocol})
	if w.src.IsValid() {
		m = netlink.PutAttr(m, nl.FRA_SRC, w.src.Addr().AsSlice())
	}
	if w.dst.IsValid() {
		m = netlink.PutAttr(m, nl.FRA_DST, w.dst.Addr().AsSlice())
	}
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
