package cable

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

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
