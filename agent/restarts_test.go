package agent

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"subctl/dataplane"
	"subctl/dataplane/dataplanetest"
)

// mortal is a kernel whose programs die.
type mortal struct {
	*dataplanetest.Fake
	restarts map[string]int
}

func (*mortal) CableStates() ([]dataplane.CableState, error) { return nil, nil }
func (m *mortal) Restarts() map[string]int                   { return m.restarts }

// A program that was found dead is counted, and there is an Event about it, once.
func TestRestartsAreTold(t *testing.T) {
	w := newWorld(t, Gateway{}, "two-clusters")
	events := &recorder{}
	kernel := &mortal{Fake: &dataplanetest.Fake{}}
	w.Target = func(dataplane.Owner) (dataplane.Target, error) { return kernel, nil }
	w.run(t) // which makes its Gateway
	w.events = events
	for range 2 {
		w.run(t)
		require.Empty(t, events.got)
	}
	kernel.restarts = map[string]int{"charon": 2, "wireguard-go": 1}
	for range 2 {
		w.run(t)
		require.Len(t, events.got, 2)
	}
	require.Equal(t, "gw", events.got[0].about)
	require.Equal(t, "Warning CableProgramRestarted", events.got[0].reason)
	require.Contains(t, events.got[0].note, "charon was found dead")
	require.Contains(t, events.got[1].note, "wireguard-go was found dead")

	registry := prometheus.NewRegistry()
	registry.MustRegister(w.meters.restarts)
	families, err := registry.Gather()
	require.NoError(t, err)
	require.Len(t, families[0].Metric, 2)
	require.InDelta(t, 2, families[0].Metric[0].Counter.GetValue(), 0)
}
