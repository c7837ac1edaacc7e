package role

import (
	"time"

	submarinerv1 "subctl/api/submariner/v1"
)

// This file is about the age of the reports of this cluster's gateways. A report has a time by the
// clock of its own node, which may be wrong, so whoever reads it counts from when it came, by a
// clock of its own. Commands cannot: they have seen no report come.

// ReportTimes is when the reports of gateways came, by name of the gateway.
type ReportTimes map[string]ReportTime

// ReportTime is the last report of a gateway.
type ReportTime struct {
	stamp string    // submarinerv1.TimestampAnnotation
	At    time.Time // when this agent has first seen it
	seen  bool      // this agent has seen it come: it was not there when the agent started
}

// NoteReports sets Heard, given the Heard of the last snapshot, which is nil for an agent that has
// just started: all reports have just come then.
func (s *Snapshot) NoteReports(before ReportTimes) {
	s.ReportTimes = ReportTimes{}
	for _, g := range List[*submarinerv1.Gateway](*s) {
		h := ReportTime{g.Annotations[submarinerv1.TimestampAnnotation], s.Now, before != nil}
		if was, ok := before[g.Name]; ok && was.stamp == h.stamp {
			h = was
		}
		s.ReportTimes[g.Name] = h
	}
}

// ReportAge returns the time since the last report of a gateway has come; the longest Duration if
// none has.
func (s Snapshot) ReportAge(gateway string) time.Duration {
	return s.Now.Sub(s.ReportTimes[gateway].At)
}

// Reporting reports whether a report of a gateway has come a moment ago, so that its agent works.
func (s Snapshot) Reporting(gateway string) bool { return s.ReportAge(gateway) < DeadAfter }

// Works reports whether a gateway's agent is known to work: it is Reporting, and this agent has
// seen a report of it come. One that was there when this agent started may be of a gateway that is
// dead.
func (s Snapshot) Works(gateway string) bool {
	return s.Reporting(gateway) && s.ReportTimes[gateway].seen
}

// Fresh reports whether a gateway has reported a moment ago by the time that its report states, as
// commands judge it. A time in the future tells nothing: the clock of a gateway that is dead may
// have been ahead.
func Fresh(g *submarinerv1.Gateway, now time.Time) bool {
	at, ok := g.ReportedAt()
	return ok && now.Sub(at).Abs() < DeadAfter
}

// Outdated reports whether another gateway has reported so much later than one that this one's
// agent, or its node, is dead. While the API server cannot be reached, nobody reports.
func (s Snapshot) Outdated(gateway string) bool {
	last, ok := s.ReportTimes[gateway]
	for _, other := range s.ReportTimes {
		if ok && other.At.Sub(last.At) >= DeadAfter {
			return true
		}
	}
	return false
}
