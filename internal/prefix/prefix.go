// Package prefix calculates with IP networks. What netip.Prefix has for one network, it has for
// lists of them. Which networks a cluster may have, and what is wrong with others, is not here: see
// cable.ParseCIDR.
package prefix

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"strings"
)

// Host returns the network that has an address alone.
func Host(ip netip.Addr) netip.Prefix { return netip.PrefixFrom(ip, ip.BitLen()) }

// Contains reports whether an address is in one of the networks.
func Contains(networks []netip.Prefix, ip netip.Addr) bool {
	for _, n := range networks {
		if n.Contains(ip) {
			return true
		}
	}
	return false
}

// ContainsFunc returns a function that reports whether an address is in one of the networks. It is
// faster than Contains for many addresses: it does one lookup for each length of a mask.
func ContainsFunc(networks []netip.Prefix) func(netip.Addr) bool {
	all := map[netip.Prefix]bool{}
	lengths := []int{}
	for _, n := range networks {
		if all[n.Masked()] = true; !slices.Contains(lengths, n.Bits()) {
			lengths = append(lengths, n.Bits())
		}
	}
	return func(a netip.Addr) bool {
		for _, bits := range lengths {
			if n, err := a.Prefix(bits); err == nil && all[n] {
				return true
			}
		}
		return false
	}
}

// Overlaps reports whether one of the networks has an address in common with p.
func Overlaps(networks []netip.Prefix, p netip.Prefix) bool {
	return slices.ContainsFunc(networks, p.Overlaps)
}

// Covers reports whether one of the networks has all addresses of p.
func Covers(networks []netip.Prefix, p netip.Prefix) bool {
	for _, n := range networks {
		if n.Bits() <= p.Bits() && n.Contains(p.Addr()) {
			return true
		}
	}
	return false
}

// CoverTogether reports whether every address of p is in one of the networks.
func CoverTogether(networks []netip.Prefix, p netip.Prefix) bool {
	if Covers(networks, p) {
		return true
	}
	if !Overlaps(networks, p) { // so that the halves below end where the networks do
		return false
	}
	lower, upper := Halves(p)
	return CoverTogether(networks, lower) && CoverTogether(networks, upper)
}

// Halves returns the two halves of a network of more than one address.
func Halves(p netip.Prefix) (lower, upper netip.Prefix) {
	p = p.Masked()
	middle := p.Addr().AsSlice()
	middle[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	ip, _ := netip.AddrFromSlice(middle) // of p's family
	return netip.PrefixFrom(p.Addr(), p.Bits()+1), netip.PrefixFrom(ip, p.Bits()+1)
}

// Without returns the parts of p that are not in n.
func Without(p, n netip.Prefix) []netip.Prefix {
	switch {
	case !p.Overlaps(n):
		return []netip.Prefix{p}
	case n.Bits() <= p.Bits():
		return nil
	}
	lower, upper := Halves(p)
	return append(Without(lower, n), Without(upper, n)...)
}

// Widest returns the networks sorted, without those that are inside another one. None of them has
// bits of hosts.
func Widest(networks []netip.Prefix) []netip.Prefix {
	sorted := slices.Clone(networks)
	slices.SortFunc(sorted, compare)
	return widest(sorted, func(p netip.Prefix) netip.Prefix { return p })
}

// WidestBy is Widest for values that have a network. Of values with the same network, the first one
// stays. It reuses the memory of values.
func WidestBy[T any](values []T, network func(T) netip.Prefix) []T {
	slices.SortStableFunc(values, func(a, b T) int { return compare(network(a), network(b)) })
	return widest(values, network)
}

// compare orders networks by address; of networks with the same address, the widest comes first.
func compare(p, q netip.Prefix) int {
	return cmp.Or(p.Addr().Compare(q.Addr()), cmp.Compare(p.Bits(), q.Bits()))
}

// widest removes values whose network is inside the network of another one from a sorted list.
func widest[T any](sorted []T, network func(T) netip.Prefix) []T {
	out := sorted[:0]
	for _, v := range sorted {
		if last := len(out) - 1; last < 0 || !network(out[last]).Overlaps(network(v)) { // the wider one came first
			out = append(out, v)
		}
	}
	return out
}

// Around returns the smallest network that contains all networks, of which there is at least one,
// and which are of one family.
func Around(networks []netip.Prefix) netip.Prefix {
	out := networks[0]
	for slices.ContainsFunc(networks, func(n netip.Prefix) bool {
		return n.Bits() < out.Bits() || !out.Contains(n.Addr())
	}) {
		out = netip.PrefixFrom(out.Addr(), out.Bits()-1).Masked()
	}
	return out
}

// Parse parses a network in CIDR notation, or an address, which stands for the network that has it
// alone. Bits of hosts are kept. An address must not have a zone.
func Parse(text string) (netip.Prefix, error) {
	if strings.Contains(text, "/") {
		return netip.ParsePrefix(text)
	}
	ip, err := netip.ParseAddr(text)
	if err == nil && ip.Zone() != "" {
		err = errors.New("it has a zone")
	}
	return Host(ip), err
}

// Valid returns the networks among texts in CIDR notation, and skips what is none. The bits of
// hosts are cleared.
func Valid(texts []string) (out []netip.Prefix) {
	for _, text := range texts {
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}

// Format returns networks in CIDR notation, separated by commas.
func Format(networks []netip.Prefix) string {
	out := make([]string, len(networks))
	for i, p := range networks {
		out[i] = p.String()
	}
	return strings.Join(out, ",")
}
