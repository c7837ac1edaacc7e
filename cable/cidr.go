package cable

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// minBits is the prefix length of the largest network that a cluster may have: a /8, the
// largest network for private use (RFC 1918).
const minBits = 8

// ParseCIDR parses a network that a cluster may have, in CIDR notation, such as 10.1.0.0/16: see
// CheckNetwork.
func ParseCIDR(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, fmt.Errorf("%.80q is not a network in CIDR notation, such as 10.1.0.0/16", text)
	}
	return p, CheckNetwork(p)
}

// CheckNetwork returns an error for a network that no cluster may have: it is not IPv4, has host
// bits, is larger than a /8, or overlaps a reserved network.
func CheckNetwork(p netip.Prefix) error {
	switch {
	case !p.Addr().Is4():
		return fmt.Errorf("%v is not an IPv4 network", p)
	case p != p.Masked():
		return fmt.Errorf("%v has host bits set: did you mean %v?", p, p.Masked())
	case p.Bits() < minBits:
		return fmt.Errorf("%v is larger than any cluster: at most a /%d is accepted", p, minBits)
	}
	if r := reservedNet(p); r != "" {
		return fmt.Errorf("%v overlaps %s", p, r)
	}
	return nil
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
