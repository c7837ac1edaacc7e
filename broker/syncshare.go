package broker

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/api/submariner/v1alpha1"
)

// Reasons of the condition Shared. All but the first come with status False.
const (
	reasonShared      = "Shared"
	reasonPending     = "Pending"
	reasonNameTaken   = "NameTaken"
	reasonInvalidName = "InvalidName"
	reasonTooLarge    = "TooLarge"
	reasonTooMany     = "TooMany"
	reasonLabelled    = "Labelled"
	reasonNoSet       = "NotInClusterSet"
)

// share is what becomes of a policy that was made here.
type share struct {
	policy          *v1alpha1.CablePolicies
	reason, message string   // why it is not everywhere it should be; empty: it is or will be
	sets            []string // the clustersets that have it
	behind          bool     // some of them do not have it as it is here yet
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

// report writes down what became of a policy, if that is news.
func (q *policyPlan) report(s *share) {
	was := meta.FindStatusCondition(s.policy.Status.Conditions, v1alpha1.ConditionShared)
	sameSets := slices.Equal(s.sets, s.policy.Status.ClusterSets)
	now := metav1.Condition{Type: v1alpha1.ConditionShared, Status: metav1.ConditionFalse, ObservedGeneration: s.policy.Generation}
	switch {
	case s.reason != "":
		now.Reason, now.Message = s.reason, s.message
		q.refuse(s.policy, true, "%s", s.message)
	case s.behind && was != nil && was.Status == metav1.ConditionTrue && sameSets:
		return // a change is on its way
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
		if sameSets && equality.Semantic.DeepEqual(*was, now) {
			return
		}
	}
	q.writes = append(q.writes, Write{Op: Report, Object: &v1alpha1.CablePolicies{
		ObjectMeta: metav1.ObjectMeta{Name: s.policy.Name, Namespace: s.policy.Namespace, UID: s.policy.UID},
		Status:     v1alpha1.CablePoliciesStatus{ClusterSets: s.sets, Conditions: []metav1.Condition{now}},
	}})
}
