package dataplane

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// Ruleset is an nftables table of family inet, all of which is ours. It is replaced in one transaction: no packet passes without
// the rules of the one or the other, and connections, their marks and the elements of sets stay.
//
// The kernel has rules in another form than a plan, which is text. So each rule carries a digest of its text in its comment, by which a rule
// in the kernel is compared with a plan. A rule that another program has added or replaced has none.
type Ruleset struct {
	Table  string
	Sets   []RuleSet   // sorted by name
	Chains []RuleChain // sorted by name
}

// RuleSet is a set of IPv4 addresses that rules add elements to, and which expire.
type RuleSet struct {
	Name string
	Size int // the greatest number of elements
	// Odd reports that a set that was observed is of another type. A plan has none.
	Odd bool
}

// RuleChain is a chain of a Ruleset. It has no hook if it is jumped to.
type RuleChain struct {
	Name     string
	Type     string // filter, nat or route; "" without a hook
	Hook     string // prerouting, input, forward, output or postrouting; "" for none
	Priority int
	Rules    []TextRule
	// Odd reports that a chain that was observed drops packets for which no rule decides, or has settings that
	// a plan cannot express.
	Odd bool
}

// TextRule is a rule of a Ruleset.
type TextRule struct {
	// Text is the rule in the notation of nft(8), without a comment. It must consist of words of the planner and of values that
	// were parsed and printed again.
	Text string
	// Note is the name of the object that the rule belongs to. Quote makes it harmless.
	Note string
	// Seen is the digest of a rule that was observed, "foreign" if it has none, and Handle the kernel's number of it. Both are empty in
	// a plan.
	Seen   string
	Handle uint64
}

// Foreign is the digest of an observed rule that no plan has.
const Foreign = "foreign"

// digestLength is the number of hexadecimal digits of a digest.
const digestLength = 12

// Digest returns 12 hexadecimal digits of the SHA-256 of the rule's text and note.
func (r TextRule) Digest() string {
	if r.Seen != "" {
		return r.Seen
	}
	sum := sha256.Sum256([]byte(r.Text + "\x00" + Quote(r.Note)))
	return hex.EncodeToString(sum[:])[:digestLength]
}

// maxNote is the longest note in a comment, which has at most 128 bytes in the kernel (NFTNL_UDATA_COMMENT_MAXLEN).
const maxNote = 96

// Quote returns a name as it can be in a quoted comment of nft(8): of its first bytes, those that are neither letters, digits nor one of
// " ._-/#:" are replaced by '?'.
func Quote(name string) string {
	b := []byte(name[:min(len(name), maxNote)])
	for i, c := range b {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte(" ._-/#:", c) >= 0) {
			b[i] = '?'
		}
	}
	return string(b)
}

// String returns the rule as a person would write it.
func (r TextRule) String() string {
	if r.Note == "" {
		return r.Text
	}
	return fmt.Sprintf("%s comment %q", r.Text, Quote(r.Note))
}

// command returns the rule as it is given to nft, with its digest.
func (r TextRule) command() string {
	return fmt.Sprintf("%s comment %q", r.Text, strings.TrimSpace(Quote(r.Note)+" #"+r.Digest()))
}

// CommentDigest returns the digest in a comment of command, or Foreign.
func CommentDigest(comment string) string {
	at := strings.LastIndexByte(comment, '#') + 1
	if at == 0 || len(comment)-at != digestLength {
		return Foreign
	}
	return comment[at:]
}

// Key implements Object.
func (r Ruleset) Key() Key { return Key{KindRuleset, r.Table} }

// Needs implements Object.
func (Ruleset) Needs() []Key { return nil }

// Equal implements Object.
func (r Ruleset) Equal(o Object) bool {
	other, ok := o.(Ruleset)
	return ok && r.Table == other.Table && slices.Equal(r.Sets, other.Sets) && slices.EqualFunc(r.Chains, other.Chains, func(a, b RuleChain) bool {
		return a.same(b) && slices.EqualFunc(a.Rules, b.Rules, sameRule)
	})
}

func sameRule(a, b TextRule) bool { return a.Digest() == b.Digest() }

// same reports whether two chains are equal except for their rules.
func (c RuleChain) same(o RuleChain) bool {
	return c.Name == o.Name && c.Type == o.Type && c.Hook == o.Hook && c.Priority == o.Priority && c.Odd == o.Odd
}

// base returns what makes a chain a base chain, or "".
func (c RuleChain) base() string {
	if c.Hook == "" {
		return ""
	}
	return fmt.Sprintf("type %s hook %s priority %d; policy accept;", c.Type, c.Hook, c.Priority)
}

// spec returns what a set is.
func (s RuleSet) spec() string {
	return fmt.Sprintf("type ipv4_addr; size %d; flags dynamic,timeout;", s.Size)
}

// String implements Object.
func (r Ruleset) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "nft -f - <<'END'\ntable inet %s {\n", r.Table)
	for _, s := range r.Sets {
		fmt.Fprintf(&b, "\tset %s { %s }\n", s.Name, s.spec())
	}
	for _, c := range r.Chains {
		fmt.Fprintf(&b, "\tchain %s {\n", c.Name)
		if base := c.base(); base != "" {
			fmt.Fprintf(&b, "\t\t%s\n", base)
		}
		for _, rule := range c.Rules {
			fmt.Fprintf(&b, "\t\t%v\n", rule)
		}
		b.WriteString("\t}\n")
	}
	b.WriteString("}\nEND")
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
