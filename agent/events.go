package agent

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/mesh"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/words"
)

// conditioned is an object whose status has conditions.
type conditioned interface {
	client.Object
	GetConditions() []metav1.Condition
}

// tell logs each reported condition that has become False, or is False with a different message than
// before, and writes a Kubernetes Event about it: "kubectl get events" then shows what went wrong,
// and when.
func (a *agent) tell(s mesh.Snapshot, reported []mesh.Object) {
	for _, o := range reported {
		now, ok := o.(conditioned)
		if !ok {
			continue
		}
		about, was := o, []metav1.Condition(nil)
		if old, ok := s.Same(o).(conditioned); ok {
			about, was = old, old.GetConditions()
		}
		for _, c := range newlyFalse(was, now.GetConditions()) {
			a.warn(about, c)
		}
		a.logConditions(o, now.GetConditions())
	}
}

// warn writes an Event about a condition that is False.
func (a *agent) warn(about client.Object, c metav1.Condition) {
	if a.events != nil {
		a.events.Eventf(about, nil, corev1.EventTypeWarning, c.Reason, c.Type, "%s", eventNote(c.Message))
	}
}

// warnOf writes Events about objects that no Event was written about by the last report, and returns the UIDs of all of them.
func (a *agent) warnOf(all []mesh.Warning) map[types.UID]bool {
	told := make(map[types.UID]bool, len(all))
	for _, w := range all {
		if told[w.About.GetUID()] = true; !a.told[w.About.GetUID()] {
			a.warn(w.About, w.Condition)
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
		if c.Status == metav1.ConditionFalse && !waits(c) && (old.Status != c.Status || old.Message != c.Message) {
			out = append(out, c)
		}
	}
	return out
}

// waits reports whether a condition only waits to become True: there may be pods for a GlobalEgressIP later.
func waits(c metav1.Condition) bool {
	return c.Reason == mesh.ReasonWaiting || c.Reason == submarinerv1.ReasonNoPods
}

// eventNote shortens a message to what an Event may hold.
func eventNote(message string) string {
	const most = 1024 // events.k8s.io/v1: Event.note, in bytes
	return words.Clip(message, most-len(" …"))
}
