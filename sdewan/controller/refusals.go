package controller

import (
	"crypto/sha256"
	"slices"
	"time"

	"subctl/sdewan/rest"
)

// This file decides when to send again what a CNF has refused.

// refusal is an answer of 4xx or 5xx to an op.
type refusal struct {
	verb  verb
	sent  [sha256.Size]byte // the digest of the object
	err   error
	after int           // memory.accepted at that time
	try   int           // memory.tries
	took  time.Duration // until the answer
}

// again reports whether to retry an op that the CNF has refused: something that may be the reason has changed since. What an object lacks is
// in a collection of its module before its own; it is in use by one of a collection after its own; and what there is too much of, or twice, is in its own. In
// other cases the next sync tries again.
func (s *session) again(l *rest.Collection, verb verb, r refusal) bool {
	own := slices.Index(rest.Collections, l)
	for i, other := range rest.Collections {
		if other.Module != l.Module {
			continue
		}
		written, removed := s.changes[change{other, false}] > r.after, s.changes[change{other, true}] > r.after
		if verb == remove && i > own && (written || removed) || verb != remove && (i < own && written || i == own && removed) {
			return true
		}
	}
	return false
}

// due reports whether an op that the CNF has refused is to be tried now.
func (s *session) due(key id, r refusal) bool {
	if r.try <= s.start {
		return s.retry[key]
	}
	return s.again(key.collection, r.verb, r)
}

// postponed chooses what is tried again of what the CNF has refused in earlier sessions: what was not tried for longest, and as much as the CNF answers
// in the time for that, if it answers as last time. So a CNF that refuses slowly, and what it refuses, delay others for a bounded time. It reports
// whether there is anything.
func (s *session) postponed(which func(id, refusal) bool) bool {
	s.retry = map[id]bool{}
	if s.stopped != nil {
		return false
	}
	var keys []id
	for key := range s.refused {
		if r, ok := s.refusals[key]; ok && r.try <= s.start && which(key, r) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b id) int { return s.refusals[a].try - s.refusals[b].try })
	left := s.retryFor
	for _, key := range keys {
		if left -= s.refusals[key].took; left < 0 && len(s.retry) > 0 && !s.until.IsZero() {
			break
		}
		s.retry[key] = true
	}
	return len(s.retry) > 0
}
