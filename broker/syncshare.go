package broker

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
)

// Reasons of the condition Shared. All but the first come with status False.
const (
	reasonShared      = "Shared"
	reasonPending     = "Pending"
	reasonNameTaken   = "NameTaken"
	reasonInvalidName = "InvalidName"
	reasonTooLarge    = "TooLarge"
	reasonMistake     = "Mistake"
	reasonTooMany     = "TooMany"
	reasonLabelled    = "Labelled"
	reasonNoSet       = "NotInClusterSet"
)

// share is what becomes of a policy that was made here.
type share struct {
	policy          *v1alpha1.CablePolicies
	reason, message string                     // why it is not everywhere it should be as it is; empty: it is or will be
	barred          bool                       // from the broker altogether
	mistaken        bool                       // it is not shared as it is, but as it was
	sets            []string                   // the clustersets that have it
	rules           []v1alpha1.CablePolicySpec // that count; nil if the broker was not seen to hold any
	behind          bool                       // some of them do not have yet what they should
}

func (s *share) refuse(reason, format string, args ...any) {
	s.reason, s.message = reason, fmt.Sprintf(format, args...)
}

// unread believes that a clusterset which is not known has what it last had.
func (s *share) unread(set string) {
	s.behind = true
	if slices.Contains(s.policy.Status.ClusterSets, set) {
		s.sets = append(s.sets, set)
	}
}

// shareable returns what a clusterset should hold of the policy, where it holds have,
// which may be nil: the policy as it is or, if that has a mistake, as it was last in
// force. It is nil if it never was.
func (s *share) shareable(cluster, namespace string, have *v1alpha1.CablePolicies) *v1alpha1.CablePolicies {
	labels := map[string]string{submarinerv1.ClusterIDLabel: cluster}
	want := policyCopy(s.policy, namespace, s.policy.Name, labels)
	if have != nil && same(want, have) && equality.Semantic.DeepEqual(s.policy.Status.Rules, want.ConnectionPolicies) {
		return want // looked at before
	}
	reason, flaw := contentFlaw(want)
	if flaw == "" {
		return want
	}
	before := have
	if len(s.policy.Status.Rules) > 0 {
		before = &v1alpha1.CablePolicies{ConnectionPolicies: s.policy.Status.Rules}
	}
	if before != nil {
		before = policyCopy(before, namespace, s.policy.Name, labels)
		if _, flaw := contentFlaw(before); flaw != "" {
			before = nil
		}
	}
	s.mistaken = true
	s.refuse(reason, "%s: %s", instead(before != nil), flaw)
	return before
}

// share notes what a clusterset should hold, and holds.
func (s *share) share(set string, want, have *v1alpha1.CablePolicies) {
	s.behind = s.behind || have == nil || !same(want, have)
	if have == nil {
		return
	}
	s.sets = append(s.sets, set)
	if s.rules == nil {
		s.rules = have.ConnectionPolicies
	}
	if s.mistaken {
		s.rules = want.ConnectionPolicies // even if somebody has changed it there
	}
}

// report writes down what became of a policy, if that is news.
func (q *policyPlan) report(s *share) {
	was := meta.FindStatusCondition(s.policy.Status.Conditions, v1alpha1.ConditionShared)
	if s.rules == nil && len(s.sets) > 0 {
		s.rules = s.policy.Status.Rules
	}
	same := slices.Equal(s.sets, s.policy.Status.ClusterSets) && equality.Semantic.DeepEqual(s.rules, s.policy.Status.Rules)
	now := metav1.Condition{Type: v1alpha1.ConditionShared, Status: metav1.ConditionFalse, ObservedGeneration: s.policy.Generation}
	switch {
	case s.reason != "":
		now.Reason, now.Message = s.reason, s.message
		q.refuse(s.policy, true, "%s", s.message)
	case s.behind && was != nil && was.Status == metav1.ConditionTrue && slices.Equal(s.sets, s.policy.Status.ClusterSets):
		now = *was // a change is on its way
	case s.behind:
		now.Reason, now.Message = reasonPending, "it is not on the broker yet, in every clusterset it is for"
	default:
		now.Status, now.Reason = metav1.ConditionTrue, reasonShared
		now.Message = "it is on the broker, in clusterset " + strings.Join(s.sets, ", ")
	}
	if was != nil {
		if was.Status == now.Status {
			now.LastTransitionTime = was.LastTransitionTime
		}
		if same && equality.Semantic.DeepEqual(*was, now) {
			return
		}
	}
	q.writes = append(q.writes, Write{Op: Report, news: isNews(was, now), Object: &v1alpha1.CablePolicies{
		ObjectMeta: metav1.ObjectMeta{Name: s.policy.Name, Namespace: s.policy.Namespace, UID: s.policy.UID},
		Status:     v1alpha1.CablePoliciesStatus{ClusterSets: s.sets, Rules: s.rules, Conditions: []metav1.Condition{now}},
	}})
}

// isNews says whether a condition tells a person of trouble that it did not tell of
// before. Of mistakes the condition Accepted tells.
func isNews(was *metav1.Condition, now metav1.Condition) bool {
	if now.Status != metav1.ConditionFalse || now.Reason == reasonPending || now.Reason == reasonMistake {
		return false
	}
	return was == nil || was.Reason != now.Reason || was.Message != now.Message
}
