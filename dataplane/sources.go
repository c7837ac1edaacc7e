package dataplane

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// SourcesPriority is that of the chain of Sources: before all other chains that
// translate sources, which are at 100 ("srcnat") or a little before.
const SourcesPriority = 50

// Sources is an nftables table that keeps the source addresses of what goes from
// Local to Remote or back. A connection has one translation of its source, and the
// first that comes counts: so ours comes first, and translates sources to
// themselves. It is seen by the first packet of each connection only.
//
// Both are masked and sorted, and no network is inside another.
type Sources struct {
	Table         string
	Local, Remote []netip.Prefix
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
