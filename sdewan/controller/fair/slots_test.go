package fair

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A slot that is given back is at once that of the namespace with the fewest slots, of those in
// which somebody waits, and of the one who came first there.
func TestSlotsAreHandedOver(t *testing.T) {
	s := NewSlots(4)
	got := make(chan string, 8)
	wait := func(namespace, who string) {
		s.mu.Lock()
		before := len(s.waiting[namespace])
		s.mu.Unlock()
		go func() {
			if s.Take(t.Context(), namespace) == nil {
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
		require.NoError(t, s.Take(t.Context(), namespace))
	}
	wait("a", "a1")
	wait("a", "a2")
	wait("d", "d")
	s.Give("c")
	s.mu.Lock()
	require.False(t, s.try("c"), "the slot is another one's already")
	s.mu.Unlock()
	require.Equal(t, "d", <-got)
	s.Give("b")
	require.Len(t, s.waiting["a"], 2, "a would have all that are left")
	s.Give("a")
	require.Equal(t, "a1", <-got)
	require.Empty(t, got)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.Take(ctx, "a"), context.Canceled)
	require.Len(t, s.waiting["a"], 1, "who gives up does not wait any more")
	s.Give("a")
	require.Equal(t, "a2", <-got)
	require.Empty(t, s.waiting)
	for _, namespace := range []string{"a", "a", "d"} {
		s.Give(namespace)
	}
	require.Zero(t, s.total)
	require.Empty(t, s.taken)
}
