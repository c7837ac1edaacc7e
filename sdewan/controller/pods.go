package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/sdewan"
	"subctl/sdewan/controller/fair"
)

// The controller of pods makes each pod of a CNF hold the rules of the CNF. A pod that answers
// slowly, or not at all, keeps no change from the others.

const (
	// podWorkers is the number of pods that are synced at the same time, of which the first
	// namespace can have half. Most workers wait for answers.
	podWorkers = 192
	// podsAtOnce bounds the pods of one CNF among them. Of these, at most failedAtOnce are pods
	// whose last sync has failed: however many pods do not answer, the others of the CNF wait for
	// them only once, for podTimeout for each podsAtOnce of them.
	podsAtOnce   = 16
	failedAtOnce = podsAtOnce / 2
	// podTimeout bounds all requests of one sync of a pod.
	podTimeout = 2 * time.Minute
)

// podReconciler syncs one pod for each request.
type podReconciler struct {
	o       Options
	client  client.Reader // from the cache
	fleet   *fleet
	names   *resolver
	syncs   *syncs
	ask     func(cnf types.NamespacedName) // makes a request for the status of a CNF
	backoff workqueue.TypedRateLimiter[podKey]
}

// newPodQueue returns the queue of the controller of pods.
func newPodQueue(s *syncs) *fair.Queue[podKey] {
	return fair.NewQueue(podWorkers, func(k podKey) string { return k.cnf.Namespace }, func(k podKey) []fair.Limit {
		limits := []fair.Limit{{Name: k.cnf.String(), Workers: podsAtOnce}}
		if s.hasFailed(k) {
			limits = append(limits, fair.Limit{Name: k.cnf.String() + " failed", Workers: failedAtOnce})
		}
		return limits
	})
}

// outcome is the result of syncing one pod.
type outcome struct {
	revision revision
	aim      aim
	synced   synced
	problem  problem  // with the pod
	mistakes []string // in its annotations
	retry    bool     // it may succeed if it is tried again
}

// Reconcile implements reconcile.TypedReconciler.
func (r *podReconciler) Reconcile(ctx context.Context, key podKey) (reconcile.Result, error) {
	c, err := snapshot(ctx, r.client, key.cnf)
	if err != nil {
		return reconcile.Result{}, err
	}
	i := slices.IndexFunc(c.pods, func(p *corev1.Pod) bool { return p.Name == key.pod })
	if i < 0 || !isReady(c.pods[i]) || c.fault().reason != "" {
		r.backoff.Forget(key)
		return reconcile.Result{}, nil // the controller of CNFs makes a request when the pod can be synced
	}
	services := r.names.of(ctx, c.rules)
	revision := c.revisionOf(services)(c.pods[i])
	synced, p := r.syncs.begin(ctx, key, c.pods[i], revision)
	o := r.sync(synced, c, c.pods[i], services,
		func(a aim, refused map[id]error) { r.syncs.refused(key, p, a, refused) })
	o.revision = revision
	r.syncs.end(synced, key, p, o)
	if ctx.Err() != nil {
		return reconcile.Result{}, nil // the controller ends
	}
	return reconcile.Result{RequeueAfter: r.pause(key, o.retry, services)}, nil
}

// pause returns the time after which a pod is synced again if nothing changes.
func (r *podReconciler) pause(key podKey, retry bool, s services) time.Duration {
	switch {
	case retry:
		return r.backoff.When(key)
	case s.late: // names were not looked up in time: more and more seldom, as nobody may answer for them
		return max(dnsSoon, r.backoff.When(key))
	}
	r.backoff.Forget(key)
	if s.dns {
		return jitter(min(dnsAgain, r.o.Resync))
	}
	return jitter(r.o.Resync)
}

// askSoon makes the controller of statuses ask a new pod, unless its report is known: then it is
// this controller that is new.
func (r *podReconciler) askSoon(ctx context.Context, c cnf, p *corev1.Pod) {
	var s batch.CNFStatus
	if r.client.Get(ctx, client.ObjectKeyFromObject(c.deployments[0]), &s) == nil && isReported(&s, p.Name) {
		return
	}
	time.AfterFunc(firstTogether, func() { r.ask(c.key) })
}

// sync makes a pod hold the rules of its CNF, as far as possible. It calls refused with what the
// pod has refused for good, while it goes on.
func (r *podReconciler) sync(
	ctx context.Context, c cnf, p *corev1.Pod, services services, refused func(aim, map[id]error),
) outcome {
	ctx, cancel := context.WithTimeout(ctx, r.o.podTimeout)
	defer cancel()
	m, trouble := r.fleet.of(ctx, c.key, p)
	defer r.fleet.done(m, c.key.Namespace)
	if trouble != nil {
		return outcome{problem: *trouble, retry: true}
	}
	annotation, ok := p.Annotations[sdewan.NetworksAnnotation]
	if !ok {
		annotation = c.deployments[0].Spec.Template.Annotations[sdewan.NetworksAnnotation]
	}
	var o outcome
	networks, err := sdewan.ParseNetworks(annotation)
	if err != nil {
		o.mistakes = []string{oneLine(err)}
	}
	unmanaged, _ := c.unmanaged()
	var desires []desire
	o.aim, desires = aimOf(c.rules, networks, services, unmanaged)
	o.synced, err = m.sync(ctx, m.client, desires, syncOptions{
		owes:   func(service string) bool { return owes(c.rules, service) },
		report: func(objects map[id]error) { refused(o.aim, objects) },
	})
	if err != nil {
		r.fleet.distrust(m, p)
		o.retry = true
		o.problem = problemOf(p.Name, err)
		if o.problem.reason == Unreachable && ctx.Err() != nil && !errors.Is(err, errLarge) {
			o.problem = problem{Unfinished, fmt.Sprintf(
				"pod %s: the CNF did not respond to everything within %v: retrying (%v)", p.Name,
				r.o.podTimeout, err)}
		}
		return o
	}
	if !m.complete && len(o.synced.unsent) == 0 && len(o.synced.restarts) == 0 {
		m.complete = true
		r.askSoon(ctx, c, p)
	}
	if o.synced.unapplied {
		o.problem = problem{NotInKernel, fmt.Sprintf(
			"pod %s: its kernel does not hold the configuration that the pod has: see the log of the pod", p.Name)}
	}
	o.retry = o.problem.reason != "" || len(o.synced.unsent) > 0 ||
		slices.ContainsFunc(c.rules, func(x rule) bool { return o.aim.on(x, o.synced).byCNF() })
	return o
}
