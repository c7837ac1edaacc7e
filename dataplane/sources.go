package dataplane

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// SourcesPriority is the priority of the chain of Sources: before all other chains that
// translate sources, which have 100 ("srcnat") or a little less.
const SourcesPriority = 50

// Sources is an nftables table that preserves the source addresses of packets between the
// networks Local and Remote. The kernel translates the source of a connection once, by the
// first rule that matches: ours comes first, and translates sources to themselves. Only
// the first packet of each connection passes through it.
type Sources struct {
	Table         string
	Local, Remote []netip.Prefix // masked and sorted; no network contains another
}

// Key implements Object.
func (s Sources) Key() Key { return Key{KindSources, s.Table} }

// Needs implements Object.
func (Sources) Needs() []Key { return nil }

// Equal implements Object.
func (s Sources) Equal(o Object) bool {
	other, ok := o.(Sources)
	return ok && s.Table == other.Table && slices.Equal(s.Local, other.Local) && slices.Equal(s.Remote, other.Remote)
}

// String implements Object.
func (s Sources) String() string {
	lines := []string{
		fmt.Sprintf("nft add table ip %s", s.Table),
		fmt.Sprintf("nft 'add set ip %s remote { type ipv4_addr; flags interval; }'", s.Table),
	}
	for _, r := range s.Remote {
		lines = append(lines, fmt.Sprintf("nft 'add element ip %s remote { %v }'", s.Table, r))
	}
	lines = append(lines, fmt.Sprintf("nft 'add chain ip %s postrouting { type nat hook postrouting priority %d; }'", s.Table, SourcesPriority))
	for _, l := range s.Local {
		lines = append(lines,
			fmt.Sprintf("nft add rule ip %s postrouting ip saddr %v ip daddr @remote snat to ip saddr", s.Table, l),
			fmt.Sprintf("nft add rule ip %s postrouting ip saddr @remote ip daddr %v snat to ip saddr", s.Table, l))
	}
	return strings.Join(lines, "\n")
}
