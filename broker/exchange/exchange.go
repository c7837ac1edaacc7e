package exchange

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/internal/wake"
)

// Set is a clusterset on a broker.
type Set struct {
	Name      string // "default"
	Namespace string // "submariner-k8s-broker"
}

// Config is the configuration of an Exchange.
type Config struct {
	Kinds     Table // nil: Kinds()
	ClusterID string
	Namespace string       // of this cluster: submariner-operator
	Local     *rest.Config // this cluster
	Broker    *rest.Config // see broker.RESTConfig
	// Account is the service account of this cluster on the broker, in which the administrator
	// renews the cluster's grant.
	Account types.NamespacedName
	// NamespaceOf returns the namespace of a clusterset on the broker. The grant lists the
	// clustersets.
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
// An Exchange follows the grant of the cluster: when the administrator adds the cluster to a
// clusterset, or removes it from one, the exchange goes on with the others. To exchange with
// another configuration, stop Run and run another Exchange. Nothing is deleted in between, nor
// before the other Exchange has read what it would delete from.
type Exchange struct {
	config  Config
	trigger wake.Signal // something changed
	paces   *paces

	local   side
	broker  apiServer
	sets    []*followed // sorted by name
	watched int         // how many of them are watched at most
	rounds  *rounds     // polls the others
	renewal *renewal
	began   time.Time

	deniedLimit time.Duration

	digest  digest
	memos   memos
	fitting fitting
	waiting waiting
	logged  refusalLog

	memory   Memory
	recalled bool      // memory was read
	unstored bool      // memory was changed since it was written
	stores   time.Time // when it was written last

	mu     sync.Mutex
	status Status
}

// Times of the loop.
const (
	// coalesce is the time for which changes are collected before a pass: a small part of the
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
	// identityPoll is the time between looks at the grant. It is in a file, and comes just before
	// or after a change in this cluster that it permits.
	identityPoll = time.Second
)

// New returns an Exchange that does nothing until Run.
func New(c Config) *Exchange {
	if c.Kinds == nil {
		c.Kinds = Kinds()
	}
	return &Exchange{
		config: c, trigger: wake.NewSignal(), paces: newPaces(c.Kinds), status: Status{Reading: true},
		watched: c.Kinds.mostWatched(), rounds: newRounds(), deniedLimit: deniedLimit,
	}
}

// Run exchanges objects until ctx is done, which is no error. Then it returns at once and
// leaves nothing running. While the broker cannot be reached, Run changes nothing here.
func (e *Exchange) Run(ctx context.Context) error {
	e.began = time.Now()
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
	watches.Go(func() { e.rounds.run(ctx) })
	watches.Go(func() { e.followGrant(ctx) })
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
		case <-e.trigger:
		case <-time.After(wait):
		}
		if wake.After(ctx, max(coalesce, passPause-time.Since(last))) != nil {
			return nil
		}
		select { // this pass sees what has changed since
		case <-e.trigger:
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

// followGrant causes a pass when the cluster has got another grant, until ctx is done.
func (e *Exchange) followGrant(ctx context.Context) {
	i, _ := e.config.Identity() // a pass reports the error
	for wake.After(ctx, identityPoll) == nil {
		if now, err := e.config.Identity(); err == nil && now.Grant != i.Grant {
			i = now
			e.trigger.Send()
		}
	}
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
		now.Digest = was.Digest
		now.Sets = was.Sets
	}
	e.status = now
	e.mu.Unlock()
	if (now.Digest != was.Digest || !slices.Equal(now.Sets, was.Sets)) && e.config.Complete != nil {
		e.config.Complete()
	}
	for _, r := range e.logged.next(now.Refused, time.Now()) {
		e.config.Log.Warn("not synced", "object", r.String())
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
