package mesh

import (
	"time"

	submarinerv1 "subctl/api/submariner/v1"
)

// This file is about the age of the reports of this cluster's gateways. A report has a time by the clock of its own node, which may be wrong, so whoever
// reads it counts from when it came, by a clock of its own.

// Heard is when the reports of gateways came, by name of the gateway.
type Heard map[string]heard

// heard is the last report of a gateway.
type heard struct {
	stamp string    // submarinerv1.TimestampAnnotation
	at    time.Time // when this agent has first seen it
}

// Hear sets Heard, given the Heard of the last snapshot. For an agent that has just started, all reports are new.
func (s *Snapshot) Hear(before Heard) {
	s.Heard = Heard{}
	for _, g := range List[*submarinerv1.Gateway](*s) {
		h := heard{g.Annotations[submarinerv1.TimestampAnnotation], s.Now}
		if was, ok := before[g.Name]; ok && was.stamp == h.stamp {
			h = was
		}
		s.Heard[g.Name] = h
	}
}

// ReportAge returns the time since the last report of a gateway has come; the longest Duration if none has.
func (s Snapshot) ReportAge(gateway string) time.Duration { return s.Now.Sub(s.Heard[gateway].at) }

// Reporting reports whether a report of a gateway has come a moment ago, so that its agent works.
func (s Snapshot) Reporting(gateway string) bool { return s.ReportAge(gateway) < deadAfter }

// outdated reports whether another gateway has reported so much later than one that this one's agent, or its node, is dead. While the API server cannot
// be reached, nobody reports.
func (s Snapshot) outdated(gateway string) bool {
	last, ok := s.Heard[gateway]
	for _, other := range s.Heard {
		if ok && other.at.Sub(last.at) >= deadAfter {
			return true
		}
	}
	return false
}
