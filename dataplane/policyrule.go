package dataplane

import (
	"fmt"
	"net/netip"
	"strings"
)

// What a PolicyRule does with the packets that it matches, if it does not look them up in a table.
const (
	ActionUnreachable = "unreachable" // an ICMP error tells the sender
	ActionBlackhole   = "blackhole"
)

// PolicyRule is a policy rule with conditions, or an action, that Rule, MarkRule and Arrival do not
// have. NewRule returns the object for any rule.
type PolicyRule struct {
	Priority   int
	Not        bool         // matches the packets that do not meet the conditions
	Src, Dst   netip.Prefix // the zero Prefix for any
	Mark, Mask uint32       // the mark has the bits Mark among the bits Mask; both 0 for any
	Table      int          // 0 with an Action
	Action     string       // one of the constants above, or ""
}

// NewRule returns the object for a rule: a Rule or a MarkRule, if one of these expresses it.
func NewRule(r PolicyRule) Object {
	switch plain := (PolicyRule{Priority: r.Priority, Table: r.Table, Mark: r.Mark, Mask: r.Mask}); {
	case r != plain:
		return r
	case r.Mask != 0:
		return MarkRule{Priority: r.Priority, Mark: r.Mark, Mask: r.Mask, Table: r.Table}
	default:
		return Rule{Priority: r.Priority, Table: r.Table}
	}
}

// Key implements Object: the kernel may hold any number of rules that differ in their conditions.
func (r PolicyRule) Key() Key { return Key{KindRule, fmt.Sprintf("%05d", r.Priority) + r.conditions()} }

// Needs implements Object.
func (PolicyRule) Needs() []Key { return nil }

// Equal implements Object.
func (r PolicyRule) Equal(o Object) bool { return o == r }

// conditions returns them in the notation of ip-rule(8), each after a space. The order is not that
// of the notation of MarkRule's key.
func (r PolicyRule) conditions() string {
	var b strings.Builder
	if r.Not {
		b.WriteString(" not")
	}
	from := "all"
	if r.Src.IsValid() {
		from = r.Src.String()
	}
	b.WriteString(" from " + from)
	if r.Dst.IsValid() {
		b.WriteString(" to " + r.Dst.String())
	}
	if r.Mask != 0 {
		fmt.Fprintf(&b, " fwmark %#x/%#x", r.Mark, r.Mask)
	}
	return b.String()
}

// String implements Object.
func (r PolicyRule) String() string {
	s := fmt.Sprintf("ip rule add pref %d%s", r.Priority, r.conditions())
	if r.Table != 0 {
		s += fmt.Sprintf(" lookup %d", r.Table)
	}
	if r.Action != "" {
		s += " " + r.Action
	}
	return s
}

// OtherRule is a policy rule with the owner's protocol that no plan can hold, or several with one
// key.
type OtherRule struct {
	Rule Key
	Text string // the rule in the notation of ip-rule(8)
}

// Key implements Object: a planned rule replaces this one if it has the same key.
func (r OtherRule) Key() Key { return r.Rule }

// Needs implements Object.
func (OtherRule) Needs() []Key { return nil }

// Equal implements Object.
func (OtherRule) Equal(Object) bool { return false }

// String implements Object.
func (r OtherRule) String() string { return "ip rule add " + r.Text }
