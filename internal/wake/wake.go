// Package wake provides a cancelable sleep, a signal that wakes a goroutine, and a loop that
// follows both a clock and a signal.
package wake

import (
	"context"
	"time"
)

// After waits for d and returns nil. If ctx is done earlier, it returns the cause.
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

// A Signal wakes the goroutine that receives from it. Signals that are sent before it receives are
// combined into one.
type Signal chan struct{}

// NewSignal returns a Signal that has not been sent.
func NewSignal() Signal { return make(Signal, 1) }

// Send sends the signal. It never blocks.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default: // sent already, and not received yet
	}
}

// Every calls do each time the period d has passed, and each time s is sent, until ctx is done. s
// may be nil.
func Every(ctx context.Context, d time.Duration, s Signal, do func()) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-s:
		}
		do()
	}
}
