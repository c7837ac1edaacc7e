package controller

import (
	"context"
	"time"

	"subctl/sdewan/rest"
	restclient "subctl/sdewan/rest/client"
)

// api is the part of a pod's REST API that the controller uses.
type api interface {
	List(context.Context, *rest.Collection) ([]restclient.Item, error)
	Create(context.Context, *rest.Collection, rest.Object) (restclient.Item, error)
	Update(context.Context, *rest.Collection, rest.Object) (restclient.Item, error)
	Move(context.Context, *rest.Collection, rest.Object) (bool, error)
	Delete(context.Context, *rest.Collection, string) error
	Restart(context.Context, string, []rest.Object) error
	Effect(context.Context) (restclient.Effect, error)
}

// synced is the state of a pod after everything was done that could be done.
type synced struct {
	// remains are the objects of deleted rules that the pod still has. No more is kept of what a
	// pod returned: see fleet.done.
	remains map[id]bool
	// refused has the reason for each object that the pod did not accept, or did not remove.
	refused map[id]error
	// written are the objects that were created or changed. One that was moved is what it was, and
	// its rule as much applied as before: on OpenWrt, a change of one rule moves all that follow
	// it.
	written map[id]bool
	// restarts has the reason for each service that did not restart.
	restarts map[string]error
	// unsent are the objects of which a change was not sent, for the reason stopped. Services in
	// waiting are restarted when all is sent.
	unsent  map[id]bool
	stopped error
	waiting map[string]bool
	// unapplied is true if the CNF reports that its kernel does not hold its configuration, and
	// ineffective has what the CNF reports of each object that has no effect, or of which a part
	// has none.
	unapplied   bool
	ineffective map[id]string
	// strangers are the objects for which no rule stands. Names are all that is kept of them.
	strangers strangers
	// unlisted is how many further objects without effect the CNF has.
	unlisted int
}

// syncOptions are two functions of sync's caller. Each is nil if there is nothing to say or to
// hear.
type syncOptions struct {
	// owes reports whether a service may have to be restarted, for a pod that this controller has
	// not seen before: another one may have changed objects, and ended before the restart.
	owes func(service string) bool
	// report is given what the CNF has refused for good, while the sync goes on.
	report func(refused map[id]error)
}

// sync makes a pod hold what it should, in the order of the collections, which is that of their
// dependencies, and restarts the services whose objects have changed. What the pod has refused in
// earlier syncs is tried after that, unless something has changed that may have been the reason. If
// the context has a deadline, the last quarter of the time is for restarts: what is left then is
// unsent. Sync returns an error if the pod did not answer; the next sync finds out how far this one
// got.
func (m *memory) sync(ctx context.Context, c api, desires []desire, o syncOptions) (synced, error) {
	s := &session{
		memory:     m,
		api:        c,
		desires:    desires,
		options:    o,
		have:       map[*rest.Collection]listing{},
		before:     map[id]restclient.Item{},
		stale:      desires,
		start:      m.tries,
		unreported: map[id]bool{},
		lastReport: time.Now(),
		synced:     synced{written: map[id]bool{}, restarts: map[string]error{}, waiting: map[string]bool{}},
	}
	if deadline, ok := ctx.Deadline(); ok {
		s.retryFor = time.Until(deadline) / 4
		s.until = deadline.Add(-s.retryFor)
	}
	for _, d := range desires {
		if service := d.collection.Service; service != "" {
			if _, seen := m.owed[service]; !seen {
				m.owed[service] = o.owes != nil && o.owes(service)
			}
		}
	}
	err := s.run(ctx)
	s.remains = s.remaining()
	return s.synced, err
}

// run makes the changes.
func (s *session) run(ctx context.Context) error {
	if err := s.settle(ctx); err != nil {
		return err
	}
	if s.postponed(func(key id, r refusal) bool { return s.again(key.collection, r) }) {
		if err := s.settle(ctx); err != nil {
			return err
		}
	}
	if !s.started && !s.owesAny() {
		if err := s.memory.start(ctx, s.api); err != nil {
			return err
		}
	}
	if err := s.restart(ctx); err != nil {
		return err
	}
	if s.postponed(func(id, refusal) bool { return true }) {
		if err := s.settle(ctx); err != nil {
			return err
		}
		if err := s.restart(ctx); err != nil {
			return err
		}
	}
	if err := s.rewrite(ctx); err != nil {
		return err
	}
	s.noteKept()
	return s.look(ctx)
}

// remaining returns the objects of deleted rules that the pod still has.
func (s *session) remaining() map[id]bool {
	out := map[id]bool{}
	for _, d := range s.desires {
		for _, name := range d.deleted {
			if s.have[d.collection].has(name) {
				out[id{d.collection, name}] = true
			}
		}
	}
	return out
}

// restart restarts the services whose objects have changed, once all changes of them were sent:
// until then their order may be wrong.
func (s *session) restart(ctx context.Context) error {
	clear(s.waiting)
	for _, service := range restartOrder {
		if !s.owed[service] || s.restarts[service] != nil {
			continue
		}
		for key := range s.unsent {
			if key.collection.Service == service {
				s.waiting[service] = true
			}
		}
		if s.waiting[service] {
			continue
		}
		var objects []rest.Object
		for _, d := range s.desires {
			if d.collection.Service == service {
				for _, w := range d.objects {
					objects = append(objects, w.object)
				}
			}
		}
		flushes := false
		if service == "firewall" {
			var err error
			if flushes, err = s.flushes(ctx); err != nil {
				return err
			}
		}
		err := s.api.Restart(ctx, service, objects)
		if flushes && restclient.CodeOf(err) == 0 { // also if the answer is lost
			s.flushed()
		}
		if err != nil {
			s.restarts[service] = err
			continue
		}
		s.owed[service] = false
		s.started = true
	}
	return nil
}
