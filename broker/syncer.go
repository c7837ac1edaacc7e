package broker

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/internal/kube"
	"subctl/internal/wake"
)

// Set is a clusterset on a broker.
type Set struct {
	Name      string // "default"
	Namespace string // "submariner-k8s-broker"
}

// SyncerConfig is what a Syncer works on.
type SyncerConfig struct {
	ClusterID string
	Namespace string       // local: submariner-operator
	Local     *rest.Config // this cluster
	Broker    *rest.Config // see RESTConfig
	Sets      []Set        // the clustersets this cluster is in
	Log       *slog.Logger
	// Tell is called when the condition Shared of a policy made here has become False for
	// a new reason; nil: nobody is told.
	Tell func(policy client.Object, shared metav1.Condition)
}

// Syncer keeps Clusters, Endpoints and CablePolicies the same here and on the broker:
// ours go there, those of other clusters come here. What is written is decided by
// PlanSync, on what the watches of both sides have shown.
type Syncer struct {
	config SyncerConfig
	kick   wake.Signal // something changed
	paces  paces

	mu     sync.Mutex
	status SyncStatus
}

// Times of the loop.
const (
	// coalesce is how long changes are collected before they are acted on: little
	// of the 300 ms that a change may take, and enough for a burst.
	coalesce = 20 * time.Millisecond
	// passPause is the least time between two looks at both sides, each of which takes
	// some 50 ms with 1,000 clusters: whoever changes objects all the time gets a quarter
	// of a core of every gateway, and no more.
	passPause = 200 * time.Millisecond
	// retryMin and retryMax bound the wait after a failed write, which doubles.
	retryMin = 100 * time.Millisecond
	retryMax = 5 * time.Second
	// lookAgain is how often both sides are compared although nothing happened.
	lookAgain = 10 * time.Second
)

// NewSyncer returns a Syncer that does nothing until Run.
func NewSyncer(c SyncerConfig) *Syncer {
	return &Syncer{config: c, kick: wake.NewSignal(), paces: paces{}, status: SyncStatus{Errors: []string{"not started"}}}
}

// side is one namespace of one API server.
type side struct {
	set     Set // zero: this cluster
	client  client.WithWatch
	mirrors []*mirror
}

func (s side) String() string {
	if s.set.Name == "" {
		return "this cluster"
	}
	return "clusterset " + s.set.Name + " on the broker"
}

// Run syncs until ctx is done, which is no error. A broker that cannot be
// reached changes nothing here and is waited for.
func (s *Syncer) Run(ctx context.Context) error {
	local, sets, err := s.sides()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var watches sync.WaitGroup
	defer watches.Wait()
	defer cancel()
	for _, side := range append([]side{local}, sets...) {
		for _, m := range side.mirrors {
			watches.Go(func() { m.run(ctx) })
		}
	}
	var retry time.Duration
	var last time.Time
	for {
		wait := lookAgain
		if retry > 0 {
			wait = retry
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.kick:
		case <-time.After(wait):
		}
		if wake.After(ctx, max(coalesce, passPause-time.Since(last))) != nil {
			return nil
		}
		select { // what changed since is seen by this pass
		case <-s.kick:
		default:
		}
		last = time.Now()
		if s.pass(ctx, local, sets) {
			retry = 0
		} else {
			retry = min(max(2*retry, retryMin), retryMax)
		}
	}
}

// sides makes the clients and mirrors. It contacts nobody.
func (s *Syncer) sides() (local side, sets []side, err error) {
	here, err := watchClient(s.config.Local)
	if err != nil {
		return side{}, nil, fmt.Errorf("making a client for this cluster: %w", err)
	}
	there, err := watchClient(s.config.Broker)
	if err != nil {
		return side{}, nil, fmt.Errorf("making a client for the broker: %w", err)
	}
	for _, set := range s.config.Sets {
		sets = append(sets, s.side(set, there, set.Namespace, quotas))
	}
	return s.side(Set{}, here, s.config.Namespace, nil), sets, nil
}

// side makes a side that holds at most so many objects of a kind, if most says so.
func (s *Syncer) side(set Set, c client.WithWatch, namespace string, most map[string]int) side {
	m := func(o client.Object, list func() client.ObjectList) *mirror {
		return &mirror{
			client: c, namespace: namespace, object: o, newList: list, changed: s.kick.Send, objects: map[string]client.Object{}, most: most[kindOf(o)],
		}
	}
	return side{set: set, client: c, mirrors: []*mirror{
		m(&submarinerv1.Cluster{}, func() client.ObjectList { return &submarinerv1.ClusterList{} }),
		m(&submarinerv1.Endpoint{}, func() client.ObjectList { return &submarinerv1.EndpointList{} }),
		m(&v1alpha1.CablePolicies{}, func() client.ObjectList { return &v1alpha1.CablePoliciesList{} }),
	}}
}

// watchClient returns a client that needs no discovery, so that it can be made
// while the API server is away.
func watchClient(config *rest.Config) (client.WithWatch, error) {
	scheme, err := kube.NewScheme()
	if err != nil {
		return nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"Cluster", "Endpoint"} {
		mapper.Add(submarinerv1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	policies := v1alpha1.GroupVersion.WithResource("cablepolicies")
	mapper.AddSpecific(v1alpha1.GroupVersion.WithKind("CablePolicies"), policies, policies, meta.RESTScopeNamespace)
	config = rest.CopyConfig(config)
	config.QPS = -1 // the number of writers is the limit; the default of 20 a second would take minutes with 1,000 clusters
	return client.NewWithWatch(config, client.Options{Scheme: scheme, Mapper: mapper})
}

// pass compares both sides and writes the difference. It returns false if it
// should be tried again soon.
func (s *Syncer) pass(ctx context.Context, local side, sets []side) bool {
	snap := Snapshot{ClusterID: s.config.ClusterID, Namespace: s.config.Namespace}
	status := SyncStatus{Connected: true}
	note := func(from side, err error) {
		if err != nil {
			status.Errors = append(status.Errors, fmt.Sprintf("watching %s: %v", from, err))
			status.Connected = status.Connected && from.set.Name == ""
		}
	}
	objects, known, err := local.read()
	note(local, err)
	snap.Local = objects
	all := known
	for _, set := range sets {
		objects, known, err := set.read()
		note(set, err)
		snap.Sets = append(snap.Sets, SetSnapshot{Set: set.set, Known: known, Objects: objects})
		all = all && known
		status.Connected = status.Connected && known
	}
	var stale bool
	var writes []Write
	if known { // without knowing what is here, everything would look new
		var refused []Refusal
		writes, refused = PlanSync(snap)
		now, held := s.paces.admit(writes, time.Now())
		refused = append(held, refused...)
		status.Refused, status.RefusedMore = refused[:min(len(refused), maxRefused)], max(0, len(refused)-maxRefused)
		n, again, errs := s.write(ctx, now, local, sets)
		stale = again || len(held) > 0
		status.Writes = n
		for _, err := range errs {
			status.Errors = append(status.Errors, err.Error())
		}
	}
	if !all && len(status.Errors) == 0 {
		status.Errors = []string{"still reading both sides"}
	}
	if ctx.Err() != nil {
		return true
	}
	if len(writes) == 0 && len(status.Errors) == 0 {
		status.LastSync = time.Now()
	}
	s.report(status)
	return !stale && (len(writes) == 0 || len(status.Errors) == 0)
}

// read returns what the side holds, whether all of it was read, and why it is
// not watched now.
func (s side) read() (objects []client.Object, known bool, err error) {
	known = true
	for _, m := range s.mirrors {
		o, k, e := m.read()
		objects = append(objects, o...)
		known = known && k
		if err == nil {
			err = e
		}
	}
	return objects, known, err
}

// report stores the status and logs what is new in it.
func (s *Syncer) report(now SyncStatus) {
	slices.Sort(now.Errors)
	now.Errors = slices.Compact(now.Errors)
	s.mu.Lock()
	was := s.status
	now.Writes += was.Writes
	if now.LastSync.IsZero() {
		now.LastSync = was.LastSync
	}
	s.status = now
	s.mu.Unlock()
	known := make(map[Refusal]bool, len(was.Refused))
	for _, r := range was.Refused {
		known[r] = true
	}
	for _, r := range now.Refused {
		if !known[r] {
			s.config.Log.Warn("not synced", "object", r.String())
		}
	}
	for _, e := range now.Errors {
		if !slices.Contains(was.Errors, e) {
			s.config.Log.Warn("syncing with the broker", "err", e)
		}
	}
	if len(was.Errors) > 0 && len(now.Errors) == 0 {
		s.config.Log.Info("in sync with the broker")
	}
}
