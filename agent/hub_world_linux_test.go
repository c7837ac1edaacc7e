package agent

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
	"subctl/broker/trust"
	"subctl/internal/kubetest"
)

// hubWorld is a broker with a hub and its spokes.
type hubWorld struct {
	*brokertest.Broker
	sets   []string
	spokes []string   // spokes[i] is in sets[i]
	hub    *childSite // runs
	live   []*childSite
}

func newHubWorld(b *testing.B) *hubWorld {
	b.Helper()
	began := time.Now()
	server := kubetest.Start(b)
	w := &hubWorld{Broker: brokertest.Deploy(b, server)}
	for i := range manySets {
		w.sets, w.spokes = append(w.sets, fmt.Sprintf("set-%04d", i)), append(w.spokes, fmt.Sprintf("spoke-%04d", i))
	}
	w.addSets(b, w.sets)
	b.Logf("%s: clustersets", time.Since(began))
	hub := w.newSite(b, "hub", w.sets...)
	hub.Idle, w.hub = 12*time.Second, hub // more than a round of polls
	w.renewed(b, hub)
	b.Logf("%s: hub", time.Since(began))
	members := membersClient(b, server)
	parallel(b, manySets, func(i int) error { return w.joinSpoke(b.Context(), members, i) })
	for _, i := range []int{0, 1, manySets - 2, manySets - 1} { // two that the hub watches, and two that it polls
		w.live = append(w.live, w.newSite(b, w.spokes[i], w.sets[i]))
	}
	b.Logf("%s: spokes", time.Since(began))
	return w
}

// addSets creates clustersets.
func (w *hubWorld) addSets(b *testing.B, sets []string) {
	b.Helper()
	object := &v1alpha1.Broker{}
	require.NoError(b, w.Admin.Get(b.Context(), client.ObjectKey{Namespace: w.NS, Name: v1alpha1.BrokerName}, object))
	chunks := slices.Collect(slices.Chunk(sets, 25))
	parallel(b, len(chunks), func(i int) error {
		objects, err := broker.NewSets(b.Context(), w.Admin, object, chunks[i])
		if err != nil {
			return err
		}
		return broker.Apply(b.Context(), w.Admin, objects)
	})
}

// renewed leaves the whole grant of a cluster on its account, as the administrator does who adds it
// to clustersets. What a cluster publishes discloses only one of them, and the next change would
// take it out of all others.
func (w *hubWorld) renewed(b *testing.B, s *childSite) {
	b.Helper()
	sa := &corev1.ServiceAccount{}
	require.NoError(b, w.Admin.Get(b.Context(), client.ObjectKey{Namespace: w.NS, Name: broker.MemberName(s.ID)}, sa))
	brokertest.Annotate(sa, submarinerv1.GrantAnnotation, brokertest.IdentityIn(s.ID, s.Sets...).Grant)
	require.NoError(b, w.Admin.Update(b.Context(), sa))
}

// reserved is the smallest place of a cluster with one gateway and no policies.
func reserved(id string, sets ...string) broker.Reservation {
	return broker.Reservation{
		Sets:  sets,
		Grant: trust.Grant{Cluster: id, Gateways: 1},
		Kinds: exchange.KindsFrom(v1alpha1.PoliciesFromBroker),
	}
}

// joinSpoke makes spoke i a member, which publishes its objects.
func (w *hubWorld) joinSpoke(ctx context.Context, members client.Client, i int) error {
	id := w.spokes[i]
	set := w.sets[i]
	if _, err := broker.EnsureMember(ctx, w.Admin, w.NS, id, "uid-"+id, reserved(id, set)); err != nil {
		return err
	}
	ctx = context.WithValue(ctx, userKey{}, "system:serviceaccount:"+w.NS+":"+broker.MemberName(id))
	c, e := spokeObjects(broker.NamespaceIn(w.NS, set), id, i)
	brokertest.Annotate(c, submarinerv1.GrantAnnotation, brokertest.IdentityIn(id, set).Grant)
	for _, o := range []client.Object{c, brokertest.InSlot(e, id, 0)} {
		if err := publish(ctx, brokertest.Filling(members), o); err != nil {
			return fmt.Errorf("%s: %w", o.GetName(), err)
		}
	}
	return nil
}

// publish writes an object of a member. The API server may take a moment to know of the member's
// rights.
func publish(ctx context.Context, c client.Client, o client.Object) error {
	for end := time.Now().Add(brokertest.Patience); ; time.Sleep(brokertest.Tick) {
		err := c.Create(ctx, o.DeepCopyObject().(client.Object))
		if !apierrors.IsForbidden(err) || time.Now().After(end) {
			return err
		}
	}
}

// spokeObjects returns the Cluster and the Endpoint of spoke i, with networks of its own.
func spokeObjects(ns, id string, i int) (*submarinerv1.Cluster, *submarinerv1.Endpoint) {
	network := fmt.Sprintf("10.%d.%d.0/24", 16+i/256, i%256)
	c := brokertest.Cluster(ns, id)
	e := brokertest.Endpoint(ns, id, "10-0-0-1")
	c.Spec.ClusterCIDR = []string{network}
	c.Spec.ServiceCIDR = []string{}
	e.Spec.Subnets = []string{network}
	e.Spec.PrivateIP = fmt.Sprintf("172.20.%d.%d", i/256, i%256)
	return brokertest.Sign(c, ""), brokertest.Sign(e, "")
}

type userKey struct{}

// membersClient returns a client with the rights of the member that the context names. It has the
// connections of one client.
func membersClient(b *testing.B, server *kubetest.Server) client.Client {
	config := server.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if user, ok := r.Context().Value(userKey{}).(string); ok {
				r = r.Clone(r.Context())
				r.Header.Set("Impersonate-User", user)
			}
			return next.RoundTrip(r)
		})
	})
	return kubetest.Client(b, config)
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// parallel calls f for 0 to n-1, some at a time.
func parallel(b *testing.B, n int, f func(i int) error) {
	b.Helper()
	var group sync.WaitGroup
	var mu sync.Mutex
	var failed error
	slots := make(chan struct{}, 16)
	for i := range n {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			if err := f(i); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = err
			}
		})
	}
	group.Wait()
	require.NoError(b, failed)
}

// newSite joins a cluster whose agent is a process.
func (w *hubWorld) newSite(b *testing.B, id string, sets ...string) *childSite {
	b.Helper()
	ctx := b.Context()
	chunks := slices.Collect(slices.Chunk(sets, 10))
	_, err := broker.EnsureMember(ctx, w.Admin, w.NS, id, "uid-"+id, reserved(id, sets[0]))
	require.NoError(b, err)
	parallel(b, len(chunks), func(i int) error {
		_, err := broker.EnsureMember(ctx, w.Admin, w.NS, id, "uid-"+id, reserved(id, chunks[i]...))
		return err
	})
	cred, err := broker.AddMember(ctx, w.Admin, w.NS, id, "uid-"+id, reserved(id, sets[0]))
	require.NoError(b, err)
	s := &childSite{
		ID: id, Sets: sets, Base: w.NS, Kubeconfig: w.Server.Kubeconfig(), Server: hostOf(w.Server.Config()),
		Credentials: b.TempDir(), Namespace: w.Server.Namespace(b, id), Idle: time.Second,
	}
	s.writeCredentials(b, cred)
	i := slices.Index(w.spokes, id)
	if i < 0 {
		i = 2 * manySets
	}
	c, e := spokeObjects(s.Namespace, id, i)
	for _, o := range []client.Object{c, e} {
		o.SetLabels(nil)
		o.SetAnnotations(nil)
		require.NoError(b, w.Admin.Create(ctx, o))
	}
	return s
}

func hostOf(c *rest.Config) string { return c.Host[len("https://"):] }
