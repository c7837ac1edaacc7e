package exchange_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
	"subctl/internal/kubetest"
)

// seen collects the names of objects that watches show.
type seen struct {
	names chan string
	ended chan struct{}
}

// watchForever opens a watch of each kind in a namespace, for as long as a client can ask for.
func watchForever(t *testing.T, member client.Client, ns string) (all []seen) {
	t.Helper()
	for _, k := range exchange.Kinds() {
		limit := int64(math.MaxInt32)
		w, err := member.(client.WithWatch).Watch(t.Context(), k.List.DeepCopyObject().(client.ObjectList),
			&client.ListOptions{Namespace: ns, Raw: &metav1.ListOptions{TimeoutSeconds: &limit}})
		require.NoError(t, err)
		s := seen{make(chan string, 1000), make(chan struct{})}
		go func() {
			defer close(s.ended)
			for event := range w.ResultChan() {
				if o, ok := event.Object.(client.Object); ok && event.Type != watch.Error {
					s.names <- o.GetName()
				}
			}
		}()
		all = append(all, s)
	}
	return all
}

// requireEnded waits until the watches have ended.
func requireEnded(t *testing.T, watches []seen) {
	t.Helper()
	for i, s := range watches {
		select {
		case <-s.ended:
		case <-time.After(brokertest.Patience):
			t.Fatalf("the watch of %s goes on", exchange.Kinds()[i].Resource)
		}
	}
}

// showed returns the names that ended watches have shown.
func showed(watches []seen) (names []string) {
	for _, s := range watches {
		close(s.names)
		for name := range s.names {
			names = append(names, name)
		}
	}
	return names
}

// A cluster that was removed or revoked reads nothing more through watches that it opened while it
// was a member, for as long as an API server lets it. The others go on exchanging, and forget
// nothing meanwhile.
func TestHostileWatchesOfFormerMembers(t *testing.T) {
	server := kubetest.Shared(t)
	for name, end := range map[string]func(*testing.T, *brokertest.Broker) error{
		"removed from its clusterset": func(t *testing.T, d *brokertest.Broker) error {
			_, err := broker.ChangeSets(t.Context(), d.Admin, d.NS, []string{"default", "a"},
				broker.SetChange{Cluster: "west", Remove: []string{"a"}}, broker.Reservation{},
				brokertest.Administrator(), time.Now())
			return err
		},
		"revoked": func(t *testing.T, d *brokertest.Broker) error {
			return broker.Revoke(t.Context(), d.Admin, d.NS, []string{"default", "a"}, "west",
				brokertest.Administrator(), time.Now())
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := brokertest.Deploy(t, server, "a")
			gate := kubetest.NewGate(t, server)
			hub := newSite(t, d, gate, "hub", "a")
			east := newSite(t, d, gate, "east", "a")
			for _, s := range []*site{hub, east} {
				s.create(brokertest.Cluster("", s.id))
				s.start()
				t.Cleanup(func() { s.stop() })
			}
			hub.eventuallyKnows(map[string][]string{"east": {"a"}})
			a := broker.NamespaceIn(d.NS, "a")
			cred, err := broker.AddMember(t.Context(), d.Admin, d.NS, "west", "uid-west",
				broker.Reservation{Sets: []string{"a"}})
			require.NoError(t, err)
			west := kubetest.Client(t, server.As(string([]byte(cred.Token))))
			brokertest.Eventually(t, func() bool {
				return west.List(t.Context(), &submarinerv1.ClusterList{}, client.InNamespace(a)) == nil
			})
			published := brokertest.Cluster(a, "west")
			published.Annotations = map[string]string{
				submarinerv1.GrantAnnotation: brokertest.IdentityIn("west", "a").Grant,
			}
			require.NoError(t, client.IgnoreAlreadyExists(d.Admin.Create(t.Context(), published)))
			watches := watchForever(t, west, a)
			remaining := watchForever(t, server.Client(t), a)

			require.NoError(t, end(t, d))
			for _, s := range watches {
				select {
				case <-s.ended:
					t.Fatal("the API server ends watches itself when rights end: nothing needs to be done")
				case <-time.After(time.Second):
				}
			}
			began := time.Now()
			require.NoError(t, broker.EndWatches(t.Context(), d.Admin))
			require.NotContains(t, hub.knows(), "west")
			require.Contains(t, hub.knows(), "east", "the hub forgets nothing while it reads again")
			requireEnded(t, watches)
			t.Logf("the watches ended %s after the command", time.Since(began))
			requireEnded(t, remaining)
			require.Contains(t, hub.knows(), "east")

			east.create(endpoint(east.ns, "east", "10-0-0-1"))
			hub.eventually("east", "hub", eastCable)
			require.NotContains(t, showed(watches), eastCable, "what was published afterwards")
		})
	}
}

// Watches that end while objects are written all the time lose none of them.
func TestExchangeWhileWatchesEnd(t *testing.T) {
	d, hub, east, _ := hubAndSpokes(t)
	copied := func() types.UID {
		c := &submarinerv1.Cluster{}
		require.NoError(t, hub.client.Get(t.Context(), client.ObjectKey{Namespace: hub.ns, Name: "east"}, c))
		return c.UID
	}
	before := copied()
	for i := range 3 {
		require.NoError(t, broker.EndWatches(t.Context(), d.Admin))
		east.create(brokertest.Endpoint(east.ns, "east", "10-0-0-"+string(rune('1'+i))))
		hub.eventuallyKnows(map[string][]string{"east": {"a"}, "west": {"b"}})
	}
	brokertest.Eventually(t, func() bool {
		list := &submarinerv1.EndpointList{}
		require.NoError(t, hub.client.List(t.Context(), list, client.InNamespace(hub.ns)))
		return len(list.Items) == 3
	})
	require.Equal(t, before, copied(), "the copy was never deleted")
}
