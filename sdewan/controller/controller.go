// Package controller applies rules to CNFs.
//
// The unit of work is a CNF, not a rule: the value of the label sdewanPurpose in a namespace. Whatever changes, a rule, the
// Deployment or a pod, leads to the same: all rules of the CNF are compared with what each of its pods returns, and
// what differs is written, in the order of dependencies, to all pods at the same time. So the order of rules is the same on all
// pods, an order that does not matter to the API server does not matter to a CNF either, and what no rule stands for is found and
// removed. No CNF waits for another one, and no pod for one that answers slowly (runs.go).
//
//	watch → snapshot (cnf.go) → aim and plan (desire.go, plan.go: pure) → sync (runs.go, pods.go, pod.go, session.go) → judge and report (verdicts.go, report.go)
//
// A rule is in sync only if all pods of the Deployment are ready and hold it. Pods that are ready get rules although others are not: what a
// CNF does for its site must not wait for a spare that is broken.
//
// The controller remembers nothing that it could not lose: which services must still be restarted follows from the status of rules.
package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"subctl/sdewan"
)

// Options are the settings of the controller. The zero value of each field except Log stands for its default.
type Options struct {
	Log *slog.Logger
	// Port is the port on which pods of CNFs serve HTTPS; 443.
	Port int
	// ClusterDomain is the domain of the cluster's DNS, which is part of the names in certificates; cluster.local.
	ClusterDomain string
	// Timeout bounds each request to a pod: see sdewan/rest/client.
	Timeout time.Duration
	// Resync is the interval at which a CNF is compared although nothing has changed; 5 min. StatusPeriod is the interval at which CNFStatus
	// objects are written; 30 s.
	Resync, StatusPeriod time.Duration
	// RetryFrom and RetryUntil bound the time after which a CNF is tried again, which doubles each time; 500 ms and 30 s.
	RetryFrom, RetryUntil time.Duration
	// Resolve returns the addresses of a DNS name; that of net.DefaultResolver.
	Resolve func(ctx context.Context, name string) ([]netip.Addr, error)

	now        func() time.Time
	podTimeout time.Duration
}

// workers is the number of CNFs that are worked on at the same time, of which the first namespace can have half. Most workers wait for answers.
const workers = 96

// busy is after which time a CNF is tried again whose namespace has all the workers that it can have.
const busy = 200 * time.Millisecond

// maxWrites is the number of statuses and finalizers that are written at the same time. The first namespace can have half, 16: as much as an API server of
// two cores can take.
const maxWrites = 32

func (o *Options) complete() error {
	if o.Log == nil {
		return errors.New("the controller needs a log")
	}
	o.Port, o.ClusterDomain = cmp.Or(o.Port, 443), cmp.Or(o.ClusterDomain, sdewan.ClusterDomain)
	o.Resync, o.StatusPeriod = cmp.Or(o.Resync, 5*time.Minute), cmp.Or(o.StatusPeriod, 30*time.Second)
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

// reconciler works on one CNF for each request: Name is the value of the label sdewanPurpose.
type reconciler struct {
	o      Options
	client client.Client // reads from the cache
	events events.EventRecorder
	fleet  *fleet
	names  *names
	runs   *runs
	kinds  []sdewan.Kind
	writes *shares // of statuses and finalizers

	backoff workqueue.TypedRateLimiter[types.NamespacedName]

	mu        sync.Mutex
	faults    map[types.NamespacedName]problem   // of CNFs, as they were logged
	told      map[types.NamespacedName]news      // by CNFs
	readiness map[types.NamespacedName]readiness // of CNFs that were not ready lately
	noted     map[types.NamespacedName]string    // mistakes in annotations of CNFs, as Events have them
}

func (r *reconciler) now() time.Time { return r.o.now() }

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !r.runs.begin(req.NamespacedName) { // most of its CNFs are slow, or it has very many
		return reconcile.Result{RequeueAfter: jitter(busy)}, nil
	}
	defer r.runs.end(req.NamespacedName)
	c, err := r.snapshot(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	a := r.apply(ctx, c)
	if ctx.Err() != nil {
		return reconcile.Result{}, nil // the controller ends: what was cut off is no news about the CNF
	}
	err = r.report(ctx, a.rules, a.of)
	if apierrors.IsConflict(err) { // the cache is behind, by milliseconds
		return reconcile.Result{RequeueAfter: r.o.RetryFrom}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	pause := r.pause(c.key, a)
	if len(c.deployments) == 0 {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: pause}, nil
}

// pause returns the time after which the next attempt follows if nothing changes.
func (r *reconciler) pause(key types.NamespacedName, a attempt) time.Duration {
	if a.after == 0 || a.slow {
		return max(a.after, r.backoff.When(key))
	}
	if !a.late {
		r.backoff.Forget(key)
	}
	if pause := jitter(a.after); a.hold == 0 || pause < a.hold {
		return pause
	}
	return a.hold
}

// apply makes the pods of a CNF hold its rules, as far as possible.
func (r *reconciler) apply(ctx context.Context, c cnf) attempt {
	all := func(v verdict) attempt {
		return attempt{rules: c.rules, of: func(rule) verdict { return v }, after: r.o.Resync}
	}
	switch {
	case len(c.deployments) == 0:
		r.keep(c.key, nil)
		r.forget(c.key)
		r.note(c, nil)
		p := problem{NoCNF, fmt.Sprintf("no Deployment in namespace %s has the label %s=%s: the rule waits for one", c.key.Namespace, sdewan.PurposeLabel, c.key.Name)}
		if c.key.Name == "" {
			p = problem{NoPurpose, fmt.Sprintf("the rule has no label %s: set it to the label of the CNF's Deployment", sdewan.PurposeLabel)}
		}
		return all(verdict{problem: p, gone: true})
	case len(c.deployments) > 1:
		a, b := c.deployments[0], c.deployments[1]
		p := problem{SeveralCNFs, fmt.Sprintf("Deployments %s and %s both have the label %s=%s: delete one of them, or change its label", a.Name, b.Name, sdewan.PurposeLabel, c.key.Name)}
		r.runs.keep(c.key, nil)
		for _, d := range c.deployments {
			r.trouble(c.key, d, p)
		}
		return all(verdict{problem: p})
	case c.asleep():
		r.keep(c.key, nil)
		r.settled(c.key)
		p := problem{NoPods, fmt.Sprintf("Deployment %s has 0 replicas: the rule waits for a pod", c.deployments[0].Name)}
		return all(verdict{problem: p, gone: true})
	case c.deployments[0].Spec.Template.Labels[sdewan.PurposeLabel] != c.key.Name:
		p := problem{NoPods, fmt.Sprintf("the pods of Deployment %s do not have the label %s=%s: set it in its template, too", c.deployments[0].Name, sdewan.PurposeLabel, c.key.Name)}
		r.runs.keep(c.key, nil)
		r.trouble(c.key, c.deployments[0], p)
		return all(verdict{problem: p})
	}
	return r.syncPods(ctx, c)
}

func hostPort(a netip.Addr, port int) string { return net.JoinHostPort(a.String(), strconv.Itoa(port)) }

// jitter spreads what would otherwise happen at the same time for all CNFs.
func jitter(d time.Duration) time.Duration { return d - rand.N(d/4+1) }
