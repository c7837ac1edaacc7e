package controller

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ByHand is the reason of an Event about objects that somebody has written to the REST API of a
// pod, and for which there is no rule: the controller has removed them, or keeps them, and then
// another pod does not have them.
const ByHand = "ByHand"

// maxByHand is the maximum number of objects that an Event names, and maxStrangers the maximum
// number that is remembered of a pod.
const (
	maxByHand    = 5
	maxStrangers = 20
)

// strangers are objects of a pod for which no rule stands, as module/collection/name.
type strangers struct{ removed, kept []string }

// noteRemovals records what the session is about to remove.
func (s *session) noteRemovals(d desire, ops []op) {
	for _, o := range ops {
		if d.ours != nil && !d.ours(o.name) && len(s.strangers.removed) < maxStrangers {
			s.strangers.removed = append(s.strangers.removed, d.collection.String()+"/"+o.name)
		}
	}
}

// noteKept records what the administrator keeps.
func (s *session) noteKept() {
	for _, d := range s.desires {
		for _, item := range s.have[d.collection].items {
			if d.ours != nil && !d.ours(item.Name) && d.keep(item.Name) && len(s.strangers.kept) < maxStrangers {
				s.strangers.kept = append(s.strangers.kept, d.collection.String()+"/"+item.Name)
			}
		}
	}
}

// texts returns what an Event says.
func (s strangers) texts() (out []string) {
	if n := named(s.removed); n != "" {
		out = append(out, fmt.Sprintf("removed from pods, as no rule stands for them: %s: write rules, or name them in the "+
			"annotation %s before you write them by hand", n, UnmanagedAnnotation))
	}
	if n := named(s.kept); n != "" {
		out = append(out, fmt.Sprintf("no rule stands for %s: a new pod does not have them: write rules", n))
	}
	return out
}

// named returns the first few of some names.
func named(names []string) string {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	if len(names) > maxByHand {
		return strings.Join(names[:maxByHand], ", ") + " and others"
	}
	return strings.Join(names, ", ")
}

// noteStrangers writes an Event about objects that somebody has written by hand, once.
func (r *cnfReconciler) noteStrangers(c cnf, j judgement) {
	var all strangers
	for _, s := range j.states {
		if s.last != nil {
			all.removed = append(all.removed, s.last.synced.strangers.removed...)
			all.kept = append(all.kept, s.last.synced.strangers.kept...)
		}
	}
	text := bounded(strings.Join(all.texts(), "; "))
	if r.isNews(r.strangers, c.key, text) {
		r.events.Eventf(c.deployments[0], nil, corev1.EventTypeWarning, ByHand, "Apply", "%s", text)
	}
}
