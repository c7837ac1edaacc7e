// Package controller applies rules to CNFs.
//
// The unit of work is a CNF, not a rule: the value of the label sdewanPurpose in a namespace.
// Whatever changes, a rule, the Deployment or a pod, leads to the same: all rules of the CNF are
// compared with what each of its pods returns, and what differs is written, in the order of
// dependencies, to all pods at the same time. So the order of rules is the same on all pods, an
// order that does not matter to the API server does not matter to a CNF either, and what no rule
// stands for is found and removed. No CNF waits for another one, and no pod for one that answers
// slowly.
//
// Two controllers share the work, and a third one asks CNFs what they do (statuses.go). Their
// queues are fair between namespaces (package fair). What a sync came to passes between the two in
// syncs.go.
//
//	CNFs: watch → snapshot (cnf.go) → requests for pods that lack a change
//	      → judge and report (verdicts.go, report.go)
//	pods: snapshot → aim and plan (desire.go, plan.go: pure) → sync (pods.go, pod.go, session.go)
//	      → a request for the CNF
//
// A rule is in sync only if all pods of the Deployment are ready and hold it. Pods that are ready
// get rules although others are not: what a CNF does for its site must not wait for a spare that is
// broken.
//
// The controller remembers nothing that it could not lose: which services must still be restarted
// follows from the status of rules.
package controller

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"subctl/sdewan"
	"subctl/sdewan/controller/fair"
)

// Options are the settings of the controller. The zero value of each field except Log stands for
// its default.
type Options struct {
	Log *slog.Logger
	// Port is the port on which pods of CNFs serve HTTPS; 443.
	Port int
	// ClusterDomain is the domain of the cluster's DNS, which is part of the names in certificates;
	// cluster.local.
	ClusterDomain string
	// Timeout bounds each request to a pod: see sdewan/rest/client.
	Timeout time.Duration
	// Resync is the interval at which a CNF is compared although nothing has changed; 5 min.
	// StatusPeriod is the interval at which CNFs are asked for their CNFStatus; 5 s.
	Resync, StatusPeriod time.Duration
	// RetryFrom and RetryUntil bound the time after which a CNF is tried again, which doubles each
	// time; 500 ms and 30 s.
	RetryFrom, RetryUntil time.Duration
	// Resolve returns the addresses of a DNS name; that of net.DefaultResolver.
	Resolve func(ctx context.Context, name string) ([]netip.Addr, error)

	now        func() time.Time
	podTimeout time.Duration
}

// cnfWorkers is the number of CNFs that are reported on at the same time, of which the first
// namespace can have half.
const cnfWorkers = 32

// maxWrites is the number of statuses and finalizers that are written at the same time. The first
// namespace can have half, 16: as much as an API server of two cores can take.
const maxWrites = 32

func (o *Options) complete() error {
	if o.Log == nil {
		return errors.New("the controller needs a log")
	}
	o.Port, o.ClusterDomain = cmp.Or(o.Port, 443), cmp.Or(o.ClusterDomain, sdewan.ClusterDomain)
	o.Resync, o.StatusPeriod = cmp.Or(o.Resync, 5*time.Minute), cmp.Or(o.StatusPeriod, 5*time.Second)
	o.podTimeout = cmp.Or(o.podTimeout, podTimeout)
	o.RetryFrom, o.RetryUntil = cmp.Or(o.RetryFrom, 500*time.Millisecond), cmp.Or(o.RetryUntil, 30*time.Second)
	if o.Resolve == nil {
		o.Resolve = func(ctx context.Context, name string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip4", name)
		}
	}
	if o.now == nil {
		o.now = time.Now
	}
	return nil
}

// cnfReconciler works on one CNF for each request: Name is the value of the label sdewanPurpose. It
// makes requests for the pods that lack a change, and reports what their syncs came to.
type cnfReconciler struct {
	o      Options
	client client.Client // reads from the cache
	events events.EventRecorder
	fleet  *fleet
	names  *resolver
	syncs  *syncs
	writes *fair.Slots  // of statuses and finalizers
	due    func(podKey) // makes a request for a pod

	mu        sync.Mutex
	faults    map[types.NamespacedName]problem   // of CNFs, as they were logged
	told      map[types.NamespacedName]news      // by CNFs
	readiness map[types.NamespacedName]readiness // of CNFs that were not ready lately
	noted     map[types.NamespacedName]string    // mistakes in annotations of CNFs, as Events have them
	strangers map[types.NamespacedName]string    // objects written by hand, as Events have them
}

func (r *cnfReconciler) now() time.Time { return r.o.now() }

// Reconcile implements reconcile.Reconciler.
func (r *cnfReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	c, err := snapshot(ctx, r.client, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	v := r.verdictsOf(ctx, c)
	if ctx.Err() != nil {
		return reconcile.Result{}, nil // the controller ends
	}
	err = r.report(ctx, v.rules, v.of)
	if apierrors.IsConflict(err) { // the cache is behind, by milliseconds
		return reconcile.Result{RequeueAfter: r.o.RetryFrom}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	r.syncs.reported(c.key, c.pods, v.states, v.rules)
	return reconcile.Result{RequeueAfter: v.after}, nil
}

// verdictsOf makes requests for the pods of a CNF that lack a change, and returns what is known of
// its rules.
func (r *cnfReconciler) verdictsOf(ctx context.Context, c cnf) verdicts {
	if p := c.fault(); p.reason != "" {
		return r.verdictsWithout(c, p)
	}
	r.syncs.keep(c.key, c.pods)
	r.fleet.keep(c.key, c.pods)
	services, _ := r.names.known(ctx, c.rules)
	j := judgement{cnf: c, services: services, states: r.syncs.states(c.key, c.pods, c.revisionOf(services))}
	for i, s := range j.states {
		if s.due {
			r.due(podKey{c.key, c.pods[i].Name})
		}
	}
	if !j.behind() {
		r.note(c, j.mistakes())
		r.noteStrangers(c, j)
	}
	return r.judge(j, sync.OnceValue(func() bool { return r.mayTell(c.key) }))
}

// verdictsWithout returns the verdicts on rules that cannot be applied to their CNF.
func (r *cnfReconciler) verdictsWithout(c cnf, p problem) verdicts {
	r.syncs.keep(c.key, nil)
	v := verdict{problem: p}
	switch {
	case len(c.deployments) == 0:
		r.fleet.keep(c.key, nil)
		r.forget(c.key)
		r.note(c, nil)
		v.gone = true
	case c.asleep():
		r.fleet.keep(c.key, nil)
		r.settled(c.key)
		v.gone = true
	default:
		for _, d := range c.deployments {
			r.trouble(c.key, d, p)
		}
	}
	return verdicts{rules: c.rules, of: func(rule) verdict { return v }}
}

func hostPort(a netip.Addr, port int) string { return net.JoinHostPort(a.String(), strconv.Itoa(port)) }

// jitter spreads what would otherwise happen at the same time for all CNFs.
func jitter(d time.Duration) time.Duration { return d - rand.N(d/4+1) }
