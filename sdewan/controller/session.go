package controller

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"subctl/sdewan/rest"
	restclient "subctl/sdewan/rest/client"
)

// maxRounds is the maximum number of times that a pod is compared with its desired state, until
// nothing is left to do. An object that depends on another one needs a second round, an order that
// is wrong a third one, and the last one finds nothing to do.
const maxRounds = 6

// maxHeld bounds the objects of a pod that are in memory, in bytes: 10,000 rules take 5 MiB.
const maxHeld = 16 << 20

// session is one sync.
type session struct {
	*memory
	api     api
	desires []desire
	options syncOptions
	synced
	have map[*rest.Collection]listing // as the pod returned it
	// what was written in this session, as it was before; the zero Item for what was created
	before   map[id]restclient.Item
	stale    []desire    // collections to be read before they are compared
	failures int         // answers of 5xx in this round, and missing ones
	hangs    int         // missing answers
	start    int         // memory.tries at the beginning
	retry    map[id]bool // what was refused in earlier sessions, and is to be tried now
	begun    bool        // something was sent
	// after which no change is begun but the first one; the zero Time if there is no limit
	until      time.Time
	retryFor   time.Duration // bounds the time for what was refused before
	unreported map[id]bool   // what was refused in this session, and not reported yet
	lastReport time.Time     // when reportRefusals looked last, or the beginning
}

// mayBegin reports whether there is time for one more change.
func (s *session) mayBegin() bool {
	if s.stopped == nil && s.begun && !s.until.IsZero() && time.Now().After(s.until) {
		s.stopped = errSlow
	}
	s.begun = true
	return s.stopped == nil
}

var errSlow = errors.New("the CNF responds too slowly: a part of the configuration was sent, and the rest follows")

// settle repeats rounds until one has nothing to do, or can do nothing.
func (s *session) settle(ctx context.Context) error {
	for range maxRounds {
		for _, d := range s.stale {
			if err := s.list(ctx, d); err != nil {
				return err
			}
		}
		s.refused = map[id]error{}
		s.unsent = map[id]bool{}
		s.failures = 0
		var touched []desire
		done := 0
		for _, d := range s.desires {
			ops := plan(d, s.have[d.collection],
				func(w wanted, i restclient.Item) bool { return s.holds(d.collection, w, i) })
			n, err := s.carryOut(ctx, d, ops)
			if err == nil && n == 0 {
				further := s.moves(d)
				ops = append(ops, further...)
				n, err = s.carryOut(ctx, d, further)
			}
			if err != nil {
				return err
			}
			if done += n; len(ops) > 0 {
				touched = append(touched, d)
			}
		}
		for _, d := range slices.Backward(s.desires) {
			ops := leftovers(d, s.have[d.collection])
			s.noteRemovals(d, ops)
			n, err := s.carryOut(ctx, d, ops)
			if err != nil {
				return err
			}
			if done += n; len(ops) > 0 &&
				!slices.ContainsFunc(touched, func(t desire) bool { return t.collection == d.collection }) {
				touched = append(touched, d)
			}
		}
		if s.stale = touched; done == 0 {
			s.stale = nil
			return s.resolve(ctx, touched)
		}
	}
	s.differ()
	return nil
}

// resolve reads the collections again in which the last round was refused a change.
func (s *session) resolve(ctx context.Context, touched []desire) error {
	for _, d := range touched {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(s.doubts)),
			func(key id) bool { return key.collection == d.collection }) {
			continue
		}
		if err := s.list(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// differ refuses what still differs: the CNF does not hold what it has accepted.
func (s *session) differ() {
	for _, d := range s.desires {
		ops := plan(d, s.have[d.collection],
			func(w wanted, i restclient.Item) bool { return s.holds(d.collection, w, i) })
		for _, o := range slices.Concat(ops, s.moves(d), leftovers(d, s.have[d.collection])) {
			if key := (id{d.collection, o.name}); s.refused[key] == nil && !s.unsent[key] {
				s.refused[key] = errDiffers
			}
		}
	}
}

// moves returns what corrects the order of a collection.
func (s *session) moves(d desire) []op {
	return moves(d, s.have[d.collection], func(name string) bool { return s.refused[id{d.collection, name}] != nil })
}

var errDiffers = errors.New("the CNF accepts the object, but then returns another one: look at it on the CNF")

// list reads a collection. A CNF without the module is like one without objects, as long as none
// are wanted.
func (s *session) list(ctx context.Context, d desire) error {
	items, err := s.api.List(ctx, d.collection)
	if restclient.CodeOf(err) == http.StatusNotFound {
		items = nil
		err = nil
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", d.collection, err)
	}
	have := newListing(items)
	s.have[d.collection] = have
	size := 0
	for _, l := range s.have {
		for _, item := range l.items {
			size += item.Size()
		}
	}
	if size > maxHeld {
		return fmt.Errorf("reading %s: the CNF has objects of more than %d MiB altogether", d.collection, maxHeld>>20)
	}
	for key, r := range s.refusals {
		if key.collection == d.collection && s.done(d, key.name, r) {
			delete(s.refusals, key)
		}
	}
	for key, before := range s.doubts {
		if key.collection != d.collection {
			continue
		}
		var now doubt
		if at, ok := have.first[key.name]; ok {
			now = doubtOf(have.items[at])
		}
		changed := now != before
		if changed && d.collection.Service != "" {
			s.owed[d.collection.Service] = true
		}
		if changed || !s.refusals[key].hung { // the CNF may still be at it
			delete(s.doubts, key)
		}
	}
	return nil
}

// done reports whether a refusal no longer matters: the object is neither on the CNF nor wanted, or
// there was no answer and the CNF holds what it was sent.
func (s *session) done(d desire, name string, r refusal) bool {
	have := s.have[d.collection]
	at, exists := have.first[name]
	if exists && (!r.hung || r.verb == move) {
		return false
	}
	i := slices.IndexFunc(d.objects, func(w wanted) bool { return w.object.GetName() == name })
	if i < 0 || !exists {
		return i < 0 && !exists
	}
	return r.sent == digest(d.objects[i].object) && s.holds(d.collection, d.objects[i], have.items[at])
}

// carryOut makes changes of a collection, and returns how many the pod has accepted. An object that
// it refuses, answers with 5xx, or does not answer at all, does not stop the others. What it has
// refused before waits for them: see postponed.
func (s *session) carryOut(ctx context.Context, d desire, ops []op) (done int, err error) {
	l := d.collection
	for _, o := range ops {
		key := id{l, o.name}
		r, ok := s.refusals[key]
		known := ok && r.sent == digest(o.object)
		if known && !s.due(key, r) || !s.mayBegin() {
			if known {
				s.refused[key] = r.err
			} else {
				s.unsent[key] = true
			}
			continue
		}
		began := time.Now()
		err = s.send(ctx, key, o)
		refused := restclient.ClassOf(err) == restclient.Rejected
		// if the connection was closed, the CNF may have ended, and lost what it had
		hung := restclient.TimedOut(err) && s.alive(ctx)
		if hung || !refused && restclient.CodeOf(err) >= http.StatusInternalServerError {
			refused = true
			s.failed(key, o, err, hung)
		}
		if l.Service != "" && (err == nil || !refused || o.verb == move) { // the answer of a change may be lost
			s.owed[l.Service] = true
		}
		switch {
		case err == nil:
			delete(s.refusals, key)
			delete(s.doubts, key)
			delete(s.unreported, key)
			done++
			s.accepted++
			s.changes[change{l, o.verb == remove}] = s.accepted
			if o.verb != move {
				s.written[key] = true
			}
		case refused:
			err = s.hint(ctx, key, err)
			s.tries++
			s.refused[key] = err
			s.refusals[key] = refusal{
				o.verb,
				digest(o.object),
				err,
				hung,
				s.accepted,
				s.tries,
				time.Since(began),
			}
			s.unreported[key] = true
			if before, ok := s.before[key]; ok && o.verb == update {
				s.doubts[key] = doubtOf(before)
			}
		default:
			return done, fmt.Errorf("changing %s/%s: %w", l, o.name, err)
		}
		s.reportRefusals()
	}
	return done, nil
}

// holds reports whether a CNF that returned item holds an object.
func (s *session) holds(l *rest.Collection, w wanted, item restclient.Item) bool {
	matches, unreadable := item.Matches(w.object)
	if matches && (!unreadable || w.trusted) {
		return true
	}
	key := id{l, item.Name}
	sum := digest(w.object)
	if a, ok := s.answers[key]; ok && a.sent == sum && a.got == item.Digest() {
		return true
	}
	// It was written a moment ago, and this is what the CNF makes of it.
	if before, written := s.before[key]; written && (matches || !before.Same(item)) {
		s.answers[key] = answer{sum, item.Digest()}
		return true
	}
	return false
}

// digest identifies an object as it is written.
func digest(o rest.Object) [sha256.Size]byte {
	b, _ := json.Marshal(o) // strings and lists of them can be encoded
	return sha256.Sum256(b)
}

// This file sends changes to a CNF, and decides what a failed or missing answer means.

// maxFailures is the number of objects that a pod may answer with 5xx in a round: with more, the
// pod may be broken, and not the objects, and others are sent in the next sync.
const maxFailures = 8

// maxHangs is the number of objects after which nothing further is sent in a sync because the pod
// has not answered when it was sent them: each takes the whole timeout of a request.
const maxHangs = 2

// send makes one change.
func (s *session) send(ctx context.Context, key id, o op) (err error) {
	l := key.collection
	switch o.verb {
	case create:
		s.before[key] = restclient.Item{}
		_, err = s.api.Create(ctx, l, o.object)
	case update:
		s.before[key] = s.have[l].items[s.have[l].first[o.name]]
		_, err = s.api.Update(ctx, l, o.object)
	case move:
		s.before[key] = restclient.Item{}
		err = s.move(ctx, l, o)
	case remove:
		delete(s.answers, key)
		err = s.api.Delete(ctx, l, o.name)
	}
	return err
}

// move puts an object behind all others. Our CNF does that in one step, so that a rule that moves
// is in effect all the time. Others know only deletion and creation.
func (s *session) move(ctx context.Context, l *rest.Collection, o op) error {
	if err := s.meet(ctx); err != nil {
		return err
	}
	if s.reports {
		if moved, err := s.api.Move(ctx, l, o.object); moved || err != nil {
			return err
		}
	}
	if err := s.api.Delete(ctx, l, o.name); err != nil {
		return err
	}
	_, err := s.api.Create(ctx, l, o.object)
	return err
}

// failed records a change that the CNF has answered with 5xx, or not at all. It may have done a
// part: the next listing tells.
func (s *session) failed(key id, o op, err error, hung bool) {
	if s.failures++; hung {
		s.hangs++
	}
	var why string
	switch {
	case s.hangs == maxHangs:
		why = fmt.Sprintf("did not answer when it was sent %d objects, so no others were sent", s.hangs)
	case s.failures > maxFailures:
		why = "has failed to store so many objects that no others were sent"
	}
	if why != "" {
		s.stopped = fmt.Errorf("the CNF %s: the rest follows; changing %s/%s: %w", why, key.collection, o.name, err)
	}
	before := s.before[key]
	if o.verb == remove {
		have := s.have[key.collection]
		before = have.items[have.first[o.name]]
	}
	s.doubts[key] = doubtOf(before)
	delete(s.before, key)
}

// alive reports whether the CNF answers at all, be it that it has failed.
func (s *session) alive(ctx context.Context) bool {
	_, err := s.api.Effect(ctx)
	return err == nil || restclient.CodeOf(err) != 0
}
