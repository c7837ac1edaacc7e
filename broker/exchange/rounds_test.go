package exchange_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/internal/kubetest"
)

// A hub that watches only one of its clustersets polls the others, which comes to the same.
func TestPolledClusterSets(t *testing.T) {
	server := kubetest.Shared(t)
	d := brokertest.Deploy(t, server, "a", "b", "c")
	gate := kubetest.NewGate(t, server)
	hub := newSite(t, d, gate, "hub", "a", "b")
	east := newSite(t, d, gate, "east", "a")
	west := newSite(t, d, gate, "west", "b")
	hub.watched = 1 // a, the first by name
	for _, s := range []*site{hub, east, west} {
		s.create(brokertest.Cluster("", s.id))
		s.start()
		t.Cleanup(func() { s.stop() })
	}
	hub.eventuallyKnows(map[string][]string{"east": {"a"}, "west": {"b"}})
	west.eventuallyKnows(map[string][]string{"hub": {"b"}})
	hub.eventuallyHealthy(true)
	status := hub.ex.Status()
	require.Equal(t, []string{"a", "b"}, status.Sets, "all were read")
	require.True(t, status.Connected)

	t.Log("objects that appear, and disappear")
	west.create(endpoint("", "west", "10-0-0-1"))
	hub.eventually("hub", "east", "west", westCable)
	hub.create(endpoint("", "hub", "10-0-0-1"))
	west.eventually("hub", "west", westCable, "submariner-cable-hub-10-0-0-1")
	gateway := &submarinerv1.Endpoint{}
	require.NoError(t,
		west.client.Get(t.Context(), client.ObjectKey{Namespace: west.ns, Name: "west-" + westCable}, gateway))
	require.NoError(t, west.client.Delete(t.Context(), gateway))
	hub.eventually("hub", "east", "west", "submariner-cable-hub-10-0-0-1")

	t.Log("what somebody else changes of our objects there")
	there := &submarinerv1.Cluster{}
	key := client.ObjectKey{Namespace: broker.NamespaceIn(d.NS, "b"), Name: "hub"}
	require.NoError(t, d.Admin.Get(t.Context(), key, there))
	there.Spec.ColorCodes = []string{"altered"}
	require.NoError(t, d.Admin.Update(t.Context(), there))
	brokertest.Eventually(t, func() bool {
		return d.Admin.Get(t.Context(), key, there) == nil && len(there.Spec.ColorCodes) == 1 &&
			there.Spec.ColorCodes[0] == "blue"
	})

	t.Log("members that come and go")
	change := func(c broker.SetChange) {
		t.Helper()
		_, err := broker.ChangeSets(t.Context(), d.Admin, d.NS, []string{"default", "a", "b", "c"}, c,
			broker.Reservation{}, brokertest.Administrator(), time.Now())
		require.NoError(t, err)
	}
	change(broker.SetChange{Cluster: "east", Add: []string{"b"}})
	hub.eventuallyKnows(map[string][]string{"east": {"a", "b"}, "west": {"b"}})
	change(broker.SetChange{Cluster: "east", Remove: []string{"b"}})
	hub.eventuallyKnows(map[string][]string{"east": {"a"}, "west": {"b"}})
	change(broker.SetChange{Cluster: "hub", Add: []string{"c"}})
	change(broker.SetChange{Cluster: "east", Add: []string{"c"}})
	hub.eventuallyKnows(map[string][]string{"east": {"a", "c"}, "west": {"b"}})
	change(broker.SetChange{Cluster: "hub", Remove: []string{"b"}})
	hub.eventuallyKnows(map[string][]string{"east": {"a", "c"}})
	west.eventuallyKnows(map[string][]string{})
	hub.eventuallyHealthy(true)

	t.Log("a broker that does not answer")
	gate.Shut()
	hub.eventuallyHealthy(false)
	hub.eventuallyKnows(map[string][]string{"east": {"a", "c"}})
	gate.Open(t, server)
	hub.eventuallyHealthy(true)
}

// The administrator's change of a clusterset that a cluster polls is followed at once, however long
// a round takes.
func TestAnnouncedChange(t *testing.T) {
	server := kubetest.Shared(t)
	d := brokertest.Deploy(t, server, "a", "b")
	gate := kubetest.NewGate(t, server)
	hub := newSite(t, d, gate, "hub", "a", "b")
	west := newSite(t, d, gate, "west", "a")
	hub.watched = 1
	hub.round = time.Hour
	for _, s := range []*site{hub, west} {
		s.create(brokertest.Cluster("", s.id))
		s.start()
		t.Cleanup(func() { s.stop() })
	}
	hub.eventuallyKnows(map[string][]string{"west": {"a"}})
	hub.ex.EndHurry()
	_, err := broker.ChangeSets(t.Context(), d.Admin, d.NS, []string{"default", "a", "b"},
		broker.SetChange{Cluster: "west", Add: []string{"b"}}, broker.Reservation{}, brokertest.Administrator(),
		time.Now())
	require.NoError(t, err)
	brokertest.Eventually(t, func() bool { return len(west.knows()["hub"]) == 2 })
	b := &submarinerv1.Cluster{}
	brokertest.Eventually(t, func() bool {
		return d.Admin.Get(t.Context(), client.ObjectKey{Namespace: broker.NamespaceIn(d.NS, "b"), Name: "west"},
			b) == nil &&
			b.Annotations[submarinerv1.SignatureAnnotation] != ""
	})
	require.Equal(t, map[string][]string{"west": {"a"}}, hub.knows(), "it polls once an hour")
	account := &corev1.ServiceAccount{}
	require.NoError(t, d.Admin.Get(t.Context(), client.ObjectKey(hub.config.Account), account))
	brokertest.Annotate(account, submarinerv1.ChangedAnnotation, "b 1")
	require.NoError(t, d.Admin.Update(t.Context(), account))
	hub.eventuallyKnows(map[string][]string{"west": {"a", "b"}})
}
