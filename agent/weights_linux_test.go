package agent

import (
	"testing"

	"github.com/stretchr/testify/require"

	submarinerv1 "subctl/api/submariner/v1"
)

// Connections that exist stay with their gateways when a gateway of each of two clusters gets
// another weight, and new ones follow the weight. Workers choose the gateways of their cluster, and
// these the gateways of the other one.
func TestWeightsMoveNoConnection(t *testing.T) {
	fabric := newFabric(t)
	east := twoGateways(t, fabric, 1, "east")
	west := twoGateways(t, fabric, 2, "west")
	sides := []*side{east, west}
	for _, s := range sides {
		for _, ns := range s.nodes {
			ns.Run("sysctl -qw net.ipv4.fib_multipath_hash_policy=1") // ports, too
		}
	}
	weigh := func(weight string) {
		for _, s := range sides {
			s.annotations = map[string]map[string]string{"gw": {submarinerv1.WeightAnnotation: weight}}
			s.announced = map[string]map[string]string{"gw": {submarinerv1.BackendWeight: weight}}
		}
		east.sync(t, west)
		west.sync(t, east)
	}
	weigh("100")
	client := east.pods["worker"]
	backend := west.podIP("worker") + ":8080"
	answerAll(t, west.pods["worker"], backend)
	live := dials(t, client, backend, 100)
	var streams []func() (int, []string)
	for range 4 {
		streams = append(streams, stream(t, client, backend))
	}
	entries := func() (n []int) { // one that moves gets another entry, and keeps the old one
		for _, gw := range east.names[:2] {
			n = append(n, flowsThrough(t, east.nodes[gw], "10.112.0.0/16"),
				flowsThrough(t, west.nodes[gw], "10.111.0.0/16"))
		}
		return n
	}
	for _, change := range []struct {
		weight string
		share  float64 // of 100 new connections
	}{{"50", 33}, {"1", 1}, {"100", 50}} {
		talk(t, live)
		via := east.chosen(t)
		at := entries()
		weigh(change.weight)
		talk(t, live)
		now := east.chosen(t)
		for f, gw := range via {
			require.Equal(t, gw, now[f], "weight %s: the worker's choice for %v", change.weight, f)
		}
		require.Equal(t, at, entries(), "weight %s: what each gateway carries", change.weight)
		live = append(live, dials(t, client, backend, 100)...)
		fresh := east.chosen(t)
		for f := range via {
			delete(fresh, f)
		}
		require.Len(t, fresh, 100)
		require.InDelta(t, change.share, 100*ofFirst(fresh), 25, "weight %s: 5 standard deviations", change.weight)
	}
	for _, end := range streams {
		sent, lost := end()
		require.Empty(t, lost, "packets of a stream of %d", sent)
	}
}
