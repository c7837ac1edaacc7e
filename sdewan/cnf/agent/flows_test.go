package agent

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"subctl/dataplane"
	"subctl/sdewan/rest"

	"github.com/stretchr/testify/require"
)

// A kernel without flow tables is no error: the log says so once.
func TestWithoutFlowTables(t *testing.T) {
	var log bytes.Buffer
	has, accepted := false, 0
	a := New(Options{
		Log: slog.New(slog.NewTextHandler(&log, nil)), Config: func() rest.Config { return rest.Config{} },
		Kernel: Kernel{
			Network:      func() (dataplane.Network, error) { return dataplane.Network{FlowTables: has}, nil },
			Forward:      func([]string) error { return nil },
			AcceptResets: func() error { accepted++; return nil },
		},
	})
	for range 2 {
		require.NoError(t, a.pass(t.Context(), &refusing{}))
	}
	require.Equal(t, 1, strings.Count(log.String(), "no flow tables"))
	require.Zero(t, accepted)
	log.Reset()
	has = true
	for range 2 { // the second comes too soon to look at all connections again
		require.NoError(t, a.pass(t.Context(), &refusing{}))
	}
	require.Equal(t, 1, accepted)
	a.resets = time.Now().Add(-resync)
	require.NoError(t, a.pass(t.Context(), &refusing{}))
	require.Equal(t, 2, accepted)
	require.Empty(t, log.String())
}
