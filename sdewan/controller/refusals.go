package controller

import (
	"crypto/sha256"
	"slices"
	"time"

	"subctl/sdewan/rest"
)

// This file decides when to send again what a CNF has refused.

// reportEvery is how often the sync of a CNF that answers slowly, which takes minutes, reports what
// the CNF has refused.
const reportEvery = time.Second

// refusal is an answer of 4xx or 5xx to an op, or a missing one.
type refusal struct {
	verb  verb
	sent  [sha256.Size]byte // the digest of the object
	err   error
	hung  bool          // there was no answer
	after int           // memory.accepted at that time
	try   int           // memory.tries
	took  time.Duration // until the answer
}

// heals reports whether some sorts of changes may make the CNF accept an op of a collection that it
// has refused. What an object lacks is in a collection of its module before its own; it is in use
// by one of a collection after its own; and what there is too much of, or twice, is in its own. In
// other cases, and if there was no answer, the next sync tries again.
func (r refusal) heals(l *rest.Collection, some func(change) bool) bool {
	if r.hung {
		return false
	}
	own := slices.Index(rest.Collections, l)
	for i, other := range rest.Collections {
		if other.Module != l.Module {
			continue
		}
		written := some(change{other, false})
		removed := some(change{other, true})
		if r.verb == remove && i > own && (written || removed) ||
			r.verb != remove && (i < own && written || i == own && removed) {
			return true
		}
	}
	return false
}

// again reports whether to retry an op that the CNF has refused: something that may be the reason
// has changed since.
func (s *session) again(l *rest.Collection, r refusal) bool {
	return r.heals(l, func(c change) bool { return s.changes[c] > r.after })
}

// due reports whether an op that the CNF has refused is to be tried now.
func (s *session) due(key id, r refusal) bool {
	if r.try <= s.start {
		return s.retry[key]
	}
	return s.again(key.collection, r)
}

// postponed chooses what is tried again of what the CNF has refused in earlier sessions: what was
// not tried for longest, and as much as the CNF answers in the time for that, if it answers as last
// time. So a CNF that refuses slowly, and what it refuses, delay others for a bounded time. It
// reports whether there is anything.
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

// reportRefusals reports what the CNF has refused in this sync, unless something that is left to do
// may change that: removals, and what was refused, too.
func (s *session) reportRefusals() {
	if s.options.report == nil || len(s.unreported) == 0 || time.Since(s.lastReport) < reportEvery {
		return
	}
	s.lastReport = time.Now()
	left := map[change]bool{}
	for _, d := range s.desires {
		left[change{d.collection, true}] = len(leftovers(d, s.have[d.collection])) > 0
	}
	for key := range s.refused {
		left[change{key.collection, s.refusals[key].verb == remove}] = true
	}
	final := map[id]error{}
	for key := range s.unreported {
		if err := s.refused[key]; err != nil &&
			!s.refusals[key].heals(key.collection, func(c change) bool { return left[c] }) {
			final[key] = err
			delete(s.unreported, key)
		}
	}
	if len(final) > 0 {
		s.options.report(final)
	}
}
