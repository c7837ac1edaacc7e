package exchange

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/internal/words"
)

// Reasons of the condition Shared. All except the first come with status False.
const (
	reasonShared      = "Shared"
	reasonPending     = v1alpha1.ReasonPending
	reasonNameTaken   = "NameTaken"
	reasonInvalidName = "InvalidName"
	reasonTooLarge    = "TooLarge"
	reasonMistake     = "Mistake"
	reasonTooMany     = v1alpha1.ReasonTooMany
	reasonLost        = "Lost"
	reasonNoSet       = "NotInClusterSet"
	reasonBrokerOnly  = "BrokerOnly"
)

// sharedStatus is the state of an object that was made here. Its kind is Free, or has a status.
type sharedStatus struct {
	kind            *Kind
	object          client.Object
	last            Shared        // what its status reports
	reason, message string        // why it is not shared as it is; empty if it is or will be
	barred          bool          // from the broker altogether
	mistaken        bool          // its last valid version is shared instead
	sets            []string      // the clustersets that have it
	inForce         client.Object // with the fields that are in force; nil if the broker was not seen to hold it
	behind          bool          // some clustersets do not have yet what they should
	unknown         bool          // some clustersets are not known
}

func newShare(k *Kind, o client.Object) *sharedStatus {
	s := &sharedStatus{kind: k, object: o}
	if k.Status != nil {
		s.last = k.Status(o)
	}
	return s
}

func (s *sharedStatus) refuse(reason, format string, args ...any) {
	s.reason = reason
	s.message = fmt.Sprintf(format, args...)
}

// unread assumes that a clusterset which is not known has what it had last.
func (s *sharedStatus) unread(set string) {
	s.behind = true
	s.unknown = true
	if slices.Contains(s.last.Sets, set) {
		s.sets = append(s.sets, set)
	}
}

// shareable returns what a clusterset that holds have, which may be nil, should hold: the
// object as it is or, if that has a mistake, its last valid version. It returns nil if
// there is none.
func (s *sharedStatus) shareable(cluster, namespace string, have client.Object) client.Object {
	labels := map[string]string{submarinerv1.ClusterIDLabel: cluster}
	want := s.kind.freeCopy(s.object, namespace, s.object.GetName(), labels)
	if have != nil && maps.Equal(want.GetLabels(), have.GetLabels()) && s.kind.sameFields(want, have) &&
		s.last.InForce != nil &&
		s.kind.sameFields(s.last.InForce, want) {
		return want // checked before
	}
	reason, flaw := s.kind.contentFlaw(want)
	if flaw == "" {
		return want
	}
	before := have
	if s.last.InForce != nil {
		before = s.last.InForce
	}
	if before != nil {
		before = s.kind.freeCopy(before, namespace, s.object.GetName(), labels)
		if _, flaw := s.kind.contentFlaw(before); flaw != "" {
			before = nil
		}
	}
	s.mistaken = true
	s.refuse(reason, "%s: %s", instead(before != nil), flaw)
	return before
}

// share notes what a clusterset should hold, and what it holds, which may be nil.
func (s *sharedStatus) share(set string, want, have client.Object) {
	s.behind = s.behind || have == nil || !s.kind.same(want, have)
	if have == nil {
		return
	}
	s.sets = append(s.sets, set)
	if s.inForce == nil && !s.kind.sameFields(have, s.kind.New()) { // not a stub
		s.inForce = have
	}
	if s.mistaken {
		s.inForce = want // even if somebody has changed it there
	}
}

// lacks returns the reason for an object without a place. s may be nil.
func (s *sharedStatus) lacks() string {
	if s != nil && s.had(meta.FindStatusCondition(s.last.Conditions, v1alpha1.ConditionShared)) {
		return reasonLost
	}
	return reasonTooMany
}

// had reports whether the broker had the object, by its last condition Shared, which may be nil. A
// broker may have lost a page of exported Services, or hide it: that is no removal, as it would be
// if it had never had a place.
func (s *sharedStatus) had(last *metav1.Condition) bool {
	return s.kind.Named != nil && last != nil && (last.Status == metav1.ConditionTrue || last.Reason == reasonLost)
}

// found notes that a clusterset has the object, and whether it is as it should be.
func (s *sharedStatus) found(set string, current bool) {
	s.sets = append(s.sets, set)
	s.behind = s.behind || !current
}

// isNew reports whether the object's status does not have the clustersets and the fields
// in force yet.
func (s *sharedStatus) isNew() bool {
	fields := func(o client.Object) client.Object {
		if o == nil {
			return s.kind.New()
		}
		return o
	}
	return !slices.Equal(s.sets, s.last.Sets) || !s.kind.sameFields(fields(s.inForce), fields(s.last.InForce))
}

// report writes the status of an object if it has changed.
func (p *kindPlan) report(s *sharedStatus) {
	if s.kind.Status == nil {
		return
	}
	if s.inForce == nil && len(s.sets) > 0 {
		s.inForce = s.last.InForce
	}
	last := meta.FindStatusCondition(s.last.Conditions, v1alpha1.ConditionShared)
	now := s.condition(last)
	if last != nil {
		if last.Status == now.Status {
			now.LastTransitionTime = last.LastTransitionTime
		}
		if !s.isNew() && equality.Semantic.DeepEqual(*last, now) {
			return
		}
	}
	out := s.kind.New()
	out.SetName(s.object.GetName())
	out.SetNamespace(s.object.GetNamespace())
	out.SetUID(s.object.GetUID())
	s.kind.SetStatus(out, Shared{Sets: s.sets, InForce: s.inForce, Conditions: []metav1.Condition{now}})
	w := Write{Op: Report, Object: out, kind: s.kind}
	if isNews(last, now) {
		w.news = &now
	}
	p.writes = append(p.writes, w)
}

// condition returns the condition Shared; last is the condition as it is, or nil.
func (s *sharedStatus) condition(last *metav1.Condition) metav1.Condition {
	now := metav1.Condition{
		Type:               v1alpha1.ConditionShared,
		Status:             metav1.ConditionFalse,
		ObservedGeneration: s.object.GetGeneration(),
	}
	switch {
	case s.reason != "":
		now.Reason = s.reason
		now.Message = s.message
	case s.behind && last != nil && last.Status == metav1.ConditionTrue && slices.Equal(s.sets, s.last.Sets):
		now = *last // a change is on its way
	case s.behind && s.had(last):
		now.Reason = reasonLost
		now.Message = "it is not on the broker any more in every clusterset that it is for, and is published again"
	case s.behind:
		now.Reason = reasonPending
		now.Message = "it is not on the broker yet in every clusterset that it is for"
	default:
		now.Status = metav1.ConditionTrue
		now.Reason = reasonShared
		now.Message = "it is on the broker in clusterset " + words.List(s.sets)
	}
	return now
}

// isNews reports whether a condition tells a person of trouble that was not reported
// before. The condition Accepted reports mistakes.
func isNews(last *metav1.Condition, now metav1.Condition) bool {
	if now.Status != metav1.ConditionFalse || now.Reason == reasonPending || now.Reason == reasonMistake {
		return false
	}
	return last == nil || last.Reason != now.Reason || last.Message != now.Message
}
