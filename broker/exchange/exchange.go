package exchange

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/internal/wake"
)

// Set is a clusterset on a broker.
type Set struct {
	Name      string // "default"
	Namespace string // "submariner-k8s-broker"
}

// Config is what an Exchange works on.
type Config struct {
	Kinds     Table // nil: Kinds()
	ClusterID string
	Namespace string       // of this cluster: submariner-operator
	Local     *rest.Config // this cluster
	Broker    *rest.Config // see broker.RESTConfig
	// Account is the service account of this cluster on the broker, in which the administrator renews the
	// cluster's grant.
	Account types.NamespacedName
	// NamespaceOf returns the namespace of a clusterset on the broker. The grant lists the clustersets.
	NamespaceOf func(set string) string
	// Identity returns what the cluster signs and verifies with. It is called in every pass.
	Identity func() (Identity, error)
	Log      *slog.Logger
	// Complete is called when Status.Digest has changed. It may be nil.
	Complete func()
	// Warn is called when the condition Shared of an object that was made here has become
	// False for a new reason. It may be nil.
	Warn func(object client.Object, shared metav1.Condition)
}

// Exchange keeps the objects of a cluster and of its broker the same: the objects of this
// cluster go to the broker, and the objects of other clusters come here. Plan decides
// what is written, from what the watches of both sides have shown.
//
// An Exchange follows the grant of the cluster: when the administrator adds the cluster to a clusterset, or
// removes it from one, the exchange goes on with the others. To exchange with another configuration, stop
// Run and run another Exchange. Nothing is deleted in between, nor before the other Exchange has read
// what it would delete from.
type Exchange struct {
	config Config
	kick   wake.Signal // something changed
	paces  *paces

	local   side
	broker  client.WithWatch
	sets    []*watched // sorted by name
	renewal *renewal

	digest  digest
	memos   memos
	waiting waiting

	memory   Memory
	recalled bool // memory was read
	unstored bool // memory was changed since it was written

	mu     sync.Mutex
	status Status
}

// Times of the loop.
const (
	// coalesce is how long changes are collected before a pass: a small part of the
	// 300 ms that a change may take, and enough for a burst.
	coalesce = 20 * time.Millisecond
	// passPause is the least time between two passes, each of which takes some 50 ms with
	// 1,000 clusters: a cluster that changes its objects all the time gets a quarter of a
	// core of every gateway, and no more.
	passPause = 200 * time.Millisecond
	// retryMin and retryMax bound the wait after a failed write, which doubles.
	retryMin = 100 * time.Millisecond
	retryMax = 5 * time.Second
	// resync is the time between passes when nothing happens.
	resync = 10 * time.Second
)

// New returns an Exchange that does nothing until Run.
func New(c Config) *Exchange {
	if c.Kinds == nil {
		c.Kinds = Kinds()
	}
	return &Exchange{config: c, kick: wake.NewSignal(), paces: newPaces(c.Kinds), status: Status{Reading: true}}
}

// side is one namespace of one API server.
type side struct {
	set     Set // zero: this cluster
	client  client.WithWatch
	mirrors []*mirror
}

// here is the name of this cluster in messages.
const here = "this cluster"

func (s side) String() string {
	if s.set.Name == "" {
		return here
	}
	return "clusterset " + s.set.Name + " on the broker"
}

// Run exchanges objects until ctx is done, which is no error. Then it returns at once and
// leaves nothing running. While the broker cannot be reached, Run changes nothing here.
func (e *Exchange) Run(ctx context.Context) error {
	hangUp, err := e.connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var watches sync.WaitGroup
	defer hangUp()
	defer watches.Wait()
	defer cancel()
	e.local.watch(ctx, &watches)
	watches.Go(func() { e.renewal.run(ctx) })
	var retry time.Duration
	var last time.Time
	for {
		wait := resync
		if retry > 0 {
			wait = retry
		}
		select {
		case <-ctx.Done():
			return nil
		case <-e.kick:
		case <-time.After(wait):
		}
		if wake.After(ctx, max(coalesce, passPause-time.Since(last))) != nil {
			return nil
		}
		select { // this pass sees what has changed since
		case <-e.kick:
		default:
		}
		last = time.Now()
		if e.pass(ctx, &watches) {
			retry = 0
		} else {
			retry = min(max(2*retry, retryMin), retryMax)
		}
	}
}

// connect makes the clients, and a function that closes their connections when they are not used any more.
// It contacts neither side.
func (e *Exchange) connect() (hangUp func(), err error) {
	here, closeHere, err := watchClient(e.config.Local, e.config.Kinds)
	if err != nil {
		return nil, fmt.Errorf("making a client for this cluster: %w", err)
	}
	there, closeThere, err := watchClient(e.config.Broker, e.config.Kinds)
	if err != nil {
		return nil, fmt.Errorf("making a client for the broker: %w", err)
	}
	e.local, e.broker, e.sets = e.side(Set{}, here, e.config.Namespace), there, nil
	e.renewal = &renewal{client: there, account: e.config.Account, changed: e.kick.Send}
	return func() { closeHere(); closeThere() }, nil
}

// watched is a clusterset that is watched.
type watched struct {
	side
	stop context.CancelFunc
}

// follow watches exactly these clustersets.
func (e *Exchange) follow(ctx context.Context, sets []string, watches *sync.WaitGroup) {
	var now []*watched
	for _, name := range slices.Compact(slices.Sorted(slices.Values(sets))) {
		i := slices.IndexFunc(e.sets, func(w *watched) bool { return w.set.Name == name })
		if i >= 0 {
			now = append(now, e.sets[i])
			continue
		}
		running, stop := context.WithCancel(ctx)
		w := &watched{e.side(Set{Name: name, Namespace: e.config.NamespaceOf(name)}, e.broker, e.config.NamespaceOf(name)), stop}
		w.watch(running, watches)
		now = append(now, w)
	}
	for _, w := range e.sets {
		if !slices.Contains(now, w) {
			w.stop()
		}
	}
	e.sets = now
}

// watch watches a side until ctx is done.
func (s side) watch(ctx context.Context, watches *sync.WaitGroup) {
	for _, m := range s.mirrors {
		watches.Go(func() { m.run(ctx) })
	}
}

// side makes a side; the zero set stands for this cluster, which is not bounded.
func (e *Exchange) side(set Set, c client.WithWatch, namespace string) side {
	s := side{set: set, client: c}
	for i := range e.config.Kinds {
		k := &e.config.Kinds[i]
		m := &mirror{client: c, namespace: namespace, kind: k, changed: e.kick.Send, objects: map[string]client.Object{}}
		if set.Name != "" {
			m.most = k.mostKept()
		}
		s.mirrors = append(s.mirrors, m)
	}
	return s
}

// watchClient returns a client for the kinds, and a function that closes its idle
// connections. It needs no discovery, so that it can be made while the API server does not
// answer.
func watchClient(config *rest.Config, kinds Table) (c client.WithWatch, hangUp func(), err error) {
	scheme := runtime.NewScheme()
	kinds.AddToScheme(scheme)
	scheme.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.ConfigMap{}, &corev1.ServiceAccount{}, &corev1.ServiceAccountList{}) // the Memory and the grant
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ServiceAccount"), meta.RESTScopeNamespace)
	for _, k := range kinds {
		resource := k.GroupVersion.WithResource(k.Resource)
		mapper.AddSpecific(k.GroupVersion.WithKind(k.Name), resource, resource, meta.RESTScopeNamespace)
	}
	config = rest.CopyConfig(config)
	config.QPS = -1 // the number of writers is the limit; the default of 20 a second would take minutes with 1,000 clusters
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, nil, err
	}
	c, err = client.NewWithWatch(config, client.Options{HTTPClient: transport, Scheme: scheme, Mapper: mapper})
	return c, func() { utilnet.CloseIdleConnectionsFor(transport.Transport) }, err
}

// add appends what the side holds to objects. It returns whether all of it was read, and the reason why it
// is not watched now.
func (s side) add(objects *[]client.Object) (known bool, err error) {
	known = true
	for _, m := range s.mirrors {
		o, k, e := m.read()
		*objects = append(*objects, o...)
		known = known && k
		err = cmp.Or(err, e)
	}
	return known, err
}

// fault returns the reason why the side is not watched now; nil if it is.
func (s side) fault() error {
	var none []client.Object
	_, err := s.add(&none)
	return err
}

// reserved returns the empty objects that the side holds: see SetSnapshot.
func (s side) reserved() map[string]types.UID {
	out := map[string]types.UID{}
	for _, m := range s.mirrors {
		m.reservations(out)
	}
	return out
}

// report stores the status and logs what is new in it.
func (e *Exchange) report(now Status) {
	slices.Sort(now.Errors)
	now.Errors = slices.Compact(now.Errors)
	e.mu.Lock()
	was := e.status
	now.Writes += was.Writes
	if now.LastSync.IsZero() {
		now.LastSync = was.LastSync
	}
	if now.Digest == "" {
		now.Digest, now.Sets = was.Digest, was.Sets
	}
	e.status = now
	e.mu.Unlock()
	if (now.Digest != was.Digest || !slices.Equal(now.Sets, was.Sets)) && e.config.Complete != nil {
		e.config.Complete()
	}
	known := make(map[Refusal]bool, len(was.Refused))
	for _, r := range was.Refused {
		known[r] = true
	}
	for _, r := range now.Refused {
		if !known[r] {
			e.config.Log.Warn("not synced", "object", r.String())
		}
	}
	for _, err := range now.Errors {
		if !slices.Contains(was.Errors, err) {
			e.config.Log.Warn("syncing with the broker", "err", err)
		}
	}
	if was.problem() != nil && now.problem() == nil {
		e.config.Log.Info("in sync with the broker")
	}
}
