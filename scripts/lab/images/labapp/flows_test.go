package main

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// When a flow ends, it waits for the answers that are on their way, but not long for those that
// were lost.
func TestAwaitAnswers(t *testing.T) {
	const few = 5 * lookEvery
	for name, c := range map[string]struct {
		every        time.Duration // between two answers
		answers      int64         // that arrive
		want         int64         // that were sent
		atLeast, max time.Duration
	}{
		"all have arrived":     {want: 0, max: 0},
		"the last one is lost": {every: 1, answers: 9, want: 10, atLeast: silence, max: silence + few},
		"all arrive, but slowly": {
			every:   silence / 2,
			answers: 4,
			want:    4,
			atLeast: 2 * silence,
			max:     2*silence + few,
		},
		"they arrive for a long time": {
			every:   silence / 2,
			answers: 100,
			want:    1000,
			atLeast: underWay,
			max:     underWay + few,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var arrived atomic.Int64
				var all sync.WaitGroup
				defer all.Wait()
				all.Go(func() {
					for range c.answers {
						time.Sleep(c.every)
						arrived.Add(1)
					}
				})
				began := time.Now()
				awaitAnswers(&arrived, c.want)
				if took := time.Since(began); took < c.atLeast || took > c.max {
					t.Errorf("waited for %v, want %v to %v", took, c.atLeast, c.max)
				}
			})
		})
	}
}
