// Package agent is what runs in the pods: one loop that keeps a node's kernel in
// step with the cluster.
//
//	watch → snapshot → plan → sync → report
//
// Every change of anything watched, of the kernel and of the health of a cable
// leads to the same: everything is read, planned, synced and reported anew. There
// is no code for events, so no event can be missed. A Role (gateway.go, route.go)
// says what to plan and what to report, both as pure functions of a Snapshot.
//
// Stopping an agent stops the loop, not the traffic: the kernel keeps what it
// holds, and the next agent adopts it. Only an uninstall, or another gateway
// taking over, plans the empty State.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"subctl/agent/discovery"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/dataplane"
	"subctl/internal/kube"
)

// Kernel is what an agent needs of the kernel of its node. cmd hands in the real one.
type Kernel struct {
	// Facts reads what the kernel says about the node.
	Facts func() (dataplane.Facts, error)
	// Target returns the part of the kernel that is an owner's.
	Target func(dataplane.Owner) (dataplane.Target, error)
	// Watch signals that the kernel changed, at most once per quiet.
	Watch func(ctx context.Context, quiet time.Duration) (<-chan struct{}, error)
	// ListenUDP opens a UDP port on all of the node's addresses.
	ListenUDP func(ctx context.Context, port int) (discovery.Datagrams, error)
}

// agent runs one Role on one node.
type agent struct {
	Role   Role
	Name   string // of the node
	Client client.Client
	Facts  func() (dataplane.Facts, error)
	Target func(dataplane.Owner) (dataplane.Target, error)
	Log    *slog.Logger
	Resync time.Duration // looks again after so long, whatever happens

	gateway *gatewayParts // nil for other roles
	pace    *rate.Limiter // of loops
	books   books
	held    []cable.Gateway      // of other clusters, whose claims stand; nil until they were read from reports
	using   map[string]Using     // what carries the traffic, by cable name
	reports client.Reader        // where they are read
	events  events.EventRecorder // nil: none are written
	meters  *meters
	targets map[string]dataplane.Target
	done    atomic.Int64 // when the last loop ended, Unix nanoseconds
	synced  atomic.Bool  // whether it ended well

	restarts map[string]int // of programs that cables depend on, as far as told
}

// How often the loop runs at most: the first changes at once, as one change often leads
// to another within milliseconds, and then no more often than five times a second,
// whoever has it run. With 1,000 clusters that is a third of a core.
const (
	loopPause = 200 * time.Millisecond
	loopBurst = 5
)

func newPace() *rate.Limiter { return rate.NewLimiter(rate.Every(loopPause), loopBurst) }

// everything is the only request there is: any change replans the whole node.
var everything = reconcile.Request{NamespacedName: types.NamespacedName{Name: "node"}}

// Reconcile implements reconcile.Reconciler.
func (a *agent) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	if a.gateway != nil && !a.gateway.elector.isKnown() {
		return reconcile.Result{}, nil // the election will wake us
	}
	if !a.pace.Allow() {
		return reconcile.Result{RequeueAfter: loopPause}, nil
	}
	snap, err := a.snapshot(ctx)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading the cluster: %w", err)
	}
	start := time.Now()
	plan, err := a.Role.Plan(snap)
	a.remember(plan)
	var ops []dataplane.Op
	if err == nil {
		ops, err = a.sync(ctx, plan)
	}
	a.meters.observe(plan, len(ops), time.Since(start), err)
	for _, op := range ops {
		a.Log.Info("dataplane", "op", op.String())
	}
	if errors.Is(err, errNotJoined) {
		a.finished(false)
		return reconcile.Result{RequeueAfter: a.Resync}, nil
	}
	if err == nil {
		a.using = plan.Using
	}
	out := Outcome{Err: err, Now: snap.Now}
	if a.gateway != nil {
		a.gateway.act(snap, plan, &out)
	}
	a.finished(err == nil)
	report := a.Role.Report(snap, plan, out)
	reportErr := a.report(ctx, report, out)
	a.tell(snap, slices.Concat(report.Apply, report.Status))
	a.tellRestarts(snap)
	if err := errors.Join(err, reportErr); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: a.Resync}, nil
}

func (a *agent) finished(well bool) {
	a.done.Store(time.Now().UnixNano())
	a.synced.Store(well)
}

func (a *agent) snapshot(ctx context.Context) (Snapshot, error) {
	objs, err := readObjects(ctx, a.Client, a.Client.Scheme(), submarinerv1.OperatorNamespace, a.Role.Watches())
	if err != nil {
		return Snapshot{}, err
	}
	snap := NewSnapshot(a.Name, submarinerv1.NodeFacts{}, false, objs...)
	snap.Now = time.Now()
	snap.Book = a.books.of(List[*v1alpha1.CablePolicies](snap))
	if err := a.takeOver(ctx, snap.Now); err != nil {
		return Snapshot{}, err
	}
	snap.Held, snap.Using = a.held, a.using
	facts, err := a.Facts()
	if err != nil {
		return Snapshot{}, fmt.Errorf("reading the node's network: %w", err)
	}
	if node := find[*corev1.Node](snap, a.Name); node != nil {
		snap.Facts = nodeFacts(facts, node, snap.podNetworks())
		snap.PodIPMissing = podIPMissing(facts, snap.Facts)
	}
	if a.gateway != nil {
		a.gateway.observe(&snap, a.cabler(), a.Log)
	}
	return snap, nil
}

// cabler is the kernel's view of the gateway's cables; nil if this agent has not made any.
func (a *agent) cabler() dataplane.Cabler {
	c, _ := a.targets[dataplane.GatewayOwner.Name].(dataplane.Cabler)
	return c
}

// sync makes the node hold the plan. Every part is tried.
func (a *agent) sync(ctx context.Context, p Plan) ([]dataplane.Op, error) {
	done, err := a.syncOwner(ctx, a.Role.Owner(), p.State)
	for _, o := range p.Sweep {
		ops, sweepErr := a.syncOwner(ctx, o, dataplane.State{})
		done, err = append(done, ops...), errors.Join(err, sweepErr)
	}
	return done, err
}

func (a *agent) syncOwner(ctx context.Context, o dataplane.Owner, want dataplane.State) ([]dataplane.Op, error) {
	t := a.targets[o.Name]
	if t == nil {
		var err error
		if t, err = a.Target(o); err != nil {
			return nil, err
		}
		if a.targets == nil {
			a.targets = map[string]dataplane.Target{}
		}
		a.targets[o.Name] = t
	}
	return dataplane.Sync(ctx, t, want)
}

// reportTimeout bounds telling the API server, which may not answer: the loop has a
// node to look after.
const reportTimeout = 5 * time.Second

// report tells the API server.
func (a *agent) report(ctx context.Context, r Report, out Outcome) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	var errs []error
	for _, o := range r.Apply {
		if err := kube.Apply(ctx, a.Client, kube.FieldOwner+"-"+a.Role.Name(), o); err != nil {
			errs = append(errs, err)
		}
		if g, ok := o.(*submarinerv1.Gateway); ok {
			a.meters.report(g.Status, out.Health, out.Now)
		}
	}
	for _, o := range r.Status {
		if err := kube.ApplyStatus(ctx, a.Client, kube.FieldOwner+"-"+a.Role.Name(), o); err != nil {
			errs = append(errs, err)
		}
	}
	for _, o := range r.Update {
		if err := a.Client.Update(ctx, o); err != nil {
			errs = append(errs, fmt.Errorf("updating %s: %w", client.ObjectKeyFromObject(o), err))
		}
	}
	for _, o := range r.Delete {
		if err := a.Client.Delete(ctx, o); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("deleting %s: %w", client.ObjectKeyFromObject(o), err))
		}
	}
	return errors.Join(errs...)
}

// Healthy is the liveness probe: the loop must have ended recently.
func (a *agent) Healthy(*http.Request) error {
	if last := time.Unix(0, a.done.Load()); a.done.Load() != 0 && time.Since(last) > 10*a.Resync {
		return fmt.Errorf("the last loop ended %s ago", time.Since(last).Round(time.Second))
	}
	return nil
}

// Ready is the readiness probe: the node was seen to hold the plan.
func (a *agent) Ready(*http.Request) error {
	if !a.synced.Load() {
		return errors.New("the node does not hold the plan yet: see the log, and the conditions of this node's Gateway or RouteAgent")
	}
	return nil
}
