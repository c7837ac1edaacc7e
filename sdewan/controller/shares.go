package controller

import (
	"context"
	"slices"
	"sync"
)

// shares are slots for steps of the work on an item. As with fairQueue, a namespace takes one only
// while it has fewer than are free, so that whoever runs CNFs in some namespaces keeps the CNFs of
// others waiting only so far: of 64 slots, one namespace has at most 32, a second one then 16, a
// third one 8. Seven namespaces can take all 64.
type shares struct {
	most int

	mu      sync.Mutex
	total   int
	taken   map[string]int             // by namespace
	waiting map[string][]chan struct{} // by namespace, in order; is closed when the slot is there
}

func newShares(most int) *shares {
	return &shares{most: most, taken: map[string]int{}, waiting: map[string][]chan struct{}{}}
}

// try takes a slot, if there is one. The caller has locked s.mu.
func (s *shares) try(namespace string) bool {
	if s.taken[namespace] >= s.most-s.total {
		return false
	}
	s.total++
	s.taken[namespace]++
	return true
}

// take waits for a slot. Of those that wait in a namespace, the one that came first is the next.
func (s *shares) take(ctx context.Context, namespace string) error {
	s.mu.Lock()
	if s.try(namespace) {
		s.mu.Unlock()
		return nil
	}
	ready := make(chan struct{})
	s.waiting[namespace] = append(s.waiting[namespace], ready)
	s.mu.Unlock()
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	i := slices.Index(s.waiting[namespace], ready)
	if i >= 0 {
		s.setWaiting(namespace, slices.Delete(s.waiting[namespace], i, i+1))
	}
	s.mu.Unlock()
	if i < 0 { // the slot has come at the same time
		s.give(namespace)
	}
	return context.Cause(ctx)
}

// give gives a slot back: to the namespace that has the fewest, of those in which somebody waits.
func (s *shares) give(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.taken[namespace]--; s.taken[namespace] == 0 {
		delete(s.taken, namespace)
	}
	for len(s.waiting) > 0 {
		next := ""
		fewest := s.most
		for ns := range s.waiting {
			if s.taken[ns] < fewest {
				next = ns
				fewest = s.taken[ns]
			}
		}
		if !s.try(next) {
			return
		}
		close(s.waiting[next][0])
		s.setWaiting(next, s.waiting[next][1:])
	}
}

func (s *shares) setWaiting(namespace string, waiting []chan struct{}) {
	if s.waiting[namespace] = waiting; len(waiting) == 0 {
		delete(s.waiting, namespace)
	}
}
