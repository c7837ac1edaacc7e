package controller

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What is wrong with a CNF is told once: in the log, and by an Event about its Deployment. What is
// wrong with a rule is in its status (report.go).

// note writes an Event about mistakes in annotations of a CNF, once.
func (r *cnfReconciler) note(c cnf, mistakes []string) {
	slices.Sort(mistakes)
	text := bounded(strings.Join(slices.Compact(mistakes), "; "))
	if r.isNews(r.noted, c.key, text) {
		r.events.Eventf(c.deployments[0], nil, corev1.EventTypeWarning, "InvalidAnnotation", "Apply", "%s", text)
	}
}

// isNews reports whether a text about a CNF is not empty, and not the one that was told last. It
// notes it in told.
func (r *cnfReconciler) isNews(told map[types.NamespacedName]string, cnf types.NamespacedName, text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := told[cnf]
	if text == "" {
		delete(told, cnf)
		return false
	}
	told[cnf] = text
	return text != before
}

// trouble logs a problem of a CNF, and writes an Event about its Deployment, once. Waiting for a
// pod is not worth an Event: Kubernetes has its own.
func (r *cnfReconciler) trouble(key types.NamespacedName, about client.Object, p problem) {
	p.message = bounded(p.message)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.faults[key] == p {
		return
	}
	r.faults[key] = p
	r.o.Log.Warn("CNF is not in sync", "namespace", key.Namespace, "cnf", key.Name, "reason", p.reason, "err",
		p.message)
	if p.reason != NotReady {
		r.events.Eventf(about, nil, corev1.EventTypeWarning, p.reason, "Apply", "%s", p.message)
	}
}

// If a CNF answered with another error at each sync, the statuses of all of its rules would change
// each time, and these writes delay the statuses of other CNFs. So what a CNF tells may change
// often enough to find a mistake, and no more often: newsPer times in newsTime. How often statuses
// tell whether its pods are ready is bounded, too: see readiness.
const (
	newsPer  = 3
	newsTime = time.Minute
)

// news counts the changes of what a CNF tells.
type news struct {
	since time.Time
	n     int
}

// mayTell reports whether what a CNF tells may change, and counts the change.
func (r *cnfReconciler) mayTell(key types.NamespacedName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.told[key]
	if now := r.now(); now.Sub(n.since) >= newsTime {
		n = news{since: now}
	}
	n.n++
	r.told[key] = n
	return n.n <= newsPer
}

// steady returns the problem of a CNF that was reported last instead of p, unless it may change.
func (r *cnfReconciler) steady(key types.NamespacedName, p problem, may func() bool) problem {
	r.mu.Lock()
	last := r.faults[key]
	r.mu.Unlock()
	return p.orStill(last, may)
}

// orStill returns the last problem instead of p, if a CNF words both, and may not change what it
// tells.
func (p problem) orStill(last problem, may func() bool) problem {
	p.message = bounded(p.message)
	if last != p && last.byCNF() && p.byCNF() && !may() {
		return last
	}
	return p
}

// forget ends what is known about the problems of a CNF that does not exist.
func (r *cnfReconciler) forget(key types.NamespacedName) {
	r.settled(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.told, key)
	delete(r.readiness, key)
}

// settled logs that a CNF has no problem any more.
func (r *cnfReconciler) settled(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.faults[key]; ok {
		r.o.Log.Info("CNF is in sync again", "namespace", key.Namespace, "cnf", key.Name)
		delete(r.faults, key)
	}
}
