package look

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"subctl/agent/mesh"
	submarinerv1 "subctl/api/submariner/v1"
)

// gatewayTimeout is how old a gateway's report may be: it is written every 5 s.
const gatewayTimeout = 15 * time.Second

// NoGateways is what is wrong with a cluster that has joined and has no gateway.
const NoGateways = `no gateways detected: label a node with ` + submarinerv1.GatewayNodeLabel + `=true, and see that its gateway pod runs`

// GatewayFault says what keeps a gateway from its work, or from what it was told; ""
// if nothing does.
func GatewayFault(gw submarinerv1.Gateway, now time.Time) string {
	if old := Stale(gw, now); old != "" {
		return old
	}
	var faults []string
	if gw.Status.StatusFailure != "" {
		faults = append(faults, gw.Status.StatusFailure)
	}
	for _, c := range gw.Status.Conditions {
		if text := cmp.Or(c.Message, c.Reason); mesh.Wrong(c) && !slices.Contains(faults, text) {
			faults = append(faults, text)
		}
	}
	return strings.ReplaceAll(strings.Join(faults, "; "), "\n", "; ")
}

// Stale says since when a gateway has not reported, if that is too long.
func Stale(gw submarinerv1.Gateway, now time.Time) string {
	last, ok := gw.ReportedAt()
	if !ok {
		return "not updated: it has no time of its last report"
	}
	if now.Sub(last) <= gatewayTimeout {
		return ""
	}
	return "not updated since " + last.UTC().Format(time.RFC3339)
}
