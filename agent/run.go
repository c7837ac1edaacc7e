package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"subctl/agent/parts"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/kube"
	"subctl/internal/proxy"
	"subctl/internal/serving"
)

// Options are the settings of an agent.
type Options struct {
	Role role.Role
	Node string // name of the node
	// Pod is the name of the agent's pod; empty if it runs in none. It holds the Lease of a role of
	// which one agent acts.
	Pod string
	// MetricsAddr is the address that serves /metrics, such as ":32780"; ProbeAddr is the
	// address that serves /healthz and /readyz.
	MetricsAddr, ProbeAddr string

	Kernel Kernel
	Config *rest.Config // is not changed
	Log    *slog.Logger
	// Debug is called with Submariner.spec.debug, in every loop; nil: the level of the log is
	// fixed.
	Debug func(bool)

	Lease     parts.Lease    // of the election, for roles that take part in one
	Proxy     proxy.Settings // of the pod's environment; used for the broker only
	BrokerDir string         // directory of the mounted Secret with the broker's credentials
	Secrets   string         // directory of the mounted Secrets with keys, each in a directory of its name
}

const (
	quiet        = 200 * time.Millisecond // changes of the kernel closer together are one
	slowestRetry = 10 * time.Second
	fastestRetry = 50 * time.Millisecond
	stopWithin   = 3 * time.Second // of the pod's grace period
)

// Run runs an agent until ctx is done. Then the loop stops; the node keeps what it holds.
func Run(ctx context.Context, o Options) error {
	ctrl.SetLogger(logr.FromSlogHandler(o.Log.Handler()))
	klog.SetLogger(logr.FromSlogHandler(o.Log.Handler()))
	scope := scopeOf(o.Role)
	mgr, err := newManager(o, scope)
	if err != nil {
		return err
	}
	a := &agent{
		Role:    o.Role,
		Node:    o.Node,
		Client:  mgr.GetClient(),
		reports: mgr.GetAPIReader(),
		Kernel:  o.Kernel,
		Log:     o.Log,
		debug:   o.Debug,
		pace:    newPace(),
		events:  mgr.GetEventRecorder("subctl-" + o.Role.Name),
		meters:  newMeters(o.Role.Name, registry()),
		scope:   scope,
	}
	triggers, trigger := newTriggers()
	changed, err := a.Kernel.Watch(ctx, quiet)
	if err != nil {
		return fmt.Errorf("watching the kernel: %w", err)
	}
	reroutes, reroute := a.rerouting()
	if a.parts, err = parts.New(o.Role.Parts, a.partOptions(o, trigger, reroute)); err != nil {
		return err
	}
	beside := append(
		a.parts,
		reroutes,
		serving.Metrics(o.MetricsAddr, metrics.Registry, o.Log),
		serving.Probes(o.ProbeAddr, map[string]func(*http.Request) error{"/healthz": a.Healthy, "/readyz": a.Ready},
			o.Log),
		manager.RunnableFunc(func(context.Context) error { return forward(ctx, changed, trigger) }),
	)
	for _, r := range beside {
		if err := mgr.Add(r); err != nil {
			return err
		}
	}
	if err := a.watch(mgr, triggers, trigger); err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// forward triggers the loop when the kernel has changed. The error is that Watch has ended before
// ctx is done: the agent would follow changes late.
func forward(ctx context.Context, changed <-chan struct{}, trigger func()) error {
	for range changed {
		trigger()
	}
	if ctx.Err() == nil {
		return errors.New("the kernel is no longer watched")
	}
	return nil
}

// newTriggers returns a function that makes the loop run, and what the loop watches for it.
func newTriggers() (<-chan event.GenericEvent, func()) {
	triggers := make(chan event.GenericEvent, 1)
	return triggers, func() {
		select {
		case triggers <- event.GenericEvent{Object: &corev1.Node{}}:
		default: // one is waiting already
		}
	}
}

// partOptions returns how the parts of the agent are run.
func (a *agent) partOptions(o Options, trigger, reroute func()) parts.Options {
	return parts.Options{
		Node:            o.Node,
		Pod:             o.Pod,
		Config:          o.Config,
		Log:             o.Log,
		Trigger:         trigger,
		Reroute:         reroute,
		Announce:        a.announce,
		Warn:            a.writeWarning,
		Restarted:       a.meters.countRestart,
		Dropped:         a.meters.addDropped,
		Cabler:          a.cabler,
		ListenUDP:       o.Kernel.ListenUDP,
		ListenEchoes:    o.Kernel.ListenEchoes,
		NewArrivals:     o.Kernel.NewArrivals,
		ProbeForwarding: o.Kernel.ProbeForwarding,
		Ignored:         a.meters.ignored.Inc,
		Lease:           o.Lease,
		Secrets:         o.Secrets,
		BrokerDir:       o.BrokerDir,
		Proxy:           o.Proxy,
	}
}

// announce writes the Endpoint of this gateway.
func (a *agent) announce(ctx context.Context, e *submarinerv1.Endpoint) error {
	return kube.Apply(ctx, a.Client, a.fieldOwner(), e)
}

// fieldOwner owns what this agent writes.
func (a *agent) fieldOwner() string { return kube.FieldOwner + "-" + a.Role.Name }

// newManager returns the manager that watches the objects of the role's snapshots.
func newManager(o Options, s scope) (manager.Manager, error) {
	scheme, err := kube.NewScheme()
	if err != nil {
		return nil, err
	}
	toServer := rest.CopyConfig(o.Config)
	toServer.QPS = float32(s.requests)
	toServer.Burst = s.burst
	mgr, err := ctrl.NewManager(toServer, manager.Options{
		Scheme:                  scheme,
		Cache:                   cacheOptions(o),
		Metrics:                 metricsserver.Options{BindAddress: "0"}, // see package serving
		HealthProbeBindAddress:  "0",
		Logger:                  logr.FromSlogHandler(o.Log.Handler()),
		GracefulShutdownTimeout: new(stopWithin),
		// a process has one agent; in tests, one after another
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	return mgr, nil
}

// cacheOptions returns what the cache of the agent holds.
func cacheOptions(o Options) cache.Options {
	ours := cache.ByObject{Namespaces: map[string]cache.Config{submarinerv1.OperatorNamespace: {}}}
	byObject := map[client.Object]cache.ByObject{}
	for _, kind := range slices.Concat(o.Role.Watches, o.Role.GlobalWatches) {
		if o.Role.Nodeless() {
			byObject[kind] = wholeCluster(o.Role, kind, ours)
			continue
		}
		byObject[kind] = ours
		switch kind.(type) {
		case *corev1.Node:
			byObject[kind] = cache.ByObject{Transform: slimNode}
		case *submarinerv1.RouteAgent:
			byObject[kind] = cache.ByObject{Namespaces: ours.Namespaces, Transform: slimRouteAgent(o.Node)}
		case *corev1.ConfigMap:
			byObject[kind] = cache.ByObject{Namespaces: ours.Namespaces, Transform: slimConfigMap}
		case *submarinerv1.ClusterGlobalEgressIP: // cluster-scoped
			byObject[kind] = cache.ByObject{}
		}
		if kube.Everywhere(kind) {
			byObject[kind] = cache.ByObject{Transform: slimTranslated}
		}
	}
	return cache.Options{ByObject: byObject, DefaultTransform: slimOther}
}

// watch makes every change lead to the one request, except heartbeats.
func (a *agent) watch(mgr manager.Manager, triggers <-chan event.GenericEvent, trigger func()) error {
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{everything}
	})
	b := ctrl.NewControllerManagedBy(mgr).Named(a.Role.Name).
		WithOptions(
			controller.Options{
				RateLimiter: backoff(),
				NewQueue:    unmeasured,
				LogConstructor: func(*reconcile.Request) logr.Logger {
					return logr.FromSlogHandler(withoutRetries{a.Log.Handler()})
				},
			},
		).
		WatchesRawSource(source.Channel(triggers, one))
	for _, kind := range a.Role.Watches {
		b = b.Watches(kind, one, builder.WithPredicates(a.scope.lists.recording(kind, changes)))
	}
	c, err := b.Build(a)
	a.global = globalWatches{
		kinds:   a.Role.GlobalWatches,
		trigger: trigger,
		cache:   mgr.GetCache(),
		reader:  mgr.GetAPIReader(),
		scheme:  mgr.GetScheme(),
		overdue: watchesOverdue,
		watch: func(kind role.Object, l *lists) (source.SyncingSource, error) {
			s := source.Kind[client.Object](mgr.GetCache(), kind, one, l.recording(kind, changes))
			return s, c.Watch(loggedSource{s})
		},
	}
	return err
}

// unmeasured returns a queue without metrics of its own: with them, it would wake the agent twice a
// second to measure the age of the only request. The controller has metrics, too.
func unmeasured(
	_ string,
	limit workqueue.TypedRateLimiter[reconcile.Request],
) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return priorityqueue.New("", func(o *priorityqueue.Opts[reconcile.Request]) { o.RateLimiter = limit })
}

// backoff retries faults soon at first, and then more and more slowly.
func backoff() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](fastestRetry, slowestRetry)
}
