package dataplane

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Ruleset is an nftables table, all of which is ours: its rules are text, in the notation of
// nft(8). It is changed in one transaction, which leaves what does not change as it is: no packet
// passes without the rules of the one or the other, and connections, their marks and the elements
// of sets stay.
//
// The kernel has rules and sets in another form than a plan, which is text. So each rule and each
// set carries a digest of its text in its comment, by which it is compared with a plan. What
// another program has added or replaced has none.
type Ruleset struct {
	Family string // ip, ip6 or inet
	Table  string
	Sets   []RuleSet   // sorted by name
	Chains []RuleChain // sorted by name
	// Direct specifies which connections get DirectMark when the table is written. The kernel does
	// not know it.
	Direct DirectConnections
	// Pods are the networks of this cluster's pods, if the table is GlobalnetTable: see there. The
	// kernel does not know them.
	Pods []netip.Prefix
	// Guard is an object that must be there before the table; the zero Key for none. The kernel
	// does not know it.
	Guard Key
	// Ends specifies which connections end when the table is written. The kernel does not know it.
	Ends ClusterConnections
	// Unfinished reports that the table was observed before the connections had ended.
	Unfinished bool
}

// DirectConnections are connections from the networks in a set to others than Announced: they did
// not come through a cable. Those that exist when a network becomes an element of the set get
// DirectMark, as the rules see the first packet of a connection only.
type DirectConnections struct {
	From      string // name of a set; empty for none
	Announced []netip.Prefix
}

// RuleSet is a set or a map of a Ruleset.
type RuleSet struct {
	Name string
	Type string // of the elements, in the notation of nft(8): "ipv4_addr", or "ipv4_addr : verdict" for a map
	// Typeof are the expressions that have the types, if one of these is "integer", which nft(8)
	// does not accept as a type: "ip saddr . meta length : ip daddr". Then Type has "integer" for a
	// number in packets, and "number" for one of the node, such as a hash: the kernel has the most
	// significant byte of the former first.
	Typeof string
	// Flags are "interval" for a set of networks, or "dynamic,timeout" for a set that rules add
	// elements to, and which expire; or empty.
	Flags string
	Size  int // the greatest number of elements; 0 for the kernel's own limit
	// Timeout is the time after which elements expire, if they do.
	Timeout time.Duration
	// Counter specifies that each element counts the packets for which it is found.
	Counter bool
	// Remembers is the name of the set of which rules remember elements in this one, which has the
	// flag dynamic: when that one loses an element, all of this one are forgotten in the same
	// transaction. The kernel does not know it.
	Remembers string
	// Elements are sorted, in the notation of nft(8): "10.1.0.0/16", "10.1.0.0/16 comment "west""
	// in a set of networks, or "192.0.2.1 : goto chain". There are none of a set with the flag
	// dynamic.
	Elements []string
	// Seen is the digest of a set that was observed, Foreign if it has none, and empty in a plan.
	Seen string
}

// RuleChain is a chain of a Ruleset. It has no hook if it is jumped to.
type RuleChain struct {
	Name     string
	Type     string // filter, nat or route; "" without a hook
	Hook     string // prerouting, input, forward, output or postrouting; "" for none
	Priority int
	Rules    []TextRule
	// Odd reports that a chain that was observed drops packets for which no rule decides, or has
	// settings that a plan cannot express.
	Odd bool
}

// TextRule is a rule of a Ruleset.
type TextRule struct {
	// Text is the rule in the notation of nft(8), without a comment. It must consist of words of
	// the planner and of values that were parsed and printed again.
	Text string
	// Note is the name of the object that the rule belongs to. Quote makes it harmless.
	Note string
	// Inner specifies a rule that goes over netlink: nft(8) prints Text, but does not read it. It
	// is the only rule of its chain, which has no hook.
	Inner InnerAddress
	// Seen is the digest of a rule that was observed, "foreign" if it has none, and Handle the
	// kernel's number of it. Both are empty in a plan.
	Seen   string
	Handle uint64
}

// InnerAddress is an address of the packet inside an ICMP error, which a rule translates by a map.
// The checksum of the packet's header is corrected, so that of the ICMP packet stays valid: the sum
// of an IPv4 header with its checksum is always the same.
//
// In nft(8) 1.0.6, "@th,160,32" is a number, which no map of addresses has, and the checksum inside
// stays as it is.
type InnerAddress struct {
	Map string // name of the map; empty for no such rule
	// Leaves specifies an error that leaves: the destination of the packet inside is translated,
	// and is then the source of the error, too. Otherwise it arrives, and the source inside is
	// translated.
	Leaves bool
}

// Bytes from the ICMP header on to fields of the header inside an ICMP error, which begins after 8
// bytes (RFC 792).
const (
	ErrorChecksum    = 8 + 10
	ErrorSource      = 8 + 12
	ErrorDestination = 8 + 16
)

// String returns the rule as nft(8) prints it.
func (a InnerAddress) String() string {
	at := 8 * ErrorSource
	more := ""
	if a.Leaves {
		at = 8 * ErrorDestination
		more = fmt.Sprintf(" ip saddr set @th,%d,32", at)
	}
	return fmt.Sprintf("@th,%[1]d,32 set @th,%[1]d,32 map @%[2]s%[3]s", at, a.Map, more)
}

// DeviceAny ends the name of a device in rules that stands for all devices with the prefix.
const DeviceAny = "*"

// Foreign is the digest of an observed rule that no plan has.
const Foreign = "foreign"

// digestLength is the number of hexadecimal digits of a digest.
const digestLength = 12

// Digest returns 12 hexadecimal digits of the SHA-256 of the rule's text and note.
func (r TextRule) Digest() string {
	if r.Seen != "" {
		return r.Seen
	}
	return shortDigest(r.Text + "\x00" + Quote(r.Note))
}

// shortDigest returns 12 hexadecimal digits of the SHA-256 of a text.
func shortDigest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:digestLength]
}

// Digest returns 12 hexadecimal digits of the SHA-256 of what the set is, without its elements.
func (s RuleSet) Digest() string {
	if s.Seen != "" {
		return s.Seen
	}
	if s.Typeof != "" {
		return shortDigest(s.spec() + s.Type)
	}
	return shortDigest(s.spec())
}

// Comment returns the comment of the set in the kernel. It has the types that the kernel does not
// tell apart.
func (s RuleSet) Comment() string {
	if s.Typeof == "" {
		return "#" + s.Digest()
	}
	return strings.TrimSpace(s.Type + " #" + s.Digest())
}

// maxNote is the longest note in a comment, which has at most 128 bytes in the kernel
// (NFTNL_UDATA_COMMENT_MAXLEN).
const maxNote = 96

// Quote returns a name as it can be in a quoted comment of nft(8): of its first bytes, those that
// are neither letters, digits nor one of " ._-/#:" are replaced by '?'.
func Quote(name string) string {
	b := []byte(name[:min(len(name), maxNote)])
	for i, c := range b {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			strings.IndexByte(" ._-/#:", c) >= 0) {
			b[i] = '?'
		}
	}
	return string(b)
}

// String returns the rule as a person would write it.
func (r TextRule) String() string {
	if r.Inner.Map != "" {
		return "# over netlink, as nft does not read it: " + r.Text
	}
	if r.Note == "" {
		return r.Text
	}
	return fmt.Sprintf("%s comment %q", r.Text, Quote(r.Note))
}

// command returns the rule as it is given to nft, with its digest.
func (r TextRule) command() string {
	if r.Inner.Map != "" {
		return r.String()
	}
	return fmt.Sprintf("%s comment %q", r.Text, r.Comment())
}

// Comment returns the comment of the rule in the kernel.
func (r TextRule) Comment() string { return strings.TrimSpace(Quote(r.Note) + " #" + r.Digest()) }

// CommentDigest returns the digest in a comment of command, or Foreign.
func CommentDigest(comment string) string {
	at := strings.LastIndexByte(comment, '#') + 1
	if at == 0 || len(comment)-at != digestLength {
		return Foreign
	}
	return comment[at:]
}

// AddChain adds a chain with a hook.
func (r *Ruleset) AddChain(name, typ, hook string, priority int) {
	c := r.put(name)
	c.Type = typ
	c.Hook = hook
	c.Priority = priority
}

// Add appends a rule to a chain, which it adds if necessary.
func (r *Ruleset) Add(chain, format string, args ...any) {
	c := r.put(chain)
	c.Rules = append(c.Rules, TextRule{Text: fmt.Sprintf(format, args...)})
}

// AddInner adds a chain with a rule about the packet inside an ICMP error.
func (r *Ruleset) AddInner(chain string, a InnerAddress) {
	r.put(chain).Rules = []TextRule{{Text: a.String(), Inner: a}}
}

// Drop appends a rule that drops and counts the packets that match, for a reason of DropReasons.
// Without one, nobody need know of these packets.
func (r *Ruleset) Drop(chain, reason, match string) {
	c := r.put(chain)
	c.Rules = append(c.Rules, TextRule{Text: strings.TrimSpace(match + " counter drop"), Note: reason})
}

// Mentions reports whether a rule contains a text.
func (r Ruleset) Mentions(text string) bool {
	return slices.ContainsFunc(r.Chains, func(c RuleChain) bool {
		return slices.ContainsFunc(c.Rules, func(rule TextRule) bool { return strings.Contains(rule.Text, text) })
	})
}

// AddSet adds a set or a map, and sorts its elements. It does not add one without elements to which
// rules add none.
func (r *Ruleset) AddSet(s RuleSet) {
	if len(s.Elements) == 0 && !s.isDynamic() {
		return
	}
	slices.Sort(s.Elements)
	i, _ := slices.BinarySearchFunc(r.Sets, s.Name, bySetName)
	r.Sets = slices.Insert(r.Sets, i, s)
}

// put returns the chain of a name, which it adds if necessary.
func (r *Ruleset) put(chain string) *RuleChain {
	i, ok := slices.BinarySearchFunc(r.Chains, chain, byName)
	if !ok {
		r.Chains = slices.Insert(r.Chains, i, RuleChain{Name: chain})
	}
	return &r.Chains[i]
}

func byName(c RuleChain, name string) int { return strings.Compare(c.Name, name) }

func bySetName(s RuleSet, name string) int { return strings.Compare(s.Name, name) }

// Networks returns networks as elements of a set.
func Networks(nets []netip.Prefix) []string {
	out := make([]string, len(nets))
	for i, n := range nets {
		out[i] = n.String()
	}
	slices.Sort(out)
	return out
}

// RulesetKey returns the key of a table.
func RulesetKey(family, table string) Key { return Key{KindRuleset, family + " " + table} }

// Key implements Object.
func (r Ruleset) Key() Key { return RulesetKey(r.Family, r.Table) }

// Needs implements Object.
func (r Ruleset) Needs() []Key { return guarded(nil, r.Guard) }

// Equal implements Object.
func (r Ruleset) Equal(o Object) bool {
	other, ok := o.(Ruleset)
	return ok && r.Key() == other.Key() && r.Unfinished == other.Unfinished &&
		slices.EqualFunc(r.Sets, other.Sets, RuleSet.equal) && r.SameRules(other)
}

// SameRules reports whether two tables differ in nothing but sets.
func (r Ruleset) SameRules(other Ruleset) bool {
	return slices.EqualFunc(r.Chains, other.Chains, func(a, b RuleChain) bool {
		return a.same(b) && slices.EqualFunc(a.Rules, b.Rules, TextRule.same)
	})
}

// SameShape reports whether two tables differ in nothing but elements of sets.
func (r Ruleset) SameShape(other Ruleset) bool {
	return slices.EqualFunc(r.Sets, other.Sets, RuleSet.same) && r.SameRules(other)
}

func (r TextRule) same(o TextRule) bool { return r.Digest() == o.Digest() }

// same reports whether two chains are equal except for their rules.
func (c RuleChain) same(o RuleChain) bool {
	return c.Name == o.Name && c.Type == o.Type && c.Hook == o.Hook && c.Priority == o.Priority && c.Odd == o.Odd
}

// same reports whether two sets are equal except for their elements.
func (s RuleSet) same(o RuleSet) bool { return s.Name == o.Name && s.Digest() == o.Digest() }

func (s RuleSet) equal(o RuleSet) bool { return s.same(o) && slices.Equal(s.Elements, o.Elements) }

// base returns what makes a chain a base chain, or "".
func (c RuleChain) base() string {
	if c.Hook == "" {
		return ""
	}
	return fmt.Sprintf("type %s hook %s priority %d; policy accept;", c.Type, c.Hook, c.Priority)
}

// isDynamic reports whether rules add elements.
func (s RuleSet) isDynamic() bool { return strings.HasPrefix(s.Flags, "dynamic") }

// IsMap reports whether the set has values.
func (s RuleSet) IsMap() bool { return strings.Contains(s.Type, " : ") }

// command returns "set" or "map".
func (s RuleSet) command() string {
	if s.IsMap() {
		return "map"
	}
	return "set"
}

// spec returns what a set is.
func (s RuleSet) spec() string {
	out := "type " + s.Type + ";"
	if s.Typeof != "" {
		out = "typeof " + s.Typeof + ";"
	}
	if s.Size > 0 {
		out += fmt.Sprintf(" size %d;", s.Size)
	}
	if s.Flags != "" {
		out += " flags " + s.Flags + ";"
	}
	if s.Timeout > 0 {
		out += fmt.Sprintf(" timeout %v;", s.Timeout)
	}
	if s.Counter {
		out += " counter;"
	}
	return out
}

// String implements Object.
func (r Ruleset) String() string { return "nft -f - <<'END'\n" + r.block(false) + "END" }

// block returns the table in the notation of nft(8), with digests or as a person would write it.
func (r Ruleset) block(digests bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "table %s %s {\n", r.Family, r.Table)
	for _, s := range r.Sets {
		spec := s.spec()
		if digests {
			spec += fmt.Sprintf(" comment %q;", s.Comment())
		}
		if len(s.Elements) == 0 {
			fmt.Fprintf(&b, "\t%s %s { %s }\n", s.command(), s.Name, spec)
			continue
		}
		fmt.Fprintf(&b, "\t%s %s {\n\t\t%s\n", s.command(), s.Name, spec)
		fmt.Fprintf(&b, "\t\telements = {\n\t\t\t%s\n\t\t}\n\t}\n", strings.Join(s.Elements, ",\n\t\t\t"))
	}
	for _, c := range r.Chains {
		fmt.Fprintf(&b, "\tchain %s {\n", c.Name)
		if base := c.base(); base != "" {
			fmt.Fprintf(&b, "\t\t%s\n", base)
		}
		for _, rule := range c.Rules {
			text := rule.String()
			if digests {
				text = rule.command()
			}
			fmt.Fprintf(&b, "\t\t%s\n", text)
		}
		b.WriteString("\t}\n")
	}
	b.WriteString("}\n")
	return b.String()
}

// change implements changer.
func (r Ruleset) change(old Object) string {
	have, ok := old.(Ruleset)
	if !ok {
		return ""
	}
	return "nft -f - <<'END'\n" + r.Script(have) + "END"
}
