package agent

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// An agent that no longer sees changes of the kernel ends, unless it was stopped.
func TestKernelNoLongerWatched(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		changed := make(chan struct{}, 2)
		triggers := 0
		changed <- struct{}{}
		changed <- struct{}{}
		close(changed)
		if stopped {
			stop()
		}
		err := forward(ctx, changed, func() { triggers++ })
		require.Equal(t, !stopped, err != nil)
		require.Equal(t, 2, triggers)
	}
}
