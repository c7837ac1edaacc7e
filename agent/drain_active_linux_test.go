package agent

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/agent/role"
	"subctl/agent/roles"
	submarinerv1 "subctl/api/submariner/v1"
)

// The active gateways of two clusters that have one each are drained, and put back in service. Each
// change that they announce reaches the agents one by one, in any order, as it does where one API
// server or broker is slower than another. Connections that exist go on, and no packet is lost.
func TestDrainOfActiveGateways(t *testing.T) {
	fabric := newFabric(t)
	east := withStandby(t, fabric, 1, "east")
	west := withStandby(t, fabric, 2, "west")
	east.sync(t, west)
	west.sync(t, east)
	client := east.pods["worker"]
	backend := west.podIP("worker") + ":8080"
	answerAll(t, west.pods["worker"], backend)
	conns := dials(t, client, backend, 20)
	var streams []func() (int, []string)
	for range 4 {
		streams = append(streams, stream(t, client, backend))
	}
	type agentOf struct {
		s, other *side
		node     string
		role     role.Role
	}
	var all []agentOf
	for _, s := range []*side{east, west} {
		other := map[*side]*side{east: west, west: east}[s]
		for _, node := range s.names {
			for _, r := range roles.OfNodes() {
				all = append(all, agentOf{s, other, node, r})
			}
		}
	}
	toBeDrained := map[string]map[string]string{"gw": {submarinerv1.DrainAnnotation: "5m"}}
	announced := func(gw, gw2 string) map[string]map[string]string {
		return map[string]map[string]string{
			"gw":  {submarinerv1.BackendDrain: gw},
			"gw2": {submarinerv1.BackendDrain: gw2},
		}
	}
	for _, step := range []struct {
		name        string
		annotations map[string]map[string]string
		announced   map[string]map[string]string
	}{
		{"gw is to be drained", toBeDrained, announced("", submarinerv1.Standby)},
		{"gw announces that", toBeDrained, announced(submarinerv1.Draining, submarinerv1.Standby)},
		{"gw2 has the Lease", toBeDrained, announced(submarinerv1.Draining, "")},
		{"gw is a standby, and drained", toBeDrained, announced(submarinerv1.Drained, "")},
		{"gw is put back", nil, announced(submarinerv1.Standby, "")},
		{"gw2 loses the Lease", nil, announced("", submarinerv1.Draining)},
		{"gw2 is a standby", nil, announced("", submarinerv1.Standby)},
	} {
		for _, s := range []*side{east, west} {
			s.annotations = step.annotations
			s.announced = step.announced
		}
		rand.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
		for _, a := range all {
			a.s.syncOne(t, a.node, a.role, a.other)
		}
		t.Log(step.name)
		talk(t, conns)
	}
	for _, end := range streams {
		sent, lost := end()
		require.Empty(t, lost, "packets of a stream of %d", sent)
	}
}
