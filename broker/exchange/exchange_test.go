package exchange_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
	"subctl/internal/kubetest"
)

// site is a joined cluster: a namespace of the shared server and an exchange.
type site struct {
	t      *testing.T
	id, ns string
	client client.Client
	config exchange.Config
	ex     *exchange.Exchange
	stop   func()

	watched int           // how many clustersets it watches; 0: all
	round   time.Duration // how often it polls the others; 0: once a second
	denied  time.Duration // see LeaveDenied; 0: as it is
}

// newSite joins a cluster to a broker that is reached through gate.
func newSite(t *testing.T, d *brokertest.Broker, gate *kubetest.Gate, id string, sets ...string) *site {
	t.Helper()
	server := kubetest.Shared(t)
	server.InstallCRDs(t)
	if len(sets) == 0 {
		sets = []string{"default"}
	}
	cred, err := broker.AddMember(t.Context(), d.Admin, d.NS, id, "uid-"+id, broker.Reservation{Sets: sets})
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "token"), cred.Token, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ca.crt"), cred.CA, 0o600))
	remote, err := broker.RESTConfig(dir, broker.Access{Server: gate.Address()}, "")
	require.NoError(t, err)
	s := &site{t: t, id: id, ns: server.Namespace(t, id), client: server.Client(t)}
	s.config = exchange.Config{
		ClusterID: id, Namespace: s.ns, Local: server.Config(), Broker: remote, Log: slog.New(slog.DiscardHandler),
		Identity:    func() (exchange.Identity, error) { return brokertest.IdentityIn(id, sets...), nil },
		Account:     types.NamespacedName{Namespace: d.NS, Name: broker.MemberName(id)},
		NamespaceOf: func(set string) string { return broker.NamespaceIn(d.NS, set) },
	}
	return s
}

// start runs a new exchange, as a new gateway would.
func (s *site) start() {
	ctx, cancel := context.WithCancel(s.t.Context())
	s.ex = exchange.New(s.config)
	if s.watched > 0 {
		s.ex.Watch(s.watched, cmp.Or(s.round, time.Second))
	}
	if s.denied > 0 {
		s.ex.LeaveDenied(s.denied)
	}
	done := make(chan error, 1)
	go func(e *exchange.Exchange) { done <- e.Run(ctx) }(s.ex)
	s.stop = func() {
		cancel()
		require.NoError(s.t, <-done)
	}
}

func (s *site) create(o client.Object) {
	s.t.Helper()
	o.SetNamespace(s.ns)
	o.SetLabels(nil)
	o.SetAnnotations(nil)
	require.NoError(s.t, s.client.Create(s.t.Context(), o))
}

// names returns what the cluster holds, sorted.
func (s *site) names() []string {
	s.t.Helper()
	clusters := &submarinerv1.ClusterList{}
	endpoints := &submarinerv1.EndpointList{}
	require.NoError(s.t, s.client.List(s.t.Context(), clusters, client.InNamespace(s.ns)))
	require.NoError(s.t, s.client.List(s.t.Context(), endpoints, client.InNamespace(s.ns)))
	names := []string{}
	for _, c := range clusters.Items {
		names = append(names, c.Name)
	}
	for _, e := range endpoints.Items {
		names = append(names, e.Spec.CableName)
	}
	slices.Sort(names)
	return names
}

func (s *site) eventually(names ...string) {
	s.t.Helper()
	slices.Sort(names)
	require.Eventually(s.t, func() bool { return slices.Equal(names, s.names()) }, patience, 10*time.Millisecond,
		"%s: want %v", s.id, names)
}

func (s *site) eventuallyHealthy(healthy bool) {
	s.t.Helper()
	require.Eventually(s.t, func() bool { return (s.ex.Healthy() == nil) == healthy }, patience, 10*time.Millisecond)
}

const eastCable, westCable, newCable = "submariner-cable-east-10-0-0-1", "submariner-cable-west-10-0-0-1", "submariner-cable-west-10-0-0-2"

func TestExchange(t *testing.T) {
	server := kubetest.Start(t)
	d := brokertest.Deploy(t, server)
	gate := kubetest.NewGate(t, server)
	east := newSite(t, d, gate, "east")
	west := newSite(t, d, gate, "west")
	east.start()
	west.start()
	for _, s := range []*site{east, west} {
		s.create(cluster(s.ns, s.id))
		s.create(endpoint(s.ns, s.id, "10-0-0-1"))
	}
	east.eventually("east", "west", eastCable, westCable)
	west.eventually("east", "west", eastCable, westCable)
	east.eventuallyHealthy(true)
	west.eventuallyHealthy(true)
	t.Logf("a change takes %s from cluster to cluster (median of 21)", latency(t, east, west))

	t.Log("a claim of our ID is refused")
	forged := cluster(d.NS, "north")
	forged.Spec.ClusterID = "east"
	forged.Labels[submarinerv1.ClusterIDLabel] = "east"
	require.NoError(t, d.Admin.Create(t.Context(), forged))
	require.Eventually(t, func() bool {
		return slices.Contains(texts(east.ex.Status().Refused),
			"Cluster "+d.NS+"/north on the broker: it claims to belong to this cluster, but is not named after it")
	}, patience, 10*time.Millisecond)
	require.NoError(t, east.ex.Healthy())

	t.Log("the broker is away")
	gate.Shut()
	east.eventuallyHealthy(false)
	west.eventuallyHealthy(false)
	require.False(t, east.ex.Status().Connected)
	notRead := func(want bool) {
		require.Eventually(t, func() bool { return east.ex.Status().NotRead == want }, patience, 10*time.Millisecond)
	}
	notRead(true)
	require.NoError(
		t,
		west.client.Delete(t.Context(),
			&submarinerv1.Endpoint{ObjectMeta: metav1.ObjectMeta{Name: "west-" + westCable, Namespace: west.ns}}),
	)
	west.create(endpoint(west.ns, "west", "10-0-0-2"))
	time.Sleep(500 * time.Millisecond)
	east.eventually("east", "west", eastCable, westCable)
	west.eventually("east", "west", eastCable, newCable)
	back := time.Now()
	gate.Open(t, server)
	east.eventually("east", "west", eastCable, newCable)
	t.Logf("repaired %s after the broker was back", time.Since(back).Round(time.Millisecond))
	east.eventuallyHealthy(true)
	notRead(false)

	t.Log("the broker restarts, and a gateway starts while it is away")
	gate.Shut()
	server.Stop()
	east.stop()
	require.NoError(
		t,
		east.client.Delete(t.Context(),
			&submarinerv1.Endpoint{ObjectMeta: metav1.ObjectMeta{Name: "east-" + eastCable, Namespace: east.ns}}),
	)
	east.start()
	time.Sleep(500 * time.Millisecond)
	east.eventually("east", "west", newCable)
	notRead(true)
	server.Restart(t)
	gate.Open(t, server)
	west.eventually("east", "west", newCable)
	east.eventuallyHealthy(true)

	t.Log("a delete that nobody watched")
	east.stop()
	require.NoError(
		t,
		west.client.Delete(t.Context(),
			&submarinerv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "west", Namespace: west.ns}}),
	)
	require.Eventually(t, func() bool {
		return client.IgnoreNotFound(
			server.Client(t).Get(t.Context(), client.ObjectKey{Namespace: d.NS, Name: "west"},
				&submarinerv1.Cluster{})) == nil
	}, patience, 10*time.Millisecond)
	east.start()
	east.eventually("east", newCable)

	t.Log("a copy that somebody deleted or changed comes back")
	west.create(cluster(west.ns, "west"))
	east.eventually("east", "west", newCable)
	copied := &submarinerv1.Endpoint{}
	key := client.ObjectKey{Namespace: east.ns, Name: "west-" + newCable}
	require.NoError(t, east.client.Get(t.Context(), key, copied))
	require.Equal(t, "default", copied.Annotations[submarinerv1.ClusterSetsAnnotation])
	copied.Spec.Hostname = "forged"
	require.NoError(t, east.client.Update(t.Context(), copied))
	require.Eventually(t, func() bool {
		return east.client.Get(t.Context(), key, copied) == nil && copied.Spec.Hostname == "gw"
	}, patience, 10*time.Millisecond)
	require.NoError(t, east.client.Delete(t.Context(), copied))
	east.eventually("east", "west", newCable)
	east.stop()
	west.stop()
}

// latency returns how long a change of an Endpoint takes from one cluster into
// the other.
func latency(t *testing.T, from, to *site) time.Duration {
	t.Helper()
	var took []time.Duration
	name := from.id + "-submariner-cable-" + from.id + "-10-0-0-1"
	e := &submarinerv1.Endpoint{}
	for i := range 21 {
		require.NoError(t, from.client.Get(t.Context(), client.ObjectKey{Namespace: from.ns, Name: name}, e))
		e.Spec.Hostname = fmt.Sprintf("gw-%d", i)
		if i == 20 {
			e.Spec.Hostname = "gw"
		}
		began := time.Now()
		require.NoError(t, from.client.Update(t.Context(), e))
		require.Eventually(t, func() bool {
			c := &submarinerv1.Endpoint{}
			return to.client.Get(t.Context(), client.ObjectKey{Namespace: to.ns, Name: name}, c) == nil &&
				c.Spec.Hostname == e.Spec.Hostname
		}, patience, 5*time.Millisecond)
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took[10].Round(time.Millisecond)
}

// A thousand clusters reach one that joins, and a broker that is emptied takes
// them away again.
func TestThousandClusters(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 4,000 objects")
	}
	d := brokertest.Deploy(t, kubetest.Shared(t))
	gate := kubetest.NewGate(t, d.Server)
	east := newSite(t, d, gate, "east")
	for i := range 1000 {
		id := fmt.Sprintf("c%d", i)
		require.NoError(t, d.Admin.Create(t.Context(), cluster(d.NS, id)))
		require.NoError(t, d.Admin.Create(t.Context(), endpoint(d.NS, id, "10-0-0-1")))
	}
	began := time.Now()
	east.start()
	require.Eventually(t, func() bool { return east.ex.Healthy() == nil && len(east.names()) == 2000 }, 2*time.Minute,
		100*time.Millisecond)
	t.Logf("1,000 clusters were copied in %s", time.Since(began).Round(time.Millisecond))
	began = time.Now()
	require.NoError(t, d.Admin.DeleteAllOf(t.Context(), &submarinerv1.Endpoint{}, client.InNamespace(d.NS)))
	require.Eventually(t, func() bool { return len(east.names()) == 1000 }, 2*time.Minute, 100*time.Millisecond)
	t.Logf("1,000 endpoints were deleted in %s", time.Since(began).Round(time.Millisecond))
	east.stop()
}
