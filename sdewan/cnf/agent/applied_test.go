package agent

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/dataplane"
	"subctl/dataplane/dataplanetest"
	"subctl/sdewan/rest"
)

// Applied waits for a pass that has seen the latest configuration, and says whether the kernel holds it.
func TestApplied(t *testing.T) {
	var config, seen atomic.Pointer[rest.Config]
	var refusal atomic.Pointer[error]
	config.Store(&rest.Config{})
	a := New(Options{
		Log:    slog.New(slog.DiscardHandler),
		Config: func() rest.Config { time.Sleep(time.Millisecond); return *config.Load() },
		Kernel: Kernel{
			Target:  func(dataplane.Owner) (dataplane.Target, error) { return &dataplanetest.Fake{}, nil },
			Network: func() (dataplane.Network, error) { return dataplane.Network{}, nil },
			Watch:   func(context.Context, time.Duration) (<-chan struct{}, error) { return make(chan struct{}), nil },
			Forward: func([]string) error {
				if err := refusal.Load(); err != nil {
					return *err
				}
				return nil
			},
		},
	})
	a.passed = func(planned rest.Config) { seen.Store(&planned) }
	ended, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, a.Applied(ended), "not hold it yet", "the loop has not begun")

	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		config.Store(&rest.Config{Zones: []rest.Zone{{Name: name}}})
		require.NoError(t, a.Applied(t.Context()))
		require.Equal(t, name, a.Config().Zones[0].Name)
		require.Eventually(t, func() bool { return len(seen.Load().Zones) == 1 && seen.Load().Zones[0].Name == name }, time.Minute, time.Millisecond)
	}
	refusal.Store(new(errors.New("no")))
	require.EqualError(t, a.Applied(t.Context()), "no")
	refusal.Store(nil)
	require.NoError(t, a.Applied(t.Context()))
	stop()
	require.NoError(t, <-done)
}
