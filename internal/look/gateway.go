package look

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
)

// NoGateways is the problem of a joined cluster without gateways.
const NoGateways = `no gateways detected: label a node with ` + submarinerv1.GatewayNodeLabel +
	`=true, and check that its gateway pod runs`

// GatewayFault returns the problems that a gateway has or reports; empty if there are none.
func GatewayFault(gw submarinerv1.Gateway, now time.Time) string {
	var faults []string
	if old := Stale(gw, now); old != "" && !Ahead(gw, now) {
		return old
	} else if old != "" {
		faults = append(faults, old)
	}
	if gw.Status.StatusFailure != "" {
		faults = append(faults, gw.Status.StatusFailure)
	}
	for _, c := range gw.Status.Conditions {
		if text := cmp.Or(c.Message, c.Reason); role.Wrong(c) && !slices.Contains(faults, text) {
			faults = append(faults, text)
		}
	}
	return strings.ReplaceAll(strings.Join(faults, "; "), "\n", "; ")
}

// Replaced reports whether another gateway of the site has become active since gw reported that it
// is active. A gateway that is drained or killed does not report that it is no longer active.
func (s Site) Replaced(gw submarinerv1.Gateway) bool {
	if s.Joined() && s.Submariner.Spec.MultiActiveGatewayEnabled {
		return false
	}
	last, ok := gw.ReportedAt()
	return ok && gw.Status.HAStatus == submarinerv1.HAStatusActive &&
		slices.ContainsFunc(s.Gateways, func(other submarinerv1.Gateway) bool {
			at, ok := other.ReportedAt()
			return ok && other.Status.HAStatus == submarinerv1.HAStatusActive && at.After(last)
		})
}

// HAStatus returns the HA status that the gateway of a node reports; empty if there is no report.
func (s Site) HAStatus(node string) submarinerv1.HAStatus {
	for _, gw := range s.Gateways {
		if gw.Name == node {
			return gw.Status.HAStatus
		}
	}
	return ""
}

// Current returns the gateways that no other one has replaced: the connections of a replaced
// gateway are its successor's.
func (s Site) Current() []submarinerv1.Gateway {
	return slices.DeleteFunc(slices.Clone(s.Gateways), s.Replaced)
}

// Ahead reports whether a report that is Stale is of the future: the clock of the gateway's node is
// ahead. Most such gateways work, so what they report is shown, with a warning. A decision that
// needs a gateway that works does not count on one.
func Ahead(gw submarinerv1.Gateway, now time.Time) bool {
	last, ok := gw.ReportedAt()
	return ok && last.After(now) && !role.Fresh(&gw, now)
}

// Stale returns since when a gateway has not reported, or that nobody knows; empty if its report is
// recent.
func Stale(gw submarinerv1.Gateway, now time.Time) string {
	last, ok := gw.ReportedAt()
	if !ok {
		return "not updated: its report has no time"
	}
	switch {
	case role.Fresh(&gw, now):
		return ""
	case Ahead(gw, now):
		return "not known to be up to date: its report is of the future, " + last.UTC().Format(
			time.RFC3339) + ", as the clock of its node is wrong"
	}
	return "not updated since " + last.UTC().Format(time.RFC3339)
}

// StatusLeaving is the state of a connection that ends because its remote gateway is taken out of
// service. It is not a state that gateways report.
const StatusLeaving = "leaving"

// leavingMessage describes StatusLeaving.
const leavingMessage = "the remote gateway is drained, or its node is no gateway any more"

// ConnectionState returns the state of a connection and its message. That a gateway does not answer
// which has announced that it goes is no fault to look for.
func ConnectionState(c submarinerv1.Connection) (status, message string) {
	announced := c.Endpoint.BackendConfig
	if c.Status != submarinerv1.Connected && (announced[submarinerv1.BackendLeaving] == "true" ||
		announced[submarinerv1.BackendDrain] == submarinerv1.Drained) {
		return StatusLeaving, leavingMessage
	}
	return string(c.Status), c.StatusMessage
}
