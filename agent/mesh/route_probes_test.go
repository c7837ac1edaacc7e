package mesh_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	. "subctl/agent/mesh"
	"subctl/agent/mesh/members"
	"subctl/agent/role"
	"subctl/api/submariner/v1alpha1"
)

// A path that does not answer is asked again soon, and then less and less often.
func TestPauses(t *testing.T) {
	p := Cables{}.PathProbes(members.Membership{Submariner: &v1alpha1.Submariner{}}, Offer{})
	require.Equal(t, time.Minute, p.Pause(true, 0))
	pauses := []time.Duration{1, 2, 4, 8, 15, 15}
	for lost, want := range pauses {
		require.Equal(t, want*time.Second, p.Pause(false, lost))
	}
	require.Equal(t, 2*time.Second, p.Pause(true, 1))
	gateway := role.Probes{Interval: 3 * time.Second}
	require.Equal(t, gateway.Interval, gateway.Pause(false, 5))
}
