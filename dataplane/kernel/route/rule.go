//go:build linux

package route

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"subctl/dataplane"
	"subctl/dataplane/kernel/netlink"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// rules are the IPv4 policy rules with the owner's protocol number, whatever their priorities and
// tables.
type rules struct{ *Routing }

// rule is a rule as the kernel reports it. It is odd if it has settings that a plan cannot
// express.
type rule struct {
	priority, table int
	dev             string // only packets that arrive on it; empty for all
	mark, mask      uint32 // only packets with these bits in the mark
	not             bool
	src, dst        netip.Prefix // of packets; the zero Prefix for all
	action          string       // "" if the rule looks up a table
	specific        bool         // default routes of the table do not count
	protocol        uint8        // of the program that added it
	odd             bool
	more            string // the settings that make it odd, in the notation of ip-rule(8)
	msg             []byte
}

// object returns the rule as a plan has it.
func (r rule) object() dataplane.Object {
	planned := r.planned()
	if r.odd {
		return dataplane.OtherRule{Rule: planned.Key(), Text: r.String()}
	}
	return planned
}

func (r rule) planned() dataplane.Object {
	if r.dev != "" {
		return dataplane.Arrival{Priority: r.priority, Dev: r.dev, Table: r.table, Specific: r.specific}
	}
	o := dataplane.NewRule(dataplane.PolicyRule{
		Priority: r.priority,
		Not:      r.not,
		Src:      r.src,
		Dst:      r.dst,
		Mark:     r.mark,
		Mask:     r.mask,
		Table:    r.table,
		Action:   r.action,
	})
	if plain, is := o.(dataplane.Rule); is {
		plain.Specific = r.specific
		return plain
	}
	return o
}

// String returns the rule in the notation of ip-rule(8).
func (r rule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "pref %d", r.priority)
	word := func(is bool, format string, v ...any) {
		if is {
			fmt.Fprintf(&b, " "+format, v...)
		}
	}
	word(r.not, "not")
	word(r.src.IsValid(), "from %v", r.src)
	word(!r.src.IsValid() && r.dst.IsValid(), "from all")
	word(r.dst.IsValid(), "to %v", r.dst)
	word(r.dev != "", "iif %s", r.dev)
	word(r.mask != 0, "fwmark %#x/%#x", r.mark, r.mask)
	b.WriteString(r.more)
	word(r.table != 0, "lookup %d", r.table)
	word(r.action != "", "%s", r.action)
	word(r.specific, "suppress_prefixlength 0")
	word(true, "protocol %d", r.protocol)
	return b.String()
}

// rawRule returns the rule of a plan.
func rawRule(o dataplane.Object) rule {
	switch o := o.(type) {
	case dataplane.Arrival:
		return rule{priority: o.Priority, table: o.Table, dev: o.Dev, specific: o.Specific}
	case dataplane.MarkRule:
		return rule{priority: o.Priority, table: o.Table, mark: o.Mark, mask: o.Mask}
	case dataplane.PolicyRule:
		return rule{
			priority: o.Priority,
			table:    o.Table,
			mark:     o.Mark,
			mask:     o.Mask,
			not:      o.Not,
			src:      o.Src,
			dst:      o.Dst,
			action:   o.Action,
		}
	case dataplane.Rule:
		return rule{priority: o.Priority, table: o.Table, specific: o.Specific}
	}
	return rule{}
}

// The actions of rules without a table, by their numbers in linux/fib_rules.h.
var ruleActions = map[uint8]string{
	nl.FR_ACT_BLACKHOLE:   dataplane.ActionBlackhole,
	nl.FR_ACT_UNREACHABLE: dataplane.ActionUnreachable,
}

// every returns all rules of the network namespace, in the order in which the kernel looks at them.
func every(conn *netlink.Conn) (out []rule, err error) {
	msgs, err := conn.Dump(unix.NETLINK_ROUTE, unix.RTM_GETRULE, rtmsg(unix.AF_INET).Serialize())
	if err != nil {
		return nil, fmt.Errorf("listing rules: %w", err)
	}
	for _, m := range msgs {
		out = append(out, parseRule(m))
	}
	return out, nil
}

func parseRule(m []byte) rule {
	msg := nl.DeserializeRtMsg(m) // struct fib_rule_hdr has the same layout; its action is Type
	r := rule{msg: m, table: int(msg.Table), not: msg.Flags&invert != 0, action: ruleActions[msg.Type]}
	other := func(format string, v ...any) {
		r.odd = true
		r.more = r.more + fmt.Sprintf(" "+format, v...)
	}
	if msg.Type != nl.FR_ACT_TO_TBL && r.action == "" {
		other("action %d", msg.Type)
	}
	if msg.Tos != 0 {
		other("tos %#x", msg.Tos)
	}
	for t, v := range netlink.Attrs(m[msg.Len():]) {
		switch t {
		case nl.FRA_PRIORITY:
			r.priority = int(netlink.U32(v))
		case nl.FRA_TABLE:
			r.table = int(netlink.U32(v))
		case nl.FRA_IIFNAME:
			r.dev = netlink.Text(v)
		case nl.FRA_OIFNAME:
			other("oif %s", netlink.Text(v))
		case nl.FRA_FWMARK:
			r.mark = netlink.U32(v)
		case nl.FRA_FWMASK:
			r.mask = netlink.U32(v)
		case nl.FRA_SRC:
			r.src = netip.PrefixFrom(netlink.Addr(v), int(msg.Src_len))
		case nl.FRA_DST:
			r.dst = netip.PrefixFrom(netlink.Addr(v), int(msg.Dst_len))
		case nl.FRA_SUPPRESS_PREFIXLEN:
			switch n := int32(netlink.U32(v)); n {
			case -1: // off
			case 0:
				r.specific = true
			default:
				other("suppress_prefixlength %d", n)
			}
		case nl.FRA_SUPPRESS_IFGROUP:
			if n := int32(netlink.U32(v)); n != -1 {
				other("suppress_ifgroup %d", n)
			}
		case nl.FRA_PROTOCOL:
			r.protocol = v[0]
		case nl.FRA_IP_PROTO:
			other("ipproto %d", v[0])
		case nl.FRA_SPORT_RANGE, nl.FRA_DPORT_RANGE:
			name := map[uint16]string{nl.FRA_SPORT_RANGE: "sport", nl.FRA_DPORT_RANGE: "dport"}[t]
			other("%s %d-%d", name, binary.NativeEndian.Uint16(v), binary.NativeEndian.Uint16(v[2:]))
		case nl.FRA_UID_RANGE:
			other("uidrange %d-%d", netlink.U32(v), netlink.U32(v[4:]))
		case nl.FRA_PAD:
		default:
			other("attribute-%d", t)
		}
	}
	if r.action != "" {
		r.table = 0
	}
	selective := r.not || r.src.IsValid() || r.dst.IsValid() || r.mask != 0 || r.action != ""
	r.odd = r.odd || r.mask != 0 && r.mark == 0 || selective && (r.dev != "" || r.specific)
	return r
}

// all returns the rules that are ours.
func (s rules) all() ([]rule, error) {
	every, err := every(s.conn)
	s.conflicts[dataplane.KindRule] = foreignRules(s.owner, every)
	return slices.DeleteFunc(every, func(r rule) bool { return r.protocol != s.owner.Protocol }), err
}

const invert = 2 // FIB_RULE_INVERT, linux/fib_rules.h

func (rules) Kinds() []dataplane.Kind {
	return []dataplane.Kind{dataplane.KindArrival, dataplane.KindRule}
}

func (s rules) List() (out []dataplane.Object, err error) {
	all, err := s.all()
	if err != nil {
		return nil, err
	}
	at := map[dataplane.Key]int{}
	for _, r := range all {
		o := r.object()
		i, twice := at[o.Key()]
		if !twice {
			at[o.Key()] = len(out)
			out = append(out, o)
			continue
		}
		first, _ := strings.CutPrefix(out[i].String(), "ip rule add ")
		out[i] = dataplane.OtherRule{Rule: o.Key(), Text: first + "; ip rule add " + r.String()}
	}
	return out, nil
}

// Put adds the rule before it removes the old ones, so that there is a rule for every packet. A
// rule of another program may be the same in all but the protocol: it stays, and ours is added.
func (s rules) Put(_, want dataplane.Object) error {
	all, err := s.all()
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(all, func(r rule) bool { return r.object() == want }) {
		if err := s.conn.Change(unix.RTM_NEWRULE, unix.NLM_F_CREATE, s.message(want)); err != nil {
			return fmt.Errorf("adding rule (%v): %w", want, err)
		}
	}
	return s.keepOne(want.Key(), want)
}

// message returns the message that adds a rule.
func (s rules) message(want dataplane.Object) []byte {
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
	b.Src_len = uint8(max(w.src.Bits(), 0))
	b.Dst_len = uint8(max(w.dst.Bits(), 0))
	m := netlink.PutU32(b.Serialize(), nl.FRA_PRIORITY, uint32(w.priority))
	if w.action == "" {
		m = netlink.PutU32(m, nl.FRA_TABLE, uint32(w.table))
	}
	m = netlink.PutAttr(m, nl.FRA_PROTOCOL, []byte{s.owner.Protocol})
	if w.specific {
		m = netlink.PutU32(m, nl.FRA_SUPPRESS_PREFIXLEN, 0)
	}
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
	return m
}

func (s rules) Delete(old dataplane.Object) error { return s.keepOne(old.Key(), nil) }

// keepOne removes all rules of ours with a key, except one rule that equals keep.
func (s rules) keepOne(key dataplane.Key, keep dataplane.Object) error {
	all, err := s.all()
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(r rule) bool { return r.object().Key() != key })
	if keep != nil {
		if i := slices.IndexFunc(all, func(r rule) bool { return r.object() == keep }); i >= 0 {
			all = slices.Delete(all, i, i+1)
		}
	}
	var errs []error
	for _, r := range all { // as the kernel sent them: it removes the rule that matches in every attribute
		if err := netlink.OrGone(s.conn.Change(unix.RTM_DELRULE, 0, r.msg)); err != nil {
			errs = append(errs, fmt.Errorf("removing rule (ip rule add %v): %w", r, err))
		}
	}
	return errors.Join(errs...)
}
