package agent

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/internal/measure"
)

// manySets is the number of clustersets of the hub, each with one spoke.
const manySets = 1000

// BenchmarkHub measures a hub in 1,000 clustersets with one spoke each, on a broker with a real API
// server: the agent of the hub, in a process of its own, from its first start on; what a spoke
// holds; and membership changes. All spokes have published their objects with the rights that they
// have; four of them are processes, too.
func BenchmarkHub(b *testing.B) {
	for b.Loop() {
		w := newHubWorld(b)
		w.measureHub(b)
		w.measureSpoke(b)
		w.measureChanges(b)
		w.hub.stop()
	}
}

// measureHub starts the hub for the first time.
func (w *hubWorld) measureHub(b *testing.B) {
	b.Helper()
	w.hub.start(b)
	r := w.hub.complete(b)
	require.Equal(b, manySets, r.Cables, "a cable to every spoke")
	settled := w.hub.ask(b, "settled")
	idle := w.hub.ask(b, "idle")
	measure.Record(
		b,
		measure.AtMost("hub with 1,000 two-member clustersets: cold start until the plan is complete",
			measure.Values{r.Seconds}, 30, "s"),
		measure.AtMost("hub with 1,000 two-member clustersets: peak memory of the exchange and the plan",
			measure.Values{idle.PeakMiB}, 512, "MiB"),
		measure.AtMost("hub with 1,000 two-member clustersets: TCP connections to the broker, at most at a time",
			measure.Values{float64(idle.Connections)}, 4, "connections"),
		measure.Info("hub with 1,000 two-member clustersets: first start until everything is published",
			measure.Values{settled.Seconds}, "s"),
		measure.Info("hub with 1,000 two-member clustersets: CPU time while nothing happens, of one core",
			measure.Values{idle.CPUPercent}, "%"),
	)
}

// measureSpoke compares a spoke with the spoke of a broker that has no other clusters.
func (w *hubWorld) measureSpoke(b *testing.B) {
	b.Helper()
	alone := &hubWorld{Broker: brokertest.Deploy(b, w.Server, w.sets[0]), sets: w.sets[:1], spokes: []string{"hub"}}
	require.NoError(b, alone.joinSpoke(b.Context(), membersClient(b, w.Server), 0)) // another hub
	ours := w.live[0]
	other := alone.newSite(b, w.live[0].ID, w.sets[0])
	memory := func(s *childSite) float64 {
		s.start(b)
		defer s.stop()
		require.Equal(b, 1, s.complete(b).Cables)
		return s.ask(b, "idle").PeakMiB
	}
	c := measure.Compare(measure.Times(3), func() float64 { return memory(ours) },
		func() float64 { return memory(other) })
	others := 0
	for _, list := range []client.ObjectList{&submarinerv1.ClusterList{}, &submarinerv1.EndpointList{}} {
		require.NoError(b, w.Admin.List(b.Context(), list, client.InNamespace(ours.Namespace)))
		_ = meta.EachListItem(list, func(o runtime.Object) error {
			if id, _ := submarinerv1.OwnerID(o.(client.Object)); id != "hub" && id != "" {
				others++
			}
			return nil
		})
	}
	measure.Record(
		b,
		measure.AtMost(
			"spoke of a hub with 1,000 two-member clustersets: objects of clusters other than itself and the hub",
			measure.Values{float64(others)}, 0, "objects"),
		measure.AtMost(
			"spoke of a hub with 1,000 two-member clustersets: memory, of that on a broker with two clusters",
			c.Percent, 105, "%"),
		measure.Info("spoke of a hub with 1,000 two-member clustersets: memory of the exchange and the plan", c.Ours,
			"MiB"),
	)
}

// measureChanges removes spokes, and the hub, from clustersets and adds them again.
func (w *hubWorld) measureChanges(b *testing.B) {
	b.Helper()
	for _, s := range w.live {
		s.start(b)
		defer s.stop()
		w.await(b, s, true)
	}
	var all measure.Values
	took := map[string]measure.Values{}
	change := func(s *childSite, cluster string, add bool) {
		set := s.Sets[0]
		c := broker.SetChange{Cluster: cluster, Remove: []string{set}}
		which := cluster + " removed"
		if add {
			c = broker.SetChange{Cluster: cluster, Add: []string{set}}
			which = cluster + " added"
		}
		if cluster != "hub" {
			which = "spoke" + which[len(cluster):]
		}
		time.Sleep(time.Duration(rand.IntN(500)) * time.Millisecond) // at any time of the hub's rounds
		began := time.Now()
		grant, err := broker.ChangeSets(b.Context(), w.Admin, w.NS, []string{submarinerv1.DefaultClusterSet, set}, c,
			reserved(cluster), brokertest.Administrator(), time.Now())
		require.NoError(b, err)
		if cluster == w.hub.ID {
			require.Subset(b, append(grant.Sets, set), w.sets, "the hub is in all its other clustersets")
		}
		w.await(b, s, add)
		seconds := time.Since(began).Seconds()
		all = append(all, seconds)
		took[which] = append(took[which], seconds)
	}
	for range measure.Times(24) { // 200 changes in all, of which two may be slower than the 99th percentile
		for _, s := range w.live {
			change(s, s.ID, false)
			change(s, s.ID, true)
		}
	}
	for range measure.Times(2) {
		for _, s := range w.live[1:3] {
			change(s, "hub", false)
			change(s, "hub", true)
		}
	}
	for which, values := range took {
		b.Logf("%s: %.2f", which, values)
	}
	slices.Sort(all)
	p99 := all[int(math.Ceil(0.99*float64(len(all))))-1]
	measure.Record(
		b,
		measure.AtMost(
			"hub with 1,000 two-member clustersets: a membership change is visible to the hub and the spoke after, 99th percentile",
			measure.Values{p99}, 2, "s"),
		measure.Info(
			"hub with 1,000 two-member clustersets: a membership change is visible to the hub and the spoke after", all,
			"s"),
	)
}

// await waits until the hub and a spoke know each other, or do not.
func (w *hubWorld) await(b *testing.B, s *childSite, know bool) {
	b.Helper()
	has := func(at *childSite, id string) bool {
		_, e := spokeObjects("", id, 0)
		for _, o := range []client.Object{&submarinerv1.Cluster{}, e} {
			key := client.ObjectKey{Namespace: at.Namespace, Name: id}
			if o == client.Object(e) {
				key.Name = e.Name
			}
			if (w.Admin.Get(b.Context(), key, o) == nil) != know {
				return false
			}
		}
		return true
	}
	brokertest.Eventually(b, func() bool { return has(w.hub, s.ID) && has(s, w.hub.ID) })
}
