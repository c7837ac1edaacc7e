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
	counts    int
	tolerated []netip.Prefix
}

func (k *flowKernel) Tolerate(networks []netip.Prefix) error {
	k.tolerated = append(k.tolerated, networks...)
	return nil
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

// A gateway tolerates connections that come back whenever it counts connections, and soon after something has failed. A cluster's only gateway does not.
func TestFlowsComeBack(t *testing.T) {
	kernel := &flowKernel{}
	f := newFlows(Options{Log: slog.New(slog.DiscardHandler), Cabler: func() dataplane.Cabler { return kernel }})
	f.remote = []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")}
	now := time.Now()
	observe := func(after time.Duration, failed time.Time) int {
		t.Helper()
		now = now.Add(after)
		s := mesh.Snapshot{Now: now, Standing: mesh.Standing{Active: true}, Health: mesh.Healths{"a": {}, "west": {Since: failed}}}
		require.NoError(t, f.Observe(&s))
		f.took = 10 * time.Millisecond
		return len(kernel.tolerated)
	}
	require.Zero(t, observe(0, time.Time{}), "there is no other gateway")
	f.several = true
	require.Zero(t, observe(time.Second, time.Time{}))
	require.Equal(t, 1, observe(flowsEvery, time.Time{}))
	failure := now.Add(time.Second)
	require.Equal(t, 1, observe(time.Second, failure), "what else has failed comes first")
	require.Equal(t, 2, observe(afterFailure, failure))
	require.Equal(t, 2, observe(afterFailure, failure), "once for each failure")
	require.Equal(t, 3, observe(afterFailure, now))
	require.Equal(t, 3, observe(drainingShare*f.took/2, now.Add(-afterFailure+time.Millisecond)), "a gateway that fails all the time does not cost more")
	require.Equal(t, f.remote[0], kernel.tolerated[1])
}
