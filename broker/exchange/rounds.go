package exchange

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"subctl/internal/wake"
)

// This file polls the clustersets that are not watched. An API server accepts 100 requests at a
// time on a connection, and a watch is a request that does not end. With four watches for each
// clusterset, a hub in 1,000 clustersets would need 40 connections. So a cluster watches as many
// clustersets as fit into three connections, and lists the others in turn: see
// docs/adr/0023-many-clustersets.md.

const (
	// streamsOfOne is the number of requests at a time on a connection. An API server accepts 100
	// (--http2-max-streams-per-connection), but Go's client still counts a request for a moment
	// after its answer was read.
	streamsOfOne = 90
	// mostWatches is the maximum number of watches at a time: as many as three connections carry,
	// less the other requests.
	mostWatches = 3*streamsOfOne - pollers - writers
	// period is the time from one poll of a clusterset to the next.
	period = 10 * time.Second
	// batch is the time by which a poll may be late, so that several polls go together: a request
	// alone takes twice the CPU time.
	batch = 250 * time.Millisecond
	// hurriedPeriod is the same for hurry after a change was announced, until which everybody has
	// followed it.
	hurriedPeriod = 400 * time.Millisecond
	hurry         = 15 * time.Second
	// joining is the time within which a cluster that has got its place in a clusterset is expected
	// to publish its Cluster.
	joining = 2 * time.Minute
	// listsPerSecond and pollers bound the load on the broker: the clustersets wait longer for
	// their turn.
	listsPerSecond = 400
	pollers        = 8
)

// rounds polls clustersets in turn.
type rounds struct {
	period  time.Duration
	lists   *rate.Limiter
	trigger wake.Signal

	mu    sync.Mutex
	turns map[string]*turn // by clusterset
}

// turn is the schedule of the polls of a clusterset.
type turn struct {
	side    side
	due     time.Time // zero: it was not polled yet
	hurried time.Time // until when it is polled more often
	places  int       // without a Cluster, in the poll before
	joined  time.Time // when a poll has last found more of them
	polling bool
	all     bool // the poll reads all kinds: see side.poll
	partial bool // the poll before did not
}

func newRounds() *rounds {
	return &rounds{
		period:  period,
		lists:   rate.NewLimiter(listsPerSecond, pollers),
		trigger: wake.NewSignal(),
		turns:   map[string]*turn{},
	}
}

// run polls until ctx is done.
func (r *rounds) run(ctx context.Context) {
	var polls sync.WaitGroup
	defer polls.Wait()
	free := make(chan struct{}, pollers)
	for ctx.Err() == nil {
		t, wait := r.next(time.Now())
		if t == nil {
			select {
			case <-ctx.Done():
			case <-r.trigger:
			case <-time.After(wait):
			}
			continue
		}
		free <- struct{}{}
		polls.Go(func() {
			again := t.side.poll(ctx, r.lists, t.all)
			r.planNextPoll(t, again, time.Now())
			<-free
		})
	}
}

// next returns the clusterset whose turn it is, or how long to wait for the next one.
func (r *rounds) next(now time.Time) (next *turn, wait time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.turns {
		if !t.polling && (next == nil || t.due.Before(next.due)) {
			next = t
		}
	}
	if next == nil {
		return nil, r.period
	}
	hurried := now.Before(next.hurried)
	if wait := next.due.Sub(now); wait > 0 && hurried {
		return nil, wait
	} else if wait > 0 {
		return nil, max(wait, min(batch, r.period))
	}
	next.all = hurried || next.partial || next.due.IsZero()
	next.partial = !next.all
	next.polling = true
	return next, 0
}

// planNextPoll determines the next turn of a clusterset after a poll.
func (r *rounds) planNextPoll(t *turn, again bool, now time.Time) {
	places := t.side.places()
	r.mu.Lock()
	if places > t.places { // a cluster joins: its file gives it no right to announce that
		t.joined = now
	}
	if t.places = places; places > 0 && now.Sub(t.joined) < joining {
		t.hurried = now.Add(hurry)
	}
	switch t.polling = false; {
	case again:
		t.due = now
	case now.Before(t.hurried):
		t.due = now.Add(min(hurriedPeriod, r.period))
	default:
		t.due = now.Add(r.period)
	}
	soon := t.due.Sub(now) < r.period
	r.mu.Unlock()
	if soon {
		r.trigger.Send()
	}
}

// add polls a clusterset from now on. If it is new, it is polled often at first: other members may
// be new, too.
func (r *rounds) add(s side, isNew bool) {
	r.mu.Lock()
	r.turns[s.set.Name] = &turn{side: s}
	r.mu.Unlock()
	if isNew {
		r.hasten(s.set.Name)
	}
	r.trigger.Send()
}

// remove ends the polls of a clusterset.
func (r *rounds) remove(set string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.turns, set)
}

// hasten polls a clusterset at once, if it is polled, and often for a while: the administrator has
// changed who is in it, and its members may not have followed yet; or somebody else has changed
// objects of this cluster.
func (r *rounds) hasten(set string) {
	r.mu.Lock()
	if t := r.turns[set]; t != nil {
		t.due = time.Time{}
		t.hurried = time.Now().Add(hurry)
	}
	r.mu.Unlock()
	r.trigger.Send()
}

// poll reads a side once: its Clusters, which are few, and show who joins and leaves; and the other
// kinds if all is set, if the Clusters have changed, or if a poll has failed. It reports whether
// something has changed there meanwhile, so that it must be read again.
func (s side) poll(ctx context.Context, lists *rate.Limiter, all bool) (again bool) {
	all = all || s.fault() != nil
	for _, m := range s.mirrors {
		if !m.kind.hasGrant() {
			continue
		}
		if lists.Wait(ctx) != nil {
			return false
		}
		changed, late := m.poll(ctx)
		all = all || changed
		again = again || late
	}
	for _, m := range s.mirrors {
		if !all || m.kind.hasGrant() {
			continue
		}
		if lists.Wait(ctx) != nil {
			return false
		}
		_, late := m.poll(ctx)
		again = again || late
	}
	return again
}

// MostWatched returns how many clustersets a cluster watches. It polls the others.
func MostWatched() int { return Kinds().mostWatched() }

func (t Table) mostWatched() int { return (mostWatches - 1) / len(t) } // one watch is for the grant
