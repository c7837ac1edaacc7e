//go:build linux

package kernel

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTimer(t *testing.T) {
	timer, err := NewTimer()
	require.NoError(t, err)
	start := time.Now()
	require.NoError(t, timer.Reset(time.Hour))
	require.NoError(t, timer.Reset(50*time.Millisecond))
	<-timer.C()
	require.GreaterOrEqual(t, time.Since(start), 50*time.Millisecond)
	require.NoError(t, timer.Reset(0), "at once")
	<-timer.C()
	require.NoError(t, timer.Reset(time.Millisecond))
	require.NoError(t, timer.Reset(time.Hour), "put off")
	for len(timer.C()) > 0 { // for the time before
		<-timer.C()
	}
	select {
	case <-timer.C():
		require.Fail(t, "it expired although it was put off")
	case <-time.After(100 * time.Millisecond):
	}
	require.NoError(t, timer.Close())
	require.Error(t, timer.Reset(time.Second), "closed")
}
