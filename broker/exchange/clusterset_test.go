package exchange_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
	"subctl/broker/trust"
	"subctl/internal/kubetest"
)

// knows returns the clusters of which a site has a copy, with the clustersets in which they are.
func (s *site) knows() map[string][]string {
	s.t.Helper()
	list := &submarinerv1.ClusterList{}
	require.NoError(s.t, s.client.List(s.t.Context(), list, client.InNamespace(s.ns)))
	out := map[string][]string{}
	for _, c := range list.Items {
		if submarinerv1.IsCopy(&c) {
			require.Equal(s.t, c.ClusterSets(), c.Spec.ClusterSets, "what the copy shows")
			out[c.Name] = c.Spec.ClusterSets
		}
	}
	return out
}

func (s *site) eventuallyKnows(want map[string][]string) {
	s.t.Helper()
	var last map[string][]string
	for end := time.Now().Add(brokertest.Patience); time.Now().Before(end); time.Sleep(brokertest.Tick) {
		if last = s.knows(); len(last) == len(want) {
			same := true
			for id, sets := range want {
				same = same && slices.Equal(last[id], sets)
			}
			if same {
				return
			}
		}
	}
	require.Equal(s.t, want, last, "%s knows", s.id)
}

// hubAndSpokes returns a broker with the clustersets a and b, a hub in both, and a spoke in each.
func hubAndSpokes(t *testing.T) (d *brokertest.Broker, hub, east, west *site) {
	t.Helper()
	server := kubetest.Shared(t)
	d = brokertest.Deploy(t, server, "a", "b")
	gate := kubetest.NewGate(t, server)
	hub = newSite(t, d, gate, "hub", "a", "b")
	east = newSite(t, d, gate, "east", "a")
	west = newSite(t, d, gate, "west", "b")
	for _, s := range []*site{hub, east, west} {
		s.create(brokertest.Cluster("", s.id))
		s.start()
		t.Cleanup(func() { s.stop() })
	}
	hub.eventuallyKnows(map[string][]string{"east": {"a"}, "west": {"b"}})
	return d, hub, east, west
}

// The administrator of the broker changes which clusters are in which clustersets, and the clusters
// follow.
func TestClusterSets(t *testing.T) {
	d, hub, east, west := hubAndSpokes(t)
	east.eventuallyKnows(map[string][]string{"hub": {"a"}})
	west.eventuallyKnows(map[string][]string{"hub": {"b"}})

	change := func(c broker.SetChange) {
		t.Helper()
		_, err := broker.ChangeSets(t.Context(), d.Admin, d.NS, []string{"default", "a", "b"}, c, broker.Reservation{},
			brokertest.Administrator(), time.Now())
		require.NoError(t, err)
	}
	change(broker.SetChange{Cluster: "east", Add: []string{"b"}})
	hub.eventuallyKnows(map[string][]string{"east": {"a", "b"}, "west": {"b"}})
	east.eventuallyKnows(map[string][]string{"hub": {"a", "b"}, "west": {"b"}})
	west.eventuallyKnows(map[string][]string{"hub": {"b"}, "east": {"b"}})

	east.stop() // another gateway remembers the same
	east.start()
	inA := &submarinerv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: broker.NamespaceIn(d.NS, "a"), Name: "east"}}
	require.NoError(t, d.Admin.Get(t.Context(), client.ObjectKeyFromObject(inA), inA))
	former := inA.DeepCopy()
	change(broker.SetChange{Cluster: "east", Remove: []string{"a"}})
	require.NoError(t, d.Admin.Get(t.Context(), client.ObjectKeyFromObject(inA), inA))
	require.True(t, exchange.IsRemoved(inA))
	_, gone := exchange.RemovalOf(inA, brokertest.Administrator().Public().String())
	require.False(t, gone, "it is a member of other clustersets")
	hub.eventuallyKnows(map[string][]string{"east": {"b"}, "west": {"b"}})
	east.eventuallyKnows(map[string][]string{"hub": {"b"}, "west": {"b"}})

	change(broker.SetChange{Cluster: "east", Remove: []string{"b"}})
	hub.eventuallyKnows(map[string][]string{"west": {"b"}})
	west.eventuallyKnows(map[string][]string{"hub": {"b"}})
	east.eventuallyKnows(map[string][]string{})
	require.Eventually(t, func() bool { return east.ex.Healthy() == nil }, patience, tick, "a cluster that is alone")

	hub.stop() // another gateway remembers the removal
	hub.start()
	require.NoError(t, d.Admin.Delete(t.Context(), inA))
	former.ObjectMeta = metav1.ObjectMeta{
		Namespace:   former.Namespace,
		Name:        former.Name,
		Labels:      former.Labels,
		Annotations: former.Annotations,
	}
	require.NoError(t, d.Admin.Create(t.Context(), former)) // a broker that was taken over
	brokertest.Eventually(t, func() bool {
		return strings.Contains(fmt.Sprint(hub.ex.Status().Refused), "cluster east was removed from clusterset a")
	})
	hub.eventuallyKnows(map[string][]string{"west": {"b"}})

	change(broker.SetChange{Cluster: "east", Add: []string{"a", "b"}})
	east.eventuallyKnows(map[string][]string{"hub": {"a", "b"}, "west": {"b"}})
	change(broker.SetChange{Cluster: "east", Add: []string{"default"}, Remove: []string{"a", "b"}})
	east.eventuallyKnows(map[string][]string{})
}

// A cluster that was removed from a clusterset can read nothing of it.
func TestFormerMember(t *testing.T) {
	server := kubetest.Shared(t)
	d := brokertest.Deploy(t, server, "a", "b")
	cred, err := broker.AddMember(t.Context(), d.Admin, d.NS, "east", "uid-east",
		broker.Reservation{Sets: []string{"a", "default"}})
	require.NoError(t, err)
	east := kubetest.Client(t, server.As(string([]byte(cred.Token))))
	read := func(ns string) error {
		return east.List(t.Context(), &submarinerv1.ClusterList{}, client.InNamespace(ns))
	}
	a := broker.NamespaceIn(d.NS, "a")
	brokertest.Eventually(t, func() bool { return read(d.NS) == nil && read(a) == nil })
	grants, err := trust.Published(brokertest.IdentityIn("east", "a", "default").Grant)
	require.NoError(t, err)
	change := func(c broker.SetChange) (trust.Grant, error) {
		c.Cluster = "east"
		return broker.ChangeSets(t.Context(), d.Admin, d.NS, []string{"default", "a", "b"}, c, broker.Reservation{},
			brokertest.Administrator(), time.Now())
	}
	for _, set := range []string{"default", "a"} {
		published := brokertest.Cluster(broker.NamespaceIn(d.NS, set), "east")
		published.Annotations = map[string]string{submarinerv1.GrantAnnotation: grants[set]}
		require.NoError(t, d.Admin.Create(t.Context(), published))
		g, err := change(broker.SetChange{Add: []string{"b"}})
		if set == "default" {
			require.ErrorContains(t, err,
				"cluster east has rights in clusterset a, and has not published its grant there")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, []string{"a", "b", "default"}, g.Sets, "what it published in each clusterset")
	}
	for _, set := range []string{"a", "default"} {
		_, err = change(broker.SetChange{Remove: []string{set}})
		require.NoError(t, err)
		brokertest.Eventually(t, func() bool { return apierrors.IsForbidden(read(broker.NamespaceIn(d.NS, set))) })
	}
}

// The clustersets that a copy shows are those in which it was found, whatever its owner or the
// broker claims.
func TestHostileClusterSets(t *testing.T) {
	v := newVictim(t)
	c, _, _ := v.west()
	c.Spec.ClusterSets = []string{"prod", "lab", "default"}
	brokertest.Annotate(c, submarinerv1.ClusterSetsAnnotation, "prod")
	require.Empty(t, v.sync(unsigned("default", c), unsigned("lab")))
	copied := v.local[id(c)].(*submarinerv1.Cluster)
	require.Equal(t, []string{"default"}, copied.Spec.ClusterSets)
	require.Equal(t, []string{"default"}, copied.ClusterSets())
}

// A member writes no clusterset but the one of the namespace.
func TestHostileMemberClaimsClusterSets(t *testing.T) {
	server := kubetest.Shared(t)
	d := brokertest.Deploy(t, server, "a", "b")
	cred, err := broker.AddMember(t.Context(), d.Admin, d.NS, "east", "uid-east",
		broker.Reservation{Sets: []string{"a"}})
	require.NoError(t, err)
	east := brokertest.Filling(kubetest.Client(t, server.As(string([]byte(cred.Token)))))
	a := broker.NamespaceIn(d.NS, "a")
	brokertest.Eventually(t, func() bool {
		return east.List(t.Context(), &submarinerv1.ClusterList{}, client.InNamespace(a)) == nil
	})
	published := brokertest.Cluster(a, "east")
	published.Spec.ClusterSets = []string{"a", "b"}
	err = east.Create(t.Context(), published)
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.ErrorContains(t, err, "in this namespace, spec.cluster_sets of the Cluster east may only be a")
	published.Spec.ClusterSets = []string{"a"}
	require.NoError(t, east.Create(t.Context(), published))
	for _, ns := range []string{d.NS, broker.NamespaceIn(d.NS, "b")} {
		require.True(t,
			apierrors.IsForbidden(east.List(t.Context(), &submarinerv1.ClusterList{}, client.InNamespace(ns))), ns)
		elsewhere := brokertest.Cluster(ns, "east")
		require.True(t, apierrors.IsForbidden(east.Update(t.Context(), elsewhere)), ns)
		require.True(t, apierrors.IsForbidden(east.Create(t.Context(), elsewhere)), ns)
	}
}

// A member of a clusterset that somebody has deleted on the broker reports it, and goes on with its
// other clustersets.
func TestClusterSetDeletedByHand(t *testing.T) {
	d, hub, _, west := hubAndSpokes(t)
	d.DeleteByHand(t, "a")
	reports := func() bool {
		status := hub.ex.Status() // a watch that was allowed goes on
		return strings.Contains(fmt.Sprint(status.Errors, status.Refused), "clusterset a")
	}
	brokertest.Eventually(t, reports)
	hub.eventuallyKnows(map[string][]string{"west": {"b"}})
	west.eventuallyKnows(map[string][]string{"hub": {"b"}})

	hub.stop()
	hub.start() // what it cannot read now does not matter for the others
	brokertest.Eventually(t, reports)
	published := &submarinerv1.Cluster{}
	require.NoError(t, west.client.Get(t.Context(), client.ObjectKey{Namespace: west.ns, Name: "west"}, published))
	published.Spec.PublicKey = "changed"
	require.NoError(t, west.client.Update(t.Context(), published))
	brokertest.Eventually(t, func() bool {
		c := &submarinerv1.Cluster{}
		return hub.client.Get(t.Context(), client.ObjectKey{Namespace: hub.ns, Name: "west"}, c) == nil &&
			c.Spec.PublicKey == "changed"
	})
}

// A member of a clusterset that somebody has deleted on the broker is no member of it after a
// while, also after a restart and where it polled the clusterset: it waits for it no longer, and
// what it has learned from it is gone. While the broker refuses everything, nothing changes.
func TestDeniedClusterSet(t *testing.T) {
	for _, watched := range []int{0, 1} {
		t.Run(fmt.Sprint("watched ", watched), func(t *testing.T) {
			d, hub, east, west := hubAndSpokes(t)
			east.eventuallyKnows(map[string][]string{"hub": {"a"}})
			hub.stop()
			hub.watched = watched
			hub.denied = time.Hour
			hub.start()
			hub.eventuallyKnows(map[string][]string{"east": {"a"}, "west": {"b"}})
			hub.stop()
			d.DeleteByHand(t, "a")
			hub.start()
			brokertest.Eventually(t,
				func() bool { return strings.Contains(fmt.Sprint(hub.ex.Status().Errors), "clusterset a") })
			north := newSite(t, d, kubetest.NewGate(t, kubetest.Shared(t)), "north", "b")
			north.create(brokertest.Cluster("", "north"))
			north.start()
			defer north.stop()
			hub.eventuallyKnows(map[string][]string{"east": {"a"}, "north": {"b"}, "west": {"b"}})
			waits := func() []string {
				c := &submarinerv1.Cluster{}
				require.NoError(t, hub.client.Get(t.Context(), client.ObjectKey{Namespace: hub.ns, Name: "north"}, c))
				return c.UnreadClusterSets()
			}
			require.Equal(t, []string{"a"}, waits())
			hub.stop()

			hub.denied = time.Second
			hub.start()
			hub.eventuallyKnows(map[string][]string{"north": {"b"}, "west": {"b"}})
			require.Empty(t, waits())
			west.eventuallyKnows(map[string][]string{"hub": {"b"}, "north": {"b"}})
			brokertest.Eventually(t, func() bool { return slices.Equal(hub.ex.Status().Sets, []string{"a", "b"}) })

			west.stop()
			d.DeleteByHand(t, "b")
			west.denied = time.Millisecond
			west.start()
			brokertest.Eventually(t,
				func() bool { return strings.Contains(fmt.Sprint(west.ex.Status().Errors), "clusterset b") })
			time.Sleep(time.Second)
			west.eventuallyKnows(map[string][]string{"hub": {"b"}, "north": {"b"}})
		})
	}
}

// A clusterset that was deleted by hand is created again, and its members are added to it: also one
// that was in no other, and whose grant the administrator has never renewed. A cluster that does
// not run gets no rights.
func TestClusterSetRestored(t *testing.T) {
	d, hub, east, west := hubAndSpokes(t)
	d.DeleteByHand(t, "a")
	east.eventuallyKnows(map[string][]string{})
	hub.eventuallyKnows(map[string][]string{"west": {"b"}})
	objects, err := broker.NewSets(t.Context(), d.Admin,
		&v1alpha1.Broker{ObjectMeta: metav1.ObjectMeta{Namespace: d.NS, Name: v1alpha1.BrokerName}}, []string{"a"})
	require.NoError(t, err)
	require.NoError(t, broker.Apply(t.Context(), d.Admin, objects))
	add := func(id string) error {
		_, err := broker.ChangeSets(t.Context(), d.Admin, d.NS, []string{"default", "a", "b"},
			broker.SetChange{Cluster: id, Add: []string{"a"}}, broker.Reservation{}, brokertest.Administrator(),
			time.Now())
		return err
	}
	east.stop()
	require.ErrorContains(t, add("east"),
		"cluster east was in no clusterset, and has published no valid grant within 20s")
	members, err := broker.ClusterSets(t.Context(), d.Admin, d.NS)
	require.NoError(t, err)
	require.Empty(t, members[0].Members, "of %s", members[0].Name)
	east.start()
	require.NoError(t, add("east"))
	require.NoError(t, add("hub"))
	hub.eventuallyKnows(map[string][]string{"east": {"a"}, "west": {"b"}})
	east.eventuallyKnows(map[string][]string{"hub": {"a"}})
	west.eventuallyKnows(map[string][]string{"hub": {"b"}})
}
