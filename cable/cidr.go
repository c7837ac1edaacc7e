package cable

import (
	"net/netip"
	"strings"
)

// FormatCIDRs writes networks as Submariner.spec does: separated by commas.
func FormatCIDRs(list []netip.Prefix) string {
	out := make([]string, len(list))
	for i, p := range list {
		out[i] = p.String()
	}
	return strings.Join(out, ",")
}
