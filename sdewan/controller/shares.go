package controller

import (
	"context"
	"sync"
	"time"

	"subctl/internal/wake"
)

// shares are slots, of which each namespace can have a part: whoever runs CNFs in one namespace keeps the CNFs of others waiting only so far.
type shares struct {
	most, each int

	mu    sync.Mutex
	total int
	taken map[string]int // by namespace
}

func newShares(most, each int) *shares {
	return &shares{most: most, each: each, taken: map[string]int{}}
}

// try takes a slot, if there is one. The caller gives it back.
func (s *shares) try(namespace string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total >= s.most || s.taken[namespace] >= s.each {
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
