package drain

import (
	"fmt"
	"strings"
	"unicode/utf8"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
	"subctl/internal/look"
	"subctl/internal/printer"
	"subctl/internal/words"
)

// Carried describes the connections that a gateway reports, and lists those that the report names:
// see listed. The text is empty if they are not known.
func Carried(s look.Site, name string) (text string, list []string) {
	gw := report(s, name)
	if gw == nil || gw.Status.Flows == nil || look.Stale(*gw, s.Now) != "" {
		return "", nil
	}
	if *gw.Status.Flows == 0 {
		return fmt.Sprintf("gateway %s carries no connections", name), nil
	}
	text = fmt.Sprintf("gateway %s carries %s", name, words.Count(int(*gw.Status.Flows), "connection"))
	if list = listed(gw); len(list) > 0 {
		text += ":"
	}
	return text, list
}

// listed returns the connections that the report of a gateway names, aligned, and as the last line
// how many more there are.
func listed(gw *submarinerv1.Gateway) []string {
	const to = " → " // as in dataplane.Flow
	var lines []string
	width := 0
	for _, f := range gw.Status.SomeFlows[:min(len(gw.Status.SomeFlows), dataplane.MaxFlows)] {
		f = printer.Clean(f)
		from, _, _ := strings.Cut(f, to)
		lines = append(lines, f)
		width = max(width, utf8.RuneCountInString(from))
	}
	for i, f := range lines {
		if from, dest, ok := strings.Cut(f, to); ok {
			lines[i] = fmt.Sprintf("%-*s%s%s", width, from, to, dest)
		}
	}
	if n := gw.Status.Flows; n != nil && len(lines) > 0 && int(*n) > len(lines) {
		lines = append(lines, fmt.Sprintf("and %d more", int(*n)-len(lines)))
	}
	return lines
}
