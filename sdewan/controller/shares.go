package controller

import (
	"context"
	"sync"
	"time"

	"subctl/internal/wake"
)

// shares are slots. A namespace takes one only while it has fewer than are free, so that whoever runs CNFs in some namespaces keeps the CNFs of others
// waiting only so far: of 64 slots, one namespace has at most 32, a second one then 16, a third one 8. Seven namespaces can take all 64.
type shares struct {
	most int

	mu    sync.Mutex
	total int
	taken map[string]int // by namespace
}

func newShares(most int) *shares {
	return &shares{most: most, taken: map[string]int{}}
}

// try takes a slot, if there is one. The caller gives it back.
func (s *shares) try(namespace string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[namespace] >= s.most-s.total {
		return false
	}
	s.total++
	s.taken[namespace]++
	return true
}

// take waits for a slot.
func (s *shares) take(ctx context.Context, namespace string) error {
	const pause = 20 * time.Millisecond
	for !s.try(namespace) {
		if err := wake.After(ctx, pause); err != nil {
			return err
		}
	}
	return nil
}

func (s *shares) give(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.taken[namespace]--; s.taken[namespace] == 0 {
		delete(s.taken, namespace)
	}
}
