package cable

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// minBits is the prefix length of the largest network that a cluster may have: a /8, the
// largest network for private use (RFC 1918).
const minBits = 8

// ParseCIDR parses an IPv4 network in CIDR notation, such as 10.1.0.0/16. It returns an
// error for a network with host bits, larger than a /8, or that overlaps a reserved network.
func ParseCIDR(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return p, fmt.Errorf("%.80q is not a network in CIDR notation, such as 10.1.0.0/16", text)
	case !p.Addr().Is4():
		return p, fmt.Errorf("%s is not an IPv4 network", text)
	case p != p.Masked():
		return p, fmt.Errorf("%s has host bits set: did you mean %v?", text, p.Masked())
	}
	if p.Bits() < minBits {
		return p, fmt.Errorf("%s is larger than any cluster: at most a /%d is accepted", text, minBits)
	}
	if r := reservedNet(p); r != "" {
		return p, fmt.Errorf("%s overlaps %s", text, r)
	}
	return p, nil
}

// FormatCIDRs formats networks in CIDR notation, separated by commas, as in Submariner.spec.
func FormatCIDRs(list []netip.Prefix) string {
	out := make([]string, len(list))
	for i, p := range list {
		out[i] = p.String()
	}
	return strings.Join(out, ",")
}

// ParseCIDRs parses a list of IPv4 networks: see ParseCIDR. The error contains every
// mistake; what names the list in it, such as "--clustercidr".
func ParseCIDRs(what string, list []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	var errs []error
	for _, s := range list {
		p, err := ParseCIDR(strings.TrimSpace(s))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
			continue
		}
		out = append(out, p)
	}
	return out, errors.Join(errs...)
}

// Covered reports whether every address of p is in one of the networks of list.
func Covered(p netip.Prefix, list []netip.Prefix) bool {
	if slices.ContainsFunc(list, func(n netip.Prefix) bool { return n.Bits() <= p.Bits() && n.Overlaps(p) }) {
		return true
	}
	if !slices.ContainsFunc(list, p.Overlaps) { // so that the halves below end where list does
		return false
	}
	bytes := p.Masked().Addr().AsSlice()
	bytes[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	middle, _ := netip.AddrFromSlice(bytes) // of p's family
	return Covered(netip.PrefixFrom(p.Addr(), p.Bits()+1), list) && Covered(netip.PrefixFrom(middle, p.Bits()+1), list)
}
