package agent

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/globalnet/allocator"
	"subctl/internal/words"
)

// conditioned is an object whose status has conditions.
type conditioned interface {
	client.Object
	GetConditions() []metav1.Condition
}

// reportConditions logs each reported condition that has become False, or is False with a different
// message than before, and writes a Kubernetes Event about it: "kubectl get events" then shows what
// went wrong, and when.
func (a *agent) reportConditions(s role.Snapshot, reported []role.Object) {
	for _, o := range reported {
		now := reportedConditions(o)
		about := o
		was := []metav1.Condition(nil)
		if old := s.Same(o); old != nil {
			about = old
			was = reportedConditions(old)
		}
		for _, c := range newlyFalse(was, now) {
			a.writeWarning(about, c)
		}
		a.logConditions(o, now)
	}
}

// reportedConditions returns the conditions of an object that agents report; nil if it has none.
// Those of ServiceExports and ServiceImports are left out that only tell that they wait, or that
// there is no conflict.
func reportedConditions(o client.Object) []metav1.Condition {
	switch o := o.(type) {
	case conditioned:
		return o.GetConditions()
	case *mcsv1alpha1.ServiceExport:
		return exportConditions(o.Status.Conditions)
	case *mcsv1alpha1.ServiceImport:
		return exportConditions(o.Status.Conditions)
	}
	return nil
}

// exportConditions returns the conditions of a ServiceExport or a ServiceImport that may be about a
// mistake.
func exportConditions(all []metav1.Condition) []metav1.Condition {
	return slices.DeleteFunc(slices.Clone(all), func(c metav1.Condition) bool {
		return allocator.Passing(c.Reason) || c.Type == string(mcsv1alpha1.ServiceExportConditionConflict)
	})
}

// writeWarning writes an Event about a condition that is False.
func (a *agent) writeWarning(about client.Object, c metav1.Condition) {
	if a.events != nil {
		a.events.Eventf(about, nil, corev1.EventTypeWarning, c.Reason, c.Type, "%s", eventNote(c.Message))
	}
}

// writeWarnings writes Events about warnings that the last report did not have, and returns what
// a.told is from now on.
func (a *agent) writeWarnings(all []role.Warning) map[string]bool {
	told := make(map[string]bool, len(all))
	for _, w := range all {
		name := string(w.About.GetUID()) + " " + w.Condition.Type
		if told[name] = true; !a.told[name] {
			a.writeWarning(w.About, w.Condition)
		}
	}
	return told
}

// newlyFalse returns the conditions that are False and were not, or had another message. A
// condition that only waits to become True is left out.
func newlyFalse(was, is []metav1.Condition) []metav1.Condition {
	before := map[string]metav1.Condition{}
	for _, c := range was {
		before[c.Type] = c
	}
	var out []metav1.Condition
	for _, c := range is {
		old := before[c.Type]
		if c.Status == metav1.ConditionFalse && !onlyWaits(c) && (old.Status != c.Status || old.Message != c.Message) {
			out = append(out, c)
		}
	}
	return out
}

// onlyWaits reports whether a condition only waits to become True: there may be pods for a
// GlobalEgressIP later.
func onlyWaits(c metav1.Condition) bool {
	return c.Reason == role.ReasonWaiting || c.Reason == submarinerv1.ReasonNoPods
}

// eventNote shortens a message to what an Event may hold.
func eventNote(message string) string {
	const most = 1024 // events.k8s.io/v1: Event.note, in bytes
	return words.Clip(message, most-len(" …"))
}
