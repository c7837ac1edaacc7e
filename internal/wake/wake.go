// Package wake waits, and wakes who waits.
package wake

import (
	"context"
	"time"
)

// After waits for d and returns nil, or until ctx is done and returns why.
func After(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// Signal wakes who receives from it. Sent several times before that, it wakes once.
type Signal chan struct{}

// NewSignal returns a Signal that has not been sent.
func NewSignal() Signal { return make(Signal, 1) }

// Send never blocks.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default: // sent already, and not received yet
	}
}
