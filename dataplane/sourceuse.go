package dataplane

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"subctl/internal/prefix"
)

// MaxSources is the maximum number of addresses that Flows lists.
const MaxSources = 20

// SourceUse is the number of connections with an address as their source by translation. A
// connection that has ended counts for as long as the kernel remembers it: until then, no other
// connection gets its port.
type SourceUse struct {
	Source      netip.Addr
	Connections int // to all destinations
	// Most is the number of connections to the destination with the most of them, which is Proto
	// and To; 0 if there are many destinations, each with few.
	Most  int
	Proto string
	To    netip.AddrPort
}

// Busiest returns the destination with the most connections as "tcp 242.2.0.9:80"; empty if there
// are many destinations, each with few.
func (u SourceUse) Busiest() string {
	switch {
	case !u.To.IsValid():
		return ""
	case u.To.Port() == 0:
		return fmt.Sprintf("%s %v", u.Proto, u.To.Addr())
	}
	return fmt.Sprintf("%s %v", u.Proto, u.To)
}

// Compare orders SourceUses: those with the fewest ports left first, then by address.
func (u SourceUse) Compare(o SourceUse) int {
	return cmp.Or(cmp.Compare(o.Most, u.Most), cmp.Compare(o.Connections, u.Connections), u.Source.Compare(o.Source))
}

// maxDestinations is the maximum number of pairs of an address and a destination that are counted
// at a time, so that whoever sends to many destinations costs no memory. If there are more, the
// pairs with the fewest connections are forgotten. The kernel lists connections in the order of a
// hash: pairs with many connections have some early (lossy counting: Manku and Motwani, VLDB 2002).
const maxDestinations = 1 << 14

// SourceUses counts connections by the address to which their source is translated.
type SourceUses struct {
	counts func(netip.Addr) bool
	all    map[netip.Addr]int
	to     map[sourceAndDestination]int
}

type sourceAndDestination struct {
	source netip.Addr
	proto  string
	to     netip.AddrPort
}

// NewSourceUses returns a SourceUses that counts the addresses in networks.
func NewSourceUses(networks []netip.Prefix) *SourceUses {
	return &SourceUses{
		counts: prefix.ContainsFunc(networks),
		all:    map[netip.Addr]int{},
		to:     map[sourceAndDestination]int{},
	}
}

// Add counts a connection, if its source is translated to one of the addresses.
func (u *SourceUses) Add(t Tracked) {
	source := t.Returns.Addr()
	if source == t.Src.Addr() || !u.counts(source) {
		return
	}
	u.all[source]++
	key := sourceAndDestination{source, t.Proto, t.Replies}
	if u.to[key]++; len(u.to) > maxDestinations {
		u.forget()
	}
}

// forget removes at least half of the pairs.
func (u *SourceUses) forget() {
	for fewest := 1; len(u.to) > maxDestinations/2; fewest *= 2 {
		for key, n := range u.to {
			if n <= fewest {
				delete(u.to, key)
			}
		}
	}
}

// Fullest returns the addresses with the fewest ports left for a destination, at most MaxSources.
func (u *SourceUses) Fullest() []SourceUse {
	most := make(map[netip.Addr]SourceUse, len(u.all))
	for ip, n := range u.all {
		most[ip] = SourceUse{Source: ip, Connections: n}
	}
	for key, n := range u.to {
		is := SourceUse{key.source, u.all[key.source], n, key.proto, key.to}
		was := most[key.source]
		if n > was.Most || n == was.Most && (cmp.Or(cmp.Compare(is.Proto, was.Proto), is.To.Compare(was.To)) < 0) {
			most[key.source] = is
		}
	}
	out := make([]SourceUse, 0, len(most))
	for _, is := range most {
		out = append(out, is)
	}
	slices.SortFunc(out, SourceUse.Compare)
	return slices.Clip(out[:min(len(out), MaxSources)])
}
