package view

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/sdewan"
)

// State is whether the pods of a CNF have a rule.
type State struct {
	InSync  bool
	Version string // that all pods have
	Since   string // RFC 3339
	Pods    []string
	Reason  string // CamelCase, "" if InSync
	Message string // what is wrong, and what to do
}

// State returns the state of a rule, as its status and its CNF tell.
func (v *View) State(r sdewan.Rule) State {
	status := r.RuleStatus()
	s := State{InSync: status.InSync, Version: status.AppliedVersion}
	if status.AppliedTime != nil {
		s.Since = status.AppliedTime.UTC().Format("2006-01-02T15:04:05Z")
	}
	cnfs := v.Of(r)
	for _, c := range cnfs {
		s.Pods = append(s.Pods, c.Ready()...)
	}
	purpose := r.GetLabels()[sdewan.PurposeLabel]
	applied := meta.FindStatusCondition(status.Conditions, batch.ConditionApplied)
	current := status.InSync && status.ObservedGeneration == r.GetGeneration() && r.GetDeletionTimestamp() == nil
	switch {
	case purpose == "":
		s.fail("NoPurpose", "it has no label %s, so it applies to no CNF: set the label", sdewan.PurposeLabel)
	case len(cnfs) > 1:
		s.fail("SeveralCNFs", "several Deployments in namespace %s have the label %s=%s: delete all but one",
			r.GetNamespace(), sdewan.PurposeLabel, purpose)
	case r.GetDeletionTimestamp() != nil:
		s.fail("Deleting", "it is being removed from the pods of its CNF%s", because(applied))
	case len(cnfs) == 0:
		s.fail("NoCNF", "no Deployment in namespace %s has the label %s=%s: the rule waits for one", r.GetNamespace(),
			sdewan.PurposeLabel, purpose)
	case current:
	case applied != nil && applied.Status != "True":
		s.fail(applied.Reason, "%s", applied.Message)
	case status.InSync:
		s.fail("Changed",
			"the rule was changed, and the controller has not applied the change yet: look at the pods in namespace %s if this stays",
			sdewan.Namespace)
	default:
		s.fail("NotApplied", "the controller has not reported: look at the pods in namespace %s if this stays",
			sdewan.Namespace)
	}
	return s
}

func (s *State) fail(reason, format string, args ...any) {
	s.InSync = false
	s.Reason = reason
	s.Message = strings.TrimSpace(fmt.Sprintf(format, args...))
}

func because(c *metav1.Condition) string {
	if c == nil || c.Message == "" || c.Status == metav1.ConditionTrue {
		return ""
	}
	return ": " + c.Message
}
