package cable

import (
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
