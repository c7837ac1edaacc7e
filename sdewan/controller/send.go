package controller

import (
	"context"
	"fmt"

	"subctl/sdewan/rest"
	restclient "subctl/sdewan/rest/client"
)

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
