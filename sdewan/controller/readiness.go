package controller

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	batch "subctl/api/sdewan/v1alpha1"
)

// While a pod is not ready, no rule of its CNF is in sync. So a pod that is ready now and then
// would make the controller write the statuses of all of its rules all the time. That it is not
// ready is in them at once, always. That it is ready again is, too, for the first newsPer times
// that count; after that, only when the pods have been ready for a while, which is longer each
// time. Until then the rules keep NotReady, unless something else is wrong with them: that replaces
// NotReady as often as what a CNF tells may change.

const (
	// readyFrom and readyUntil bound this while, which doubles.
	readyFrom, readyUntil = 15 * time.Second, 5 * time.Minute
	// readyForget is the time after which a CNF whose pods stay ready is as one whose pods always
	// were.
	readyForget = 10 * time.Minute
)

// readiness is what is known of a CNF that was not ready lately. The zero value is one that was
// always ready.
type readiness struct {
	turns      int       // times that the statuses of its rules have turned NotReady, without those that are spared
	generation int64     // of the Deployment, at the last turn
	spared     int       // turns with this generation that do not count
	not        bool      // the statuses are NotReady
	since      time.Time // since when the pods are ready; zero if they are not
}

// turn returns what is known when the statuses turn NotReady. In a rollout, that may happen for
// each new pod, if they become ready one after another. So as many turns as the Deployment has
// replicas do not count: at first, and anew after each change of the Deployment.
func (s readiness) turn(generation int64, replicas int) readiness {
	s.not = true
	s.since = time.Time{}
	switch {
	case s.turns == 0 || generation != s.generation:
		s.generation = generation
		s.spared = 0
	case s.spared < replicas:
		s.spared++
		return s
	}
	s.turns++
	return s
}

// wait returns for how long the pods must be ready before the statuses say so.
func (s readiness) wait() time.Duration {
	if s.turns <= newsPer {
		return 0
	}
	return min(readyFrom<<min(s.turns-newsPer-1, 10), readyUntil)
}

// message says why rules are NotReady, whether the pods are ready again or not. It changes only
// with the number of turns, and names no pod: whenever it changes, the statuses of all rules are
// written again.
func (s readiness) message(deployment string) string {
	if wait := s.wait(); wait > 0 {
		return fmt.Sprintf(
			"pods of Deployment %s were not ready too often: the rule is reported in sync when all of them have stayed ready for %v: see with kubectl get pods whether they are",
			deployment, wait)
	}
	return fmt.Sprintf("not all pods of Deployment %s are ready: wait for them, or see why with kubectl get pods",
		deployment)
}

// next returns what is known after a look at a CNF.
func (s readiness) next(c cnf, now time.Time) readiness {
	ready := c.ready()
	switch {
	case !ready && !s.not:
		return s.turn(c.deployments[0].Generation, c.replicas())
	case !ready:
		s.since = time.Time{}
		return s
	case s.since.IsZero():
		s.since = now
	}
	if lasts := now.Sub(s.since); lasts >= readyForget {
		return readiness{}
	} else if lasts >= s.wait() {
		s.not = false
	}
	return s
}

// observe records whether the pods of a CNF are ready. It returns what to say if they are not, or
// else for how long their rules keep NotReady nevertheless.
func (r *cnfReconciler) observe(c cnf) (waiting string, hold time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, known := r.readiness[c.key]
	ready := c.ready()
	if ready && !known {
		return "", 0
	}
	now := r.now()
	if s = s.next(c, now); s.turns == 0 {
		delete(r.readiness, c.key)
		return "", 0
	}
	r.readiness[c.key] = s
	switch {
	case !ready:
		waiting = s.message(c.deployments[0].Name)
	case s.not:
		hold = s.wait() - now.Sub(s.since)
	}
	return waiting, hold
}

// held returns what the status of a rule is to say: p, or the problem that the status has, if that
// is NotReady and stays so, or if the CNF may not change what it tells.
func (r *cnfReconciler) held(x rule, p problem, may func() bool) problem {
	c := meta.FindStatusCondition(x.RuleStatus().Conditions, batch.ConditionApplied)
	if c == nil || c.ObservedGeneration != x.GetGeneration() {
		return p
	}
	r.mu.Lock()
	not := r.readiness[request(x).NamespacedName].not
	r.mu.Unlock()
	last := problem{c.Reason, c.Message}
	if not && last.reason == NotReady && p.reason != NotReady && (p.reason == "" || !may()) {
		return last
	}
	return p.orStill(last, may)
}
