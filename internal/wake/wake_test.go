package wake_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/internal/wake"
)

func TestAfter(t *testing.T) {
	require.NoError(t, wake.After(t.Context(), time.Millisecond))
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	require.ErrorIs(t, wake.After(ctx, time.Hour), why)
}

func TestSignal(t *testing.T) {
	s := wake.NewSignal()
	require.Empty(t, s)
	s.Send()
	s.Send()
	<-s
	require.Empty(t, s)
}

func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := wake.NewSignal()
		calls := 0
		ended := make(chan struct{})
		go func() {
			wake.Every(ctx, time.Minute, s, func() { calls++ })
			close(ended)
		}()
		time.Sleep(150 * time.Second)
		require.Equal(t, 2, calls, "at each period")
		s.Send()
		synctest.Wait()
		require.Equal(t, 3, calls, "and when woken")
		cancel()
		<-ended
	})
}
