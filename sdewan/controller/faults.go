package controller

import (
	"slices"
	"strings"

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
	if r.faults[key] == p {
		return
	}
	r.faults[key] = p
	r.o.Log.Warn("CNF is not in sync", "namespace", key.Namespace, "cnf", key.Name, "reason", p.reason, "err", p.message)
	if p.reason != NotReady {
		r.events.Eventf(about, nil, corev1.EventTypeWarning, p.reason, "Apply", "%s", p.message)
	}
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
