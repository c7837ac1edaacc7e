package cable

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// Limits of the reasons in Endpoint.spec.backend_config.
const (
	maxMissing = 16  // drivers
	maxReason  = 200 // bytes of a reason
)

// WhyNot returns the reason why the gateway does not offer a driver; empty if its Endpoint
// does not announce it. The text comes from another cluster.
func (g Gateway) WhyNot(driver string) string {
	if why := g.Missing[driver]; why != "" {
		return why
	}
	for part := range strings.SplitSeq(driver, "+") {
		if why := g.Missing[part]; why != "" && !g.Offers(part) {
			return why
		}
	}
	return ""
}

// NotOffered returns the error of a pair whose driver the gateway does not offer.
func (g Gateway) NotOffered(driver string) error {
	if why := g.WhyNot(driver); why != "" {
		return fmt.Errorf("cluster %s does not offer %s: %s", g.Cluster, driver, why)
	}
	return fmt.Errorf("cluster %s does not offer %s", g.Cluster, driver)
}

// FormatMissing returns the reasons why a gateway does not offer drivers as the value of
// submarinerv1.BackendMissing: lines of the form "driver: reason", sorted. A reason of a
// combined cable is left out if it is the reason of one of its parts.
func FormatMissing(reasons map[string]string) string {
	var lines []string
	for _, driver := range slices.Sorted(maps.Keys(reasons)) {
		why := reasons[driver]
		isParts := func(part string) bool { return part != driver && reasons[part] == why }
		if !slices.ContainsFunc(strings.Split(driver, "+"), isParts) {
			lines = append(lines, driver+": "+cleanReason(why))
		}
	}
	return strings.Join(lines, "\n")
}

// parseMissing parses the result of FormatMissing. It skips lines in any other format.
func parseMissing(text string) map[string]string {
	var out map[string]string
	for line := range strings.Lines(text) {
		driver, why, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if driver = Canonical(driver); !ok || len(driver) > maxReason || len(out) == maxMissing {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[driver] = cleanReason(why)
	}
	return out
}

// cleanReason returns a text as one line of limited length, of printable characters.
func cleanReason(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return ' '
		}
		return r
	}, text)
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "") + " …"
	}
	return text
}
