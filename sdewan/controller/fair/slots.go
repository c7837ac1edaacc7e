package fair

import (
	"context"
	"slices"
	"sync"
)

// Slots are for steps of the work on an item. As with Queue, a namespace takes one only while it
// has fewer than are free. Seven namespaces can take all of 64.
type Slots struct {
	most int

	mu      sync.Mutex
	total   int
	taken   map[string]int             // by namespace
	waiting map[string][]chan struct{} // by namespace, in order; is closed when the slot is there
}

// NewSlots returns so many slots.
func NewSlots(most int) *Slots {
	return &Slots{most: most, taken: map[string]int{}, waiting: map[string][]chan struct{}{}}
}

// try takes a slot, if there is one. The caller has locked s.mu.
func (s *Slots) try(namespace string) bool {
	if s.taken[namespace] >= s.most-s.total {
		return false
	}
	s.total++
	s.taken[namespace]++
	return true
}

// Take waits for a slot. Of those that wait in a namespace, the one that came first is the next.
func (s *Slots) Take(ctx context.Context, namespace string) error {
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
		s.Give(namespace)
	}
	return context.Cause(ctx)
}

// Give gives a slot back: to the namespace that has the fewest, of those in which somebody waits.
func (s *Slots) Give(namespace string) {
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

func (s *Slots) setWaiting(namespace string, waiting []chan struct{}) {
	if s.waiting[namespace] = waiting; len(waiting) == 0 {
		delete(s.waiting, namespace)
	}
}
