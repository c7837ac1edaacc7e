package parts

import (
	"errors"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/agent/mesh"
	"subctl/agent/role"
	"subctl/dataplane"
)

// The loop learns what has changed, and only that; a result is kept while rules do not change or
// the kernel fails, and forgotten with the probe that it belongs to.
func TestForwardingFollowsRules(t *testing.T) {
	generation := uint32(7)
	by := dataplane.Dropper{}
	triggers := 0
	asked := 0
	var fails error
	trigger := func() { triggers++ }
	f := newForwarding(
		Options{
			Log:     slog.New(slog.DiscardHandler),
			Trigger: trigger,
			ProbeForwarding: func(_ dataplane.ForwardProbe, last uint32) (dataplane.Forwarded, error) {
				asked++
				if last == generation {
					return dataplane.Forwarded{Generation: generation}, nil
				}
				return dataplane.Forwarded{Generation: generation, Known: true, By: by}, fails
			},
		},
	)
	seen := func() dataplane.Forwarded {
		var s role.Snapshot
		require.NoError(t, f.Observe(&s))
		return s.Forwarded
	}
	require.False(t, f.probeIfChanged(true), "there is no other cluster")
	require.Zero(t, asked)
	plan := role.Plan{Decisions: &mesh.Plan{}, Forward: dataplane.ForwardProbe{
		Dev: "vx-submariner", From: netip.MustParseAddr("10.2.0.1"),
	}}
	f.Act(role.Snapshot{}, plan, nil)
	require.True(t, f.probeIfChanged(false))
	require.Equal(t, 1, triggers)
	require.False(t, f.probeIfChanged(false), "the rules are the same")
	require.True(t, seen().Known)
	by = dataplane.Dropper{Family: "inet", Table: "firewalld"}
	generation = 8
	require.True(t, f.probeIfChanged(false))
	require.Equal(t, by, seen().By)
	require.Equal(t, 2, triggers)
	require.True(t, f.probeIfChanged(true))
	require.Equal(t, 2, triggers, "nothing has changed")
	fails = errors.New("no")
	require.False(t, f.probeIfChanged(true))
	require.Equal(t, by, seen().By)
	f.Act(role.Snapshot{}, role.Plan{Forward: dataplane.ForwardProbe{Dev: "x"}}, nil)
	require.Equal(t, by, seen().By, "the snapshot had a mistake")
	plan.Forward.From = plan.Forward.From.Next()
	f.Act(role.Snapshot{}, plan, nil)
	require.Zero(t, seen())
}
