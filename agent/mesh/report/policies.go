package report

import (
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/policy"
)

// The speaker looks after the cable policies that this cluster made. It reports which of
// them can be understood, and copies the ConfigMaps that they name into them, since other
// clusters cannot read those.
//
// A mistake changes nothing: the policy that was shared before stays in force, in every
// cluster. An invalid value in a ConfigMap is not copied; an invalid policy is not shared.

// Reasons of the condition Accepted.
const (
	reasonUnderstood   = "Understood"
	reasonMistake      = "Mistake"      // in the policy, which is not shared
	reasonBadConfigMap = "BadConfigMap" // the policy stands, with the settings that it had
)

// policyReports returns what is to be written about this cluster's policies: statuses, of
// which only the condition Accepted is applied, and whole policies with the settings of a
// ConfigMap that has changed.
func policyReports(s role.Snapshot, now time.Time) (statuses, updates []role.Object) {
	for _, p := range role.List[*v1alpha1.CablePolicies](s) {
		if submarinerv1.IsCopy(p) {
			continue
		}
		fresh, err := policy.CopySettings(p, submarinerv1.OperatorNamespace, s.ConfigMap)
		mistake := policy.Check(p)
		if err == nil && !reflect.DeepEqual(fresh.ConnectionPolicies, p.ConnectionPolicies) {
			if err = policy.Check(fresh); err == nil {
				updates = append(updates, fresh)
				continue // its status follows, with its generation
			}
		}
		c := metav1.Condition{}
		switch was := p.Status.Conditions; {
		case mistake != nil:
			c = role.Condition(was, v1alpha1.ConditionAccepted, false, reasonMistake,
				role.Clip(inForce(p)+mistake.Error()), now)
		case err != nil:
			c = role.Condition(was, v1alpha1.ConditionAccepted, false, reasonBadConfigMap,
				role.Clip("the settings copied before stay in force: "+err.Error()), now)
		default:
			c = role.Condition(was, v1alpha1.ConditionAccepted, true, reasonUnderstood, "the policy is understood", now)
		}
		c.ObservedGeneration = p.Generation
		if !slices.Contains(p.Status.Conditions, c) {
			statuses = append(statuses, &v1alpha1.CablePolicies{
				ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, UID: p.UID},
				Status:     v1alpha1.CablePoliciesStatus{Conditions: []metav1.Condition{c}},
			})
		}
	}
	return statuses, updates
}

// inForce returns what is in force in place of an invalid policy, as the beginning of a
// message.
func inForce(p *v1alpha1.CablePolicies) string {
	if len(p.ClusterSets()) == 0 {
		return "it is not shared, and counts nowhere: "
	}
	return "what was shared before stays in force: "
}
