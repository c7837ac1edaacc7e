package agent

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/policy"
)

// This file looks after the cable policies that this cluster made: it says which of
// them can be understood, and copies the ConfigMaps that they name into them, since
// other clusters cannot read those.
//
// A ConfigMap that is missing, or has a mistake, changes nothing: the settings copied
// before stay in force, in every cluster alike.

// Reasons of the condition Accepted.
const (
	reasonUnderstood   = "Understood"
	reasonMistake      = "Mistake"      // in the policy
	reasonBadConfigMap = "BadConfigMap" // the policy stands, with the settings it had
)

// policyReports returns what is to be written about this cluster's policies: statuses,
// of which only the condition Accepted is to be applied, and whole policies with the
// settings of a ConfigMap that has changed, to be updated. Only the active gateway
// calls it.
func policyReports(s Snapshot, now time.Time) (statuses, updates []client.Object) {
	for _, p := range List[*v1alpha1.CablePolicies](s) {
		if _, isCopy := p.Labels[submarinerv1.ClusterIDLabel]; isCopy {
			continue
		}
		fresh, err := withConfigMaps(s, p)
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
			c = condition(was, v1alpha1.ConditionAccepted, false, reasonMistake, clip(mistake.Error()), now)
		case err != nil:
			c = condition(was, v1alpha1.ConditionAccepted, false, reasonBadConfigMap, clip("the settings copied before stay in force: "+err.Error()), now)
		default:
			c = condition(was, v1alpha1.ConditionAccepted, true, reasonUnderstood, "the policy is understood", now)
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

// withConfigMaps returns a policy with the settings of the ConfigMaps that it names,
// or says which it cannot have.
func withConfigMaps(s Snapshot, p *v1alpha1.CablePolicies) (*v1alpha1.CablePolicies, error) {
	fresh := p.DeepCopy()
	var errs []error
	for i := range fresh.ConnectionPolicies {
		o := fresh.ConnectionPolicies[i].CableOptions
		if o == nil || o.Metadata.Name == "" {
			continue
		}
		text, err := settingsOf(s, o.Metadata)
		if err != nil {
			errs = append(errs, fmt.Errorf("spec[%d].options.metadata: ConfigMap %s: %w", i, o.Metadata.Name, err))
			continue
		}
		o.Data = map[string]string{v1alpha1.CableCustomConfig: text}
	}
	return fresh, errors.Join(errs...)
}

// settingsOf returns the YAML of a ConfigMap.
func settingsOf(s Snapshot, ref v1alpha1.CableOptionsSource) (string, error) {
	if ref.Namespace != "" && ref.Namespace != submarinerv1.OperatorNamespace {
		return "", fmt.Errorf("it is in namespace %s, but only those in %s are read: put it there", ref.Namespace, submarinerv1.OperatorNamespace)
	}
	cm := find[*corev1.ConfigMap](s, ref.Name)
	if cm == nil {
		return "", fmt.Errorf("there is none in namespace %s: make it, or take its name out of the policy", submarinerv1.OperatorNamespace)
	}
	text, err := cable.ConfigText(cm.Data)
	if err == nil && strings.TrimSpace(text) == "" {
		err = fmt.Errorf("it has no settings: they go under the key %s", v1alpha1.CableCustomConfig)
	}
	return text, err
}
