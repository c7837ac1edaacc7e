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

// rules are the IPv4 policy rules whose priority and table are both the owner's.
type rules struct{ *Host }

// rule is a rule as the kernel reports it. It is odd if it has settings that a plan cannot
// express.
type rule struct {
	dataplane.Rule
	odd bool
	msg []byte
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
		r.Table = int(msg.Table)
		r.odd = msg.Type != nl.FR_ACT_TO_TBL || msg.Flags&invert != 0 || msg.Src_len != 0 || msg.Dst_len != 0 || msg.Tos != 0
		for t, v := range netlink.Attrs(m[msg.Len():]) {
			switch t {
			case nl.FRA_PRIORITY:
				r.Priority = int(netlink.U32(v))
			case nl.FRA_TABLE:
				r.Table = int(netlink.U32(v))
			case nl.FRA_IIFNAME:
				r.IIF = netlink.Text(v)
			case nl.FRA_SUPPRESS_PREFIXLEN, nl.FRA_SUPPRESS_IFGROUP:
				r.odd = r.odd || int32(netlink.U32(v)) != -1 // -1 is "off"
			case nl.FRA_PROTOCOL, nl.FRA_PAD:
			default:
				r.odd = true
			}
		}
		if s.owner.Priorities.Has(uint32(r.Priority)) && s.owner.Tables.Has(uint32(r.Table)) {
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
		i, twice := at[r.Key()]
		if r.odd || twice {
			r.Table = 0
		}
		if twice {
			out[i] = r.Rule
			continue
		}
		at[r.Key()] = len(out)
		out = append(out, r.Rule)
	}
	return out, nil
}

// put adds the rule before it removes the old one, so that there is a rule for every packet.
func (s rules) put(old, want dataplane.Object) error {
	w := want.(dataplane.Rule)
	b := rtmsg(unix.AF_INET)
	b.Type = nl.FR_ACT_TO_TBL
	m := netlink.PutU32(b.Serialize(), nl.FRA_PRIORITY, uint32(w.Priority))
	m = netlink.PutU32(m, nl.FRA_TABLE, uint32(w.Table))
	m = netlink.PutAttr(m, nl.FRA_PROTOCOL, []byte{s.owner.Protocol})
	if w.IIF != "" {
		m = netlink.PutString(m, nl.FRA_IIFNAME, w.IIF)
	}
	// EEXIST: the wanted rule exists.
	if err := s.conn.Change(unix.RTM_NEWRULE, netlink.Create, m); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("adding rule %d to table %d: %w", w.Priority, w.Table, err)
	}
	if old == nil {
		return nil
	}
	return s.keepOne(w.Key(), &w)
}

func (s rules) del(old dataplane.Object) error { return s.keepOne(old.Key(), nil) }

// keepOne removes all rules of ours with a key, except one rule that equals keep.
func (s rules) keepOne(key dataplane.Key, keep *dataplane.Rule) error {
	all, err := s.all()
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(r rule) bool { return r.Key() != key })
	if keep != nil {
		if i := slices.IndexFunc(all, func(r rule) bool { return !r.odd && r.Rule == *keep }); i >= 0 {
			all = slices.Delete(all, i, i+1)
		}
	}
	var errs []error
	for _, r := range all { // as the kernel sent them: it removes the rule that matches in every attribute
		if err := netlink.OrGone(s.conn.Change(unix.RTM_DELRULE, 0, r.msg)); err != nil {
			errs = append(errs, fmt.Errorf("removing rule %d to table %d: %w", r.Priority, r.Table, err))
		}
	}
	return errors.Join(errs...)
}
