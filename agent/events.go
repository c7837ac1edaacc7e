package agent

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/mesh"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
)

// tell writes a Kubernetes Event for each reported condition that has become False, or is
// False for another reason than before: "kubectl get events" then shows what went wrong,
// and when.
func (a *agent) tell(s mesh.Snapshot, reported []client.Object) {
	for _, o := range reported {
		about, was, is := o, []metav1.Condition(nil), []metav1.Condition(nil)
		switch o := o.(type) {
		case *submarinerv1.Gateway:
			is = o.Status.Conditions
			if old := mesh.Find[*submarinerv1.Gateway](s, o.Name); old != nil {
				about, was = old, old.Status.Conditions
			}
		case *submarinerv1.RouteAgent:
			is = o.Status.Conditions
			if old := mesh.Find[*submarinerv1.RouteAgent](s, o.Name); old != nil {
				about, was = old, old.Status.Conditions
			}
		case *v1alpha1.CablePolicies:
			is = o.Status.Conditions
			if old := mesh.Find[*v1alpha1.CablePolicies](s, o.Name); old != nil {
				about, was = old, old.Status.Conditions
			}
		}
		for _, c := range newlyFalse(was, is) {
			a.warn(about, c)
		}
	}
}

// warn writes an Event about a condition that is False.
func (a *agent) warn(about client.Object, c metav1.Condition) {
	if a.events != nil {
		a.events.Eventf(about, nil, corev1.EventTypeWarning, c.Reason, c.Type, "%s", eventNote(c.Message))
	}
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
		if c.Status == metav1.ConditionFalse && c.Reason != mesh.ReasonWaiting && (old.Status != c.Status || old.Message != c.Message) {
			out = append(out, c)
		}
	}
	return out
}

// eventNote shortens a message to what an Event may hold.
func eventNote(message string) string {
	const most = 1024 - len("…") // events.k8s.io/v1: Event.note, in bytes
	if len(message) > most {
		return strings.ToValidUTF8(message[:most], "") + "…"
	}
	return message
}
