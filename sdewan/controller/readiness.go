package controller

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	batch "subctl/api/sdewan/v1alpha1"
)

// While a pod is not ready, no rule of its CNF is in sync. So a pod that is ready now and then would make the controller write the statuses of all of its
// rules all the time. That it is not ready is in them at once, always. That it is ready again is, too, for the first newsPer times; after that, only when
// the pods have been ready for a while, which is longer each time. Until then the rules keep NotReady.

const (
	// readyFrom and readyUntil bound this while, which doubles. A rollout in which pods become ready one after another is over sooner than readyFrom after
	// the last one is.
	readyFrom, readyUntil = 15 * time.Second, 5 * time.Minute
	// readyForget is the time after which a CNF whose pods stay ready is as one whose pods always were.
	readyForget = 10 * time.Minute
)

// readiness is what is known of a CNF that was not ready lately. The zero value is one that was always ready.
type readiness struct {
	turns int       // times that the statuses of its rules have turned NotReady
	not   bool      // so they are
	since time.Time // since when the pods are ready; zero if they are not
}

// wait returns for how long the pods must be ready before the statuses say so.
func (s readiness) wait() time.Duration {
	if s.turns <= newsPer {
		return 0
	}
	return min(readyFrom<<min(s.turns-newsPer-1, 10), readyUntil)
}

// next returns what is known at a time at which the pods are ready, or not.
func (s readiness) next(ready bool, now time.Time) readiness {
	switch {
	case !ready && !s.not:
		return readiness{turns: s.turns + 1, not: true}
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

// observe records whether the pods of a CNF are ready. It returns for how long their rules keep NotReady nevertheless.
func (r *reconciler) observe(key types.NamespacedName, ready bool) (hold time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, known := r.readiness[key]
	if ready && !known {
		return 0
	}
	now := r.now()
	if s = s.next(ready, now); s.turns == 0 {
		delete(r.readiness, key)
		return 0
	}
	if r.readiness[key] = s; ready && s.not {
		hold = s.wait() - now.Sub(s.since)
	}
	return hold
}

// held returns the problem that the status of a rule has, if it is NotReady and stays so, or else p.
func (r *reconciler) held(x rule, p problem) problem {
	r.mu.Lock()
	s := r.readiness[request(x).NamespacedName]
	r.mu.Unlock()
	c := meta.FindStatusCondition(x.RuleStatus().Conditions, batch.ConditionApplied)
	if s.not && s.wait() > 0 && c != nil && c.Reason == NotReady && c.ObservedGeneration == x.GetGeneration() {
		return problem{c.Reason, c.Message}
	}
	return p
}
