package parts

import (
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/agent/mesh"
	"subctl/dataplane"
)

// flowKernel is a kernel with connections.
type flowKernel struct {
	dataplane.Cabler
	counts int
}

func (k *flowKernel) Flows(networks, _, _ []netip.Prefix) (dataplane.Flows, error) {
	k.counts++
	return dataplane.Flows{Count: k.counts * len(networks)}, nil
}

// The connections of an active gateway are counted now and then, and more often while it is draining.
func TestFlowCount(t *testing.T) {
	kernel := &flowKernel{}
	f := newFlows(Options{Log: slog.New(slog.DiscardHandler), Cabler: func() dataplane.Cabler { return kernel }})
	now := time.Now()
	count := func(after time.Duration, active bool) mesh.Flows {
		t.Helper()
		now = now.Add(after)
		s := mesh.Snapshot{Now: now, Standing: mesh.Standing{Active: active}}
		require.NoError(t, f.Observe(&s))
		return s.Flows
	}
	require.False(t, count(0, true).Known, "before the first plan")
	f.remote = []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")}
	require.Equal(t, mesh.Flows{Known: true, Count: 1, At: now}, count(0, true))
	first := now
	require.Equal(t, mesh.Flows{Known: true, Count: 1, At: first}, count(flowsEvery-time.Second, true))
	require.Equal(t, 2, count(time.Second, true).Count)
	f.draining = true
	require.Equal(t, 3, count(drainingEvery, true).Count)
	require.False(t, count(time.Minute, false).Known, "a passive gateway has none")
	require.Equal(t, 3, kernel.counts)

	f.draining, f.took = false, 100*time.Millisecond
	require.Equal(t, flowsShare*f.took, f.pause(), "a large table is read less often")
	f.took = 10 * time.Second
	require.Equal(t, flowsAtLeast, f.pause())
}
