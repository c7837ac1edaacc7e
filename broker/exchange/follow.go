package exchange

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"
)

// This file decides which clustersets are watched, and which are polled: see rounds.go.

// followed is a clusterset of the grant.
type followed struct {
	side
	stop  context.CancelFunc // ends its watches; nil while it is polled
	ended *sync.WaitGroup    // of the watches

	deniedSince time.Time // see leaveDenied
}

// follow reads exactly these clustersets.
func (e *Exchange) follow(ctx context.Context, sets []string, watches *sync.WaitGroup) {
	first := len(e.sets) == 0
	before := make(map[string]*followed, len(e.sets))
	for _, f := range e.sets {
		before[f.set.Name] = f
	}
	var now []*followed
	for _, name := range slices.Compact(slices.Sorted(slices.Values(sets))) {
		f := before[name]
		if f == nil {
			namespace := e.config.NamespaceOf(name)
			f = &followed{side: e.side(Set{Name: name, Namespace: namespace}, e.broker, namespace)}
		}
		delete(before, name)
		now = append(now, f)
	}
	for _, f := range before {
		e.unwatch(f)
		e.rounds.remove(f.set.Name)
	}
	wants := watchable(now, e.watched)
	for _, f := range now { // first, so that there are never too many watches
		if f.stop != nil && !wants[f] {
			e.unwatch(f)
			f.restart()
			f.polled = true
			e.rounds.add(f.side, false)
		}
	}
	for _, f := range now {
		switch {
		case wants[f] && f.stop == nil:
			e.rounds.remove(f.set.Name)
			e.startWatch(ctx, f, watches)
			f.polled = false
		case !wants[f] && !f.polled: // it is new
			f.polled = true
			e.rounds.add(f.side, !first)
		}
	}
	e.sets = now
}

// startWatch watches a clusterset.
func (e *Exchange) startWatch(ctx context.Context, f *followed, watches *sync.WaitGroup) {
	f.restart()
	running, stop := context.WithCancel(ctx)
	f.stop = stop
	f.ended = &sync.WaitGroup{}
	f.watch(running, f.ended)
	ended := f.ended
	watches.Go(ended.Wait)
}

// unwatch ends the watches of a clusterset, if it has any.
func (e *Exchange) unwatch(f *followed) {
	if f.stop == nil {
		return
	}
	f.stop()
	f.ended.Wait()
	f.stop = nil
}

// restart begins another way of reading the clusterset.
func (s side) restart() {
	for _, m := range s.mirrors {
		m.restart()
	}
}

// watchable returns which clustersets to watch: those with the most members, and the first by name
// where the numbers are equal. Until all clustersets were read, the watched ones stay the same.
func watchable(sets []*followed, most int) map[*followed]bool {
	order := slices.Clone(sets)
	if len(order) > most {
		size := make(map[*followed]int, len(sets))
		known := true
		for _, f := range sets {
			n, read := f.members()
			size[f] = n
			known = known && read
		}
		if !known {
			for _, f := range sets {
				size[f] = 0
				if f.stop != nil {
					size[f] = 1
				}
			}
		}
		slices.SortStableFunc(order, func(a, b *followed) int { return cmp.Compare(size[b], size[a]) })
		order = order[:most]
	}
	out := make(map[*followed]bool, len(order))
	for _, f := range order {
		out[f] = true
	}
	return out
}

// places returns how many clusters have a place, and have not published a Cluster yet.
func (s side) places() (n int) {
	for _, m := range s.mirrors {
		if m.kind.hasGrant() {
			m.mu.Lock()
			n += len(m.empty)
			m.mu.Unlock()
		}
	}
	return n
}

// members returns how many clusters have published a Cluster, and whether that was read.
func (s side) members() (n int, known bool) {
	for _, m := range s.mirrors {
		if !m.kind.hasGrant() {
			continue
		}
		m.mu.Lock()
		n = n + len(m.objects)
		known = m.known || m.tooMany
		m.mu.Unlock()
	}
	return n, known
}
