package agent

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
	"subctl/broker/trust"
	"subctl/cluster"
	"subctl/cluster/clustertest"
	"subctl/internal/kubetest"
	"subctl/internal/measure"
)

// rollout replaces the pods of exported Services, and notes when other clusters know of it.
type rollout struct {
	b     *testing.B
	admin client.Client

	mu     sync.Mutex
	ended  map[string]time.Time     // when a pod began to terminate, by its address
	unused map[string]time.Duration // how long other clusters used it then
	alive  map[string]bool          // the addresses that they may use
	copies int                      // of pages, that were written
	last   time.Time                // when the last one was
}

const (
	rolledServices = 500
	rolledPods     = 5
)

// BenchmarkServicesRollout replaces all pods of 500 exported Services of 5 pods at once, one of
// each Service after the other: the pages of their cluster pass its own agent, its exchange, a
// broker and the exchange of another cluster. All have one API server.
func BenchmarkServicesRollout(b *testing.B) {
	server := kubetest.Start(b)
	sub := clustertest.Submariner()
	sub.Spec.ServiceDiscoveryEnabled = true
	sub.Spec.ServiceCIDR = "10.96.0.0/16"
	admin, config := installed(b, server, sub, cluster.ServiceDiscoveryName)
	require.NoError(b, admin.Create(b.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}))
	at := brokertest.Deploy(b, server)
	reader := server.Namespace(b, "reader")
	exchanged(b, at, "west", cluster.Namespace)
	exchanged(b, at, "east", reader)
	startServicesAgent(b, server, config.Impersonate)
	r := &rollout{
		b:      b,
		admin:  admin,
		ended:  map[string]time.Time{},
		unused: map[string]time.Duration{},
		alive:  map[string]bool{},
	}
	slicesOf := r.export()
	pages := follow[*v1alpha1.ExportedServices](b, server, &v1alpha1.ExportedServicesList{}, nil,
		client.InNamespace(cluster.Namespace))
	copies := follow[*v1alpha1.ExportedServices](b, server, &v1alpha1.ExportedServicesList{}, r.copied,
		client.InNamespace(reader))
	copies.until(b, 1, func(*v1alpha1.ExportedServices) bool { return r.uses(rolledServices * rolledPods) })
	for b.Loop() {
		r.mu.Lock()
		before := r.copies
		written := pages.changes()
		r.mu.Unlock()
		began := time.Now()
		for pod := range rolledPods {
			round := time.Now()
			r.all(slicesOf, func(s *discoveryv1.EndpointSlice, n int) {
				s.Endpoints[pod].Conditions = discoveryv1.EndpointConditions{
					Ready:       new(false),
					Serving:     new(true),
					Terminating: new(true),
				}
				s.Endpoints = append(s.Endpoints,
					discoveryv1.Endpoint{Addresses: []string{rolledAddress(n, rolledPods+pod)}})
				r.mu.Lock()
				r.ended[s.Endpoints[pod].Addresses[0]] = time.Now()
				r.mu.Unlock()
			})
			time.Sleep(time.Until(round.Add(5 * time.Second))) // until the next pod of a Service is replaced
		}
		took := time.Since(began)
		copies.until(b, 1, func(*v1alpha1.ExportedServices) bool { return r.knows() })
		r.mu.Lock()
		lags := make(measure.Values, 0, len(r.unused))
		for _, lag := range r.unused {
			lags = append(lags, lag.Seconds())
		}
		slices.Sort(lags)
		const name = "500 Services of 5 pods are replaced at once: "
		b.Logf("took %s, %d pages, %d copies", took, pages.changes()-written, r.copies-before)
		measure.Record(
			b,
			measure.Info(name+"time", measure.Values{took.Seconds()}, "s"),
			measure.Info(name+"pages written", measure.Values{float64(pages.changes() - written)}, "writes"),
			measure.Info(name+"pages copied to another cluster", measure.Values{float64(r.copies - before)}, "writes"),
			measure.Info(name+"a pod that terminates is known elsewhere after", lags, "s"),
			measure.Info(name+"a pod that terminates is known elsewhere after, 99th percentile",
				measure.Values{lags[len(lags)*99/100]}, "s"),
			measure.Info(name+"all is known elsewhere after the last change by",
				measure.Values{time.Until(r.last).Seconds() + time.Since(began).Seconds() - took.Seconds()}, "s"),
		)
		r.mu.Unlock()
	}
}

// exchanged makes a cluster a member of the broker, and runs its exchange until the benchmark ends.
func exchanged(b *testing.B, at *brokertest.Broker, id, namespace string) {
	b.Helper()
	place := broker.Reservation{
		Grant: trust.Grant{Cluster: id, Gateways: 1}, ToPublish: map[string]int{"exportedservices": 32},
		Kinds: exchange.KindsFrom(v1alpha1.PoliciesFromBroker),
	}
	cred, err := broker.AddMember(b.Context(), at.Admin, at.NS, id, "uid-"+id, place)
	require.NoError(b, err)
	s := &childSite{Credentials: b.TempDir()}
	s.writeCredentials(b, cred)
	remote, err := broker.RESTConfig(s.Credentials, broker.Access{Server: hostOf(at.Server.Config())}, "")
	require.NoError(b, err)
	c := brokertest.Cluster(namespace, id)
	c.SetLabels(nil)
	c.SetAnnotations(nil)
	if id == "west" {
		c.Spec.ClusterCIDR = []string{"10.111.0.0/16"}
		c.Spec.ServiceCIDR = []string{"10.96.0.0/16"}
	}
	require.NoError(b, at.Admin.Create(b.Context(), c))
	e := exchange.New(exchange.Config{
		ClusterID: id,
		Namespace: namespace,
		Local:     at.Server.Config(),
		Broker:    remote,
		Log:       slog.New(slog.DiscardHandler),
		Identity: func() (exchange.Identity, error) {
			return brokertest.IdentityIn(id, submarinerv1.DefaultClusterSet), nil
		},
		Account:     types.NamespacedName{Namespace: at.NS, Name: broker.MemberName(id)},
		NamespaceOf: func(set string) string { return broker.NamespaceIn(at.NS, set) },
	})
	go func() { _ = e.Run(b.Context()) }() // it changes nothing while the broker is away
}

func rolledAddress(service, pod int) string {
	return fmt.Sprintf("10.111.%d.%d", service>>4, service&15<<4|pod)
}

// export creates the Services with their endpoints, and exports them.
func (r *rollout) export() (slicesOf []*discoveryv1.EndpointSlice) {
	r.b.Helper()
	var all []client.Object
	for n := range rolledServices {
		in := metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("web-%03d", n)}
		s := &discoveryv1.EndpointSlice{
			ObjectMeta: *in.DeepCopy(), AddressType: discoveryv1.AddressTypeIPv4,
			Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}},
		}
		s.Labels = map[string]string{discoveryv1.LabelServiceName: in.Name}
		for pod := range rolledPods {
			s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{rolledAddress(n, pod)}})
		}
		slicesOf = append(slicesOf, s)
		all = append(
			all,
			s,
			&mcsv1alpha1.ServiceExport{ObjectMeta: *in.DeepCopy()},
			&corev1.Service{
				ObjectMeta: in,
				Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
			},
		)
	}
	createAll(r.b, r.admin, all)
	return slicesOf
}

// all changes and writes all slices, 16 at a time.
func (r *rollout) all(slicesOf []*discoveryv1.EndpointSlice, change func(s *discoveryv1.EndpointSlice, n int)) {
	parallel(r.b, len(slicesOf), func(i int) error {
		change(slicesOf[i], i)
		return r.admin.Update(r.b.Context(), slicesOf[i])
	})
}

// copied notes what a copy of a page says.
func (r *rollout) copied(page *v1alpha1.ExportedServices) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.copies++
	r.last = now
	for _, s := range page.Spec.Services {
		for _, g := range s.Endpoints {
			for _, p := range g.Pods {
				if r.alive[p.IP] = p.State == v1alpha1.EndpointReady; r.alive[p.IP] {
					continue
				}
				if at, ended := r.ended[p.IP]; ended && r.unused[p.IP] == 0 {
					r.unused[p.IP] = now.Sub(at)
				}
			}
		}
	}
}

// uses reports whether other clusters use so many pods.
func (r *rollout) uses(pods int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, is := range r.alive {
		if is {
			n++
		}
	}
	return n >= pods
}

// knows reports whether other clusters know of all pods that terminate, and of those that replace
// them.
func (r *rollout) knows() bool {
	r.mu.Lock()
	unused := len(r.unused)
	r.mu.Unlock()
	return unused == rolledServices*rolledPods && r.uses(rolledServices*rolledPods)
}
