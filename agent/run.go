package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/kube"
)

// Options is how an agent is run.
type Options struct {
	Role      Role
	Node      string // name of the node
	Addr      string // where /metrics, /healthz and /readyz are served, such as ":32780"
	BrokerDir string // where the Secret with the broker's credentials is mounted; gateway only
	Secrets   string // where the Secrets with the keys of the cables are mounted, each under its name; gateway only
	Lease     Lease  // gateway only
	Kernel    Kernel
	Config    *rest.Config
	Log       *slog.Logger
}

const (
	quiet        = 200 * time.Millisecond // changes of the kernel closer together are one
	resync       = 30 * time.Second       // route agents look again after so long
	slowestRetry = 10 * time.Second
)

// Run runs an agent until ctx is done. Then the loop stops; the node keeps what it
// holds.
func Run(ctx context.Context, o Options) error {
	ctrl.SetLogger(logr.FromSlogHandler(o.Log.Handler()))
	klog.SetLogger(logr.FromSlogHandler(o.Log.Handler()))
	scheme, err := kube.NewScheme()
	if err != nil {
		return err
	}
	ours := cache.ByObject{Namespaces: map[string]cache.Config{submarinerv1.OperatorNamespace: {}}}
	byObject := map[client.Object]cache.ByObject{}
	for _, kind := range o.Role.Watches() {
		byObject[kind] = ours
		switch kind.(type) {
		case *corev1.Node:
			byObject[kind] = cache.ByObject{Transform: slimNode}
		case *corev1.ConfigMap:
			byObject[kind] = cache.ByObject{Namespaces: ours.Namespaces, Transform: slimConfigMap}
		}
	}
	o.Config.QPS, o.Config.Burst = 50, 100
	mgr, err := ctrl.NewManager(o.Config, manager.Options{
		Scheme:                  scheme,
		Cache:                   cache.Options{ByObject: byObject, DefaultTransform: cache.TransformStripManagedFields()},
		Metrics:                 metricsserver.Options{BindAddress: "0"}, // served with the probes, see serve
		HealthProbeBindAddress:  "0",
		Logger:                  logr.FromSlogHandler(o.Log.Handler()),
		GracefulShutdownTimeout: new(3 * time.Second),
	})
	if err != nil {
		return fmt.Errorf("connecting to the API server: %w", err)
	}
	a := &Agent{
		Role: o.Role, Name: o.Node, Client: mgr.GetClient(), reports: mgr.GetAPIReader(), Facts: o.Kernel.Facts, Target: o.Kernel.Target,
		Log: o.Log, Resync: resync, events: mgr.GetEventRecorder("subctl-" + o.Role.Name()), meters: newMeters(o.Role.Name(), registry()),
	}
	nudges := make(chan event.GenericEvent, 1)
	nudge := func() {
		select {
		case nudges <- event.GenericEvent{Object: &corev1.Node{}}:
		default: // one is waiting already
		}
	}
	if err := a.watch(mgr, nudges); err != nil {
		return err
	}
	changed, err := o.Kernel.Watch(ctx, quiet)
	if err != nil {
		return fmt.Errorf("watching the kernel: %w", err)
	}
	parts := []manager.Runnable{
		serve(o.Addr, map[string]healthz.Checker{"/healthz": a.Healthy, "/readyz": a.Ready}, o.Log),
		manager.RunnableFunc(func(context.Context) error {
			for range changed {
				nudge()
			}
			return nil
		}),
	}
	if _, ok := o.Role.(Gateway); ok {
		a.Resync = heartbeat
		e, err := newElector(o.Config, o.Node, o.Lease, o.Log, nudge)
		if err != nil {
			return err
		}
		a.elector, a.prober, a.secrets = e, newProber(o.Log, nudge), o.Secrets
		a.ways = newDiscovery(o.Kernel.ListenUDP, o.Log, nudge)
		a.public = &publicIP{lookUp: net.DefaultResolver.LookupNetIP, nudge: nudge, wake: make(chan struct{}, 1)}
		a.broker = &brokerSync{agent: a, elector: e, config: o.Config, dir: o.BrokerDir}
		parts = append(parts, e, a.prober, a.ways, a.public, a.broker)
	}
	for _, p := range parts {
		if err := mgr.Add(p); err != nil {
			return err
		}
	}
	if err := mgr.Start(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// watch makes every change lead to the one request.
func (a *Agent) watch(mgr manager.Manager, nudges <-chan event.GenericEvent) error {
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{everything}
	})
	b := ctrl.NewControllerManagedBy(mgr).Named(a.Role.Name()).
		WithOptions(controller.Options{RateLimiter: backoff()}).
		WatchesRawSource(source.Channel(nudges, one))
	for _, kind := range a.Role.Watches() {
		b = b.Watches(kind, one)
	}
	return b.Complete(a)
}

// slimNode keeps of a node what plans look at, so that a cache of thousands is small.
func slimNode(obj any) (any, error) {
	n, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	slim := &corev1.Node{TypeMeta: n.TypeMeta, ObjectMeta: n.ObjectMeta}
	slim.ManagedFields = nil
	slim.Annotations = nil
	if ip, ok := n.Annotations[submarinerv1.PublicIPAnnotation]; ok {
		slim.Annotations = map[string]string{submarinerv1.PublicIPAnnotation: ip}
	}
	slim.Spec.PodCIDR, slim.Spec.PodCIDRs = n.Spec.PodCIDR, n.Spec.PodCIDRs
	slim.Status.Addresses = n.Status.Addresses
	return slim, nil
}

// ReadSnapshot reads what the plan of a node looks at through the API server, from
// anywhere: what the node's own agents reported about it stands in for its kernel.
func ReadSnapshot(ctx context.Context, c client.Client, node string) (Snapshot, error) {
	objs, err := readObjects(ctx, c, c.Scheme(), submarinerv1.OperatorNamespace, kinds())
	if err != nil {
		return Snapshot{}, err
	}
	s := NewSnapshot(node, submarinerv1.NodeFacts{}, false, objs...)
	if len(s.podNetworks()) == 0 {
		return s, errNotJoined
	}
	if find[*corev1.Node](s, node) == nil {
		return s, &UnknownNodeError{Node: node, Nodes: names(List[*corev1.Node](s))}
	}
	ra := find[*submarinerv1.RouteAgent](s, node)
	if ra == nil || ra.Status.Node == nil {
		return s, fmt.Errorf("the route agent of node %s has not reported yet: see kubectl -n %s get pods -o wide", node, submarinerv1.OperatorNamespace)
	}
	s.Facts = *ra.Status.Node
	for _, e := range List[*submarinerv1.Endpoint](s) {
		if e.Spec.Hostname == node && e.Labels[submarinerv1.ClusterIDLabel] == "" {
			s.Leader = true
		}
	}
	s.Held = heldFromReports(List[*submarinerv1.Gateway](s))
	if g := find[*submarinerv1.Gateway](s, node); s.Leader && g != nil {
		s.Using, s.Paths = usingFromReport(g, s.Now), pathsFromReport(g)
	}
	return s, nil
}

// UnknownNodeError says that a cluster has no such node.
type UnknownNodeError struct {
	Node  string
	Nodes []string // those it has
}

func (e *UnknownNodeError) Error() string {
	return fmt.Sprintf("the cluster has no node %q: it has %v", e.Node, e.Nodes)
}

func names[T client.Object](objs []T) []string {
	var out []string
	for _, o := range objs {
		out = append(out, o.GetName())
	}
	return out
}
