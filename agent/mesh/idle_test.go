package mesh_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/dataplane"
)

// Without health checks, an encrypted cable is pinged until it answers, and then judged by its own
// state: idle is not down.
func TestWithoutHealthChecks(t *testing.T) {
	w := newChangingPair(t, submarinerv1.EncryptionRequired)
	role.List[*v1alpha1.Submariner](w.snapshot)[0].Spec.ConnectionHealthCheck = &v1alpha1.HealthCheckSpec{}
	w.snapshot.Memory.Using = nil
	c := w.pass(t, 0)
	require.Equal(t, submarinerv1.Connecting, c.Status)
	require.Len(t, w.plan.Probes.Targets, 1)
	require.Contains(t, w.plan.Probes.Targets, role.ProbeName(westCable, "ipsec-tunnel"))

	state := dataplane.CableState{
		Device:    "ipsec-tunnel",
		Peer:      w.plan.Links[0].State,
		Up:        true,
		Handshake: w.snapshot.Now,
	}
	w.snapshot.Cables = []dataplane.CableState{state}
	c = w.pass(t, time.Second)
	require.Equal(t, submarinerv1.Connecting, c.Status, "it has not answered")
	w.pass(t, time.Second, role.ProbeName(westCable, "ipsec-tunnel"))
	c = w.pass(t, 24*time.Hour)
	require.Equal(t, submarinerv1.Connected, c.Status)
	require.Contains(t, c.StatusMessage, "not probed, judged by its keys and counters")
	require.Empty(t, w.plan.Probes.Targets)

	w.snapshot.Cables[0].Up = false
	w.snapshot.Cables[0].Message = "the other side does not answer"
	c = w.pass(t, time.Second)
	require.Equal(t, submarinerv1.Connecting, c.Status)
	require.Equal(t, "the other side does not answer", c.StatusMessage)
}
