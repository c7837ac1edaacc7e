package controller

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A slot that is given back is at once that of the namespace with the fewest slots, of those in
// which somebody waits, and of the one who came first there.
func TestSharesAreHandedOver(t *testing.T) {
	s := newShares(4)
	got := make(chan string, 8)
	wait := func(namespace, who string) {
		s.mu.Lock()
		before := len(s.waiting[namespace])
		s.mu.Unlock()
		go func() {
			if s.take(t.Context(), namespace) == nil {
				got <- who
			}
		}()
		require.Eventually(t, func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.waiting[namespace]) == before+1
		}, 10*time.Second, time.Millisecond)
	}
	for _, namespace := range []string{"a", "a", "b", "c"} {
		require.NoError(t, s.take(t.Context(), namespace))
	}
	wait("a", "a1")
	wait("a", "a2")
	wait("d", "d")
	s.give("c")
	s.mu.Lock()
	require.False(t, s.try("c"), "the slot is another one's already")
	s.mu.Unlock()
	require.Equal(t, "d", <-got)
	s.give("b")
	require.Len(t, s.waiting["a"], 2, "a would have all that are left")
	s.give("a")
	require.Equal(t, "a1", <-got)
	require.Empty(t, got)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.take(ctx, "a"), context.Canceled)
	require.Len(t, s.waiting["a"], 1, "who gives up does not wait any more")
	s.give("a")
	require.Equal(t, "a2", <-got)
	require.Empty(t, s.waiting)
	for _, namespace := range []string{"a", "a", "d"} {
		s.give(namespace)
	}
	require.Zero(t, s.total)
	require.Empty(t, s.taken)
}
