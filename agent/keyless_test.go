package agent

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/agent/mesh"
	"subctl/agent/parts"
	"subctl/agent/role"
	"subctl/agent/roles"
	"subctl/dataplane"
	"subctl/dataplane/dataplanetest"
)

// withStates is a kernel that has a cable already when its agent starts.
type withStates struct{ *dataplanetest.Fake }

func (withStates) CableStates() ([]dataplane.CableState, error) {
	return []dataplane.CableState{{Device: dataplane.WireGuardDevice, Peer: "west"}}, nil
}
func (withStates) Restarts() map[string]int { return nil }

// The first plan of an agent depends on what its kernel says about the cables that it finds.
func TestFirstPlanKnowsTheCables(t *testing.T) {
	w := gateway(t)
	w.Kernel.Target = func(dataplane.Owner) (dataplane.Target, error) { return withStates{&dataplanetest.Fake{}}, nil }
	more, err := parts.New([]role.Part{role.KernelView}, parts.Options{Log: w.Log, Cabler: w.cabler})
	require.NoError(t, err)
	w.agent.parts = append(w.agent.parts, more...)
	w.run(t)
	require.Len(t, mesh.PlanOf(w.plan).Mesh.Snapshot.Cables, 1)
	order := roles.Gateway().Parts
	require.Less(t, slices.Index(order, role.Probing), slices.Index(order, role.KernelView),
		"a cable that has answered has its keys")
}
