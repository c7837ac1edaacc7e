package wake_test

import (
	"context"
	"errors"
	"testing"
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
