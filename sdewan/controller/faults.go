package controller

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What is wrong with a CNF is told once: in the log, and by an Event about its Deployment. What is wrong with a rule is in its status (report.go).

// note writes an Event about mistakes in annotations of a CNF, once.
func (r *reconciler) note(c cnf, mistakes []string) {
	slices.Sort(mistakes)
	text := bounded(strings.Join(slices.Compact(mistakes), "; "))
	r.mu.Lock()
	known := r.noted[c.key] == text
	if r.noted[c.key] = text; text == "" {
		delete(r.noted, c.key)
	}
	r.mu.Unlock()
	if !known && text != "" {
		r.events.Eventf(c.deployments[0], nil, corev1.EventTypeWarning, "InvalidAnnotation", "Apply", "%s", text)
	}
}

// trouble logs a problem of a CNF, and writes an Event about its Deployment, once. Waiting for a pod is not worth an Event: Kubernetes has its own.
func (r *reconciler) trouble(key types.NamespacedName, about client.Object, p problem) {
	p.message = bounded(p.message)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.faults[key].problem == p {
		return
	}
	r.faults[key] = fault{p, r.now()}
	r.o.Log.Warn("CNF is not in sync", "namespace", key.Namespace, "cnf", key.Name, "reason", p.reason, "err", p.message)
	if p.reason != NotReady {
		r.events.Eventf(about, nil, corev1.EventTypeWarning, p.reason, "Apply", "%s", p.message)
	}
}

// fault is a problem of a CNF, and when it was first reported.
type fault struct {
	problem
	since time.Time
}

// faultsStay is how long a problem keeps its message. If a CNF answers with another error at each attempt, the statuses of all of its rules would
// otherwise change at each attempt, and these writes delay the statuses of other CNFs.
const faultsStay = time.Minute

// steady returns a problem with the message that was reported last, if that was a moment ago and for the same reason.
func (r *reconciler) steady(key types.NamespacedName, p problem) problem {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, ok := r.faults[key]; ok && last.reason == p.reason && r.now().Sub(last.since) < faultsStay {
		return last.problem
	}
	return p
}

// settled logs that a CNF has no problem any more.
func (r *reconciler) settled(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.faults[key]; ok {
		r.o.Log.Info("CNF is in sync again", "namespace", key.Namespace, "cnf", key.Name)
		delete(r.faults, key)
	}
}
