// Package agent is what runs in the pods: one loop that keeps a node's kernel in step
// with the cluster.
//
//	watch → snapshot → plan → sync → report
//
// Every change of a watched object, of the kernel, or of what a part knows leads to the
// same: everything is read, planned, synced and reported anew. There is no code for
// events, so no event can be missed. A role.Role plans and reports, as pure functions of
// a Snapshot, and names the parts that run beside the loop (package parts). The loop knows
// no role and no part by name.
//
// Stopping an agent stops the loop, not the traffic: the kernel keeps what it holds, and
// the next agent adopts it. Only an uninstall, or another gateway taking over, plans the
// empty State.
package agent

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"subctl/agent/discovery"
	"subctl/agent/mesh"
	"subctl/agent/mesh/members"
	"subctl/agent/parts"
	"subctl/agent/probe"
	"subctl/agent/role"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker/exchange"
	"subctl/dataplane"
	"subctl/globalnet"
	"subctl/internal/alarm"
	"subctl/internal/kube"
)

// Kernel is the interface of an agent to the kernel of its node. Package cmd passes the real
// one.
type Kernel struct {
	// Facts reads what the kernel says about the node.
	Facts func() (dataplane.Facts, error)
	// Target returns the part of the kernel that belongs to an owner.
	Target func(dataplane.Owner) (dataplane.Target, error)
	// Watch signals changes of the kernel, at most once per quiet. The channel is closed when ctx
	// is done, or when Watch fails later.
	Watch func(ctx context.Context, quiet time.Duration) (<-chan struct{}, error)
	// ListenEchoes opens a socket for datagrams that other nodes forward back, which reads size
	// bytes of each.
	ListenEchoes func(ctx context.Context, port, size int) (probe.Echoes, error)
	// NewArrivals reads size bytes of each packet from a socket, and notes when the kernel received
	// it. If it is nil, a packet arrives when the agent reads it.
	NewArrivals func(conn syscall.Conn, size int) (probe.Arrivals, error)
	// ProbeForwarding finds out whether the node forwards packets of other clusters to pods, unless
	// its rules have the generation last.
	ProbeForwarding func(p dataplane.ForwardProbe, last uint32) (dataplane.Forwarded, error)
	// ListenUDP opens a UDP port on all of the node's addresses.
	ListenUDP func(ctx context.Context, port int) (discovery.Datagrams, error)
}

// agent runs one Role on one node.
type agent struct {
	Role   role.Role
	Node   string // name of the node
	Client client.Client
	Kernel Kernel
	Log    *slog.Logger
	debug  func(bool) // see Options.Debug

	parts   []manager.Runnable // that run beside the loop
	pace    *rate.Limiter      // of loops
	reports client.Reader      // of the API server itself, for recall
	events  events.EventRecorder
	told    map[string]bool // the warnings of the last report, by UID and type of condition
	meters  *meters

	node sync.Mutex      // held while the node is read and changed
	ask  func()          // asks for a call of reroute; nil if nobody follows
	next *time.Timer     // asks when the last plan is to be made again
	last *role.Snapshot  // of the last plan; nil if there is none
	held dataplane.State // what the last sync left, for dataplane.Ahead; nil if that is unknown

	books      books
	scope      scope
	global     globalWatches
	translator globalnet.Translator
	heard      role.ReportTimes // of the last snapshot
	// nil until recall has read it, and again once another agent removes what this one has set up
	memory *role.Memory
	fault  alarm.Alarm // what keeps the loop from its work
	// digests of the messages of the conditions that are False, as they were logged
	warned  map[string][sha256.Size]byte
	recent  recent   // what report has written
	refused refusals // of what a tolerant report has written
	pacer   pacer    // of what report writes because of other clusters
	targets map[string]dataplane.Target
	done    atomic.Int64 // when the last loop ended, Unix nanoseconds
	synced  atomic.Bool  // whether the node held the plan, except single cables
}

// The loop runs at most so often: the first changes are followed at once, as one change
// often leads to another within milliseconds, and then no more than five times a second,
// whatever changes. With 1,000 clusters that is a third of a core.
const (
	loopPause = 200 * time.Millisecond
	loopBurst = 5
)

func newPace() *rate.Limiter { return rate.NewLimiter(rate.Every(loopPause), loopBurst) }

// everything is the only request there is: any change replans the whole node.
var everything = reconcile.Request{NamespacedName: types.NamespacedName{Name: "node"}}

// Reconcile implements reconcile.Reconciler. Faults, of the API server or of the kernel,
// are errors and retried with back-off. A mistake of the user is reported and waits for a
// change: trying again would not help. A fault of single cables is reported by them, and
// retried with the next loop.
func (a *agent) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	if !a.pace.Allow() {
		return reconcile.Result{RequeueAfter: loopPause}, nil
	}
	p, err := a.pass(ctx)
	if errors.Is(err, parts.ErrTooEarly) {
		return reconcile.Result{}, nil // the part triggers the loop
	}
	if err != nil {
		err = fmt.Errorf("reading the cluster: %w", err)
		a.fault.Report(a.Log, slog.LevelError, failed, err)
		return reconcile.Result{}, err
	}
	fault := p.fault
	again := a.Role.Resync
	if p.plan.Again > 0 {
		again = min(again, p.plan.Again)
	}
	if !errors.Is(p.mistake, role.ErrNotJoined) {
		report := a.Role.Report(p.snap, p.plan, p.out)
		soon, err := a.report(ctx, p.snap, report, p.out)
		fault = errors.Join(fault, err)
		if soon > 0 {
			again = min(again, soon)
		}
	}
	a.logFault(p.mistake, fault, p.out)
	if fault != nil {
		return reconcile.Result{}, fault
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// passed is the result of one pass of the loop.
type passed struct {
	snap           role.Snapshot
	plan           role.Plan
	mistake, fault error
	out            role.Outcome
}

// pass makes the node hold a new plan. Except for what a new agent recalls, it waits for no API
// server.
func (a *agent) pass(ctx context.Context) (passed, error) {
	a.node.Lock()
	defer a.node.Unlock()
	snap, err := a.snapshot(ctx)
	if errors.Is(err, parts.ErrTooEarly) {
		a.last = nil // probes change nothing, either
		if members.Sweeps(snap, a.Role.Owner) {
			a.memory = nil // what it remembers is no longer there when it plans again
		}
		for _, p := range a.parts {
			if p, ok := p.(parts.Idler); ok {
				p.Idle(snap)
			}
		}
	}
	if err != nil {
		return passed{}, err
	}
	a.setDebug(snap)
	start := time.Now()
	var ops []dataplane.Op
	plan, mistake := a.Role.Plan(snap)
	var fault error
	if a.last = nil; mistake == nil {
		a.last = &snap
		ops, fault = a.sync(ctx, plan)
	}
	out := mesh.NewOutcome(plan, snap.Now, mistake, fault)
	out.Conflicts = a.conflicts()
	if out.Contained {
		fault = nil // the cables report it, and it is tried again with the next report
	}
	a.remember(snap, plan, out)
	a.meters.observe(plan, len(ops), time.Since(start), out)
	a.logOps(ops)
	a.finished(out.Contained)
	a.scheduleReroute(plan.Again)
	for _, p := range a.parts {
		if p, ok := p.(parts.Actor); ok {
			p.Act(snap, plan, &out)
		}
	}
	return passed{snap, plan, mistake, fault, out}, nil
}

// setDebug sets the level of the log.
func (a *agent) setDebug(snap role.Snapshot) {
	if subs := role.List[*v1alpha1.Submariner](snap); a.debug != nil && len(subs) > 0 {
		a.debug(subs[0].Spec.Debug)
	}
}

func (a *agent) finished(well bool) {
	a.done.Store(time.Now().UnixNano())
	a.synced.Store(well)
}

// snapshot reads the cluster and the node, and lets the parts add what they know.
func (a *agent) snapshot(ctx context.Context) (role.Snapshot, error) {
	few := slices.DeleteFunc(slices.Clone(a.Role.Watches), a.scope.lists.has)
	objs, err := kube.List(ctx, a.Client, a.Client.Scheme(), a.scope.namespace, few)
	if err != nil {
		return role.Snapshot{}, err
	}
	mislabelled := exchange.Reclaim(exchange.Kinds(), objs)
	snap := role.NewSnapshot(a.Node, objs...)
	a.scope.lists.addTo(&snap, a.Role.Watches)
	global, err := a.global.follow(ctx, snap)
	if err != nil {
		return snap, err
	}
	global.addTo(&snap, a.Role.GlobalWatches)
	snap.Mislabelled = mislabelled
	snap.Now = time.Now()
	snap.Refused = a.refused.list(snap.Now)
	snap.NoteReports(a.heard)
	a.heard = snap.ReportTimes
	snap.Translator = &a.translator
	snap.Book = a.books.of(role.List[*v1alpha1.CablePolicies](snap), snap.Makers())
	facts, err := a.Kernel.Facts()
	if err != nil {
		return snap, fmt.Errorf("reading the node's network: %w", err)
	}
	members.SetFacts(&snap, facts)
	if snap.Memory, err = a.recall(ctx, snap); err != nil {
		return snap, err
	}
	for _, p := range a.parts {
		if p, ok := p.(parts.Observer); ok {
			if err := p.Observe(&snap); err != nil {
				return snap, err
			}
		}
	}
	return snap, nil
}

// Healthy is the liveness probe: the loop must have ended recently.
func (a *agent) Healthy(*http.Request) error {
	if last := time.Unix(0, a.done.Load()); a.done.Load() != 0 && time.Since(last) > 10*a.Role.Resync {
		return fmt.Errorf("the last loop ended %s ago", time.Since(last).Round(time.Second))
	}
	return nil
}

// Ready is the readiness probe: the node was seen to hold the plan, except what only single
// cables need, which report their failures themselves.
func (a *agent) Ready(*http.Request) error {
	if !a.synced.Load() {
		return errors.New(
			"the node does not hold the plan yet: see the log, and the conditions of this node's Gateway or RouteAgent")
	}
	return nil
}
