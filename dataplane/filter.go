package dataplane

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Set is an ipset of type hash:net. No plan has one: agents of the version before have left some,
// which are removed. Members are masked and sorted. None of them has length 0, which the kernel
// refuses.
type Set struct {
	Name    string // at most 31 bytes
	Members []netip.Prefix
}

// Key implements Object.
func (s Set) Key() Key { return Key{KindSet, s.Name} }

// Needs implements Object.
func (Set) Needs() []Key { return nil }

// Equal implements Object.
func (s Set) Equal(o Object) bool {
	other, ok := o.(Set)
	return ok && s.Name == other.Name && slices.Equal(s.Members, other.Members)
}

// String implements Object.
func (s Set) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "ipset create %s hash:net", s.Name)
	for _, m := range s.Members {
		fmt.Fprintf(&b, "\nipset add %s %v", s.Name, m)
	}
	return b.String()
}

// Chain is a whole chain of iptables. Its new rules come before the old ones, which are removed
// then.
//
// iptables lists rules in its own spelling, so a chain in the kernel is compared with a
// plan by a fingerprint, which its last rule carries as a comment.
type Chain struct {
	Table, Name string
	Hook        string // the built-in chain that jumps to this chain, by its first rule; empty for none
	// Last specifies that the jump is the last rule of Hook that packets reach instead of the first
	// one: the chain gets the packets about which no rule of others has decided, and may accept
	// them before the policy of Hook, or a rule that drops or rejects all packets, ends them.
	Last  bool
	Rules []string // in the notation of iptables, without "-A <chain>"
	Sets  []string // the names of the sets that the rules match on
	// Seen is the fingerprint of a chain that was observed, and empty in a plan. It is "damaged" if
	// rules were added or removed, or if the jump from Hook is no longer first, or Last.
	Seen string
	// Guard is an object of the plan without which the chain must not be used; the zero Key if
	// there is none. The kernel does not know it.
	Guard Key
}

// Fingerprint returns 16 hexadecimal digits of the SHA-256 of everything that is planned.
func (c Chain) Fingerprint() string {
	if c.Seen != "" {
		return c.Seen
	}
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %q %q %q", c.Table, c.Name, c.Hook, c.Rules, c.Sets)
	if c.Last {
		fmt.Fprint(h, " last")
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// Key implements Object.
func (c Chain) Key() Key { return Key{KindChain, c.Table + " " + c.Name} }

// Needs implements Object.
func (c Chain) Needs() (ks []Key) {
	for _, s := range c.Sets {
		ks = append(ks, Key{KindSet, s})
	}
	return guarded(ks, c.Guard)
}

// Equal implements Object.
func (c Chain) Equal(o Object) bool {
	other, ok := o.(Chain)
	return ok && c.Key() == other.Key() && c.Fingerprint() == other.Fingerprint()
}

// String implements Object.
func (c Chain) String() string {
	lines := []string{fmt.Sprintf("iptables -t %s -N %s", c.Table, c.Name)}
	for _, r := range c.Rules {
		lines = append(lines, fmt.Sprintf("iptables -t %s -A %s %s", c.Table, c.Name, r))
	}
	switch {
	case c.Last:
		lines = append(lines, fmt.Sprintf("iptables -t %s -A %s -j %s", c.Table, c.Hook, c.Name))
	case c.Hook != "":
		lines = append(lines, fmt.Sprintf("iptables -t %s -I %s 1 -j %s", c.Table, c.Hook, c.Name))
	}
	return strings.Join(lines, "\n")
}
