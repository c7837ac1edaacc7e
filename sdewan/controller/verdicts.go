package controller

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	batch "subctl/api/sdewan/v1alpha1"
)

// This file concludes from what is known of each pod which rules are in sync, and why others are
// not.

// verdicts are what is known of the rules of a CNF.
type verdicts struct {
	rules  []rule             // to be reported
	of     func(rule) verdict // of rules
	after  time.Duration      // after which more is known although nothing changes; 0 if that is not so
	states []state            // of the pods that they are about
}

// again returns v with another time after which more is known.
func (v verdicts) again(after time.Duration) verdicts {
	if after > 0 && (v.after == 0 || after < v.after) {
		v.after = after
	}
	return v
}

// judgement is what is known of a CNF. The states are those of the pods.
type judgement struct {
	cnf
	services services
	states   []state
}

// behind reports whether a pod that is ready lacks a change.
func (j judgement) behind() bool {
	return slices.ContainsFunc(j.states, func(s state) bool { return s.behind })
}

// mistakes returns what is wrong in annotations of the CNF and its pods.
func (j judgement) mistakes() []string {
	_, all := j.unmanaged()
	for _, s := range j.states {
		if s.last != nil {
			all = append(all, s.last.mistakes...)
		}
	}
	return all
}

// wrong returns what is wrong with the CNF as its pods tell, and what they have not been sent yet.
// Of several pods, the first one counts, so that the messages do not depend on which pod was synced
// last.
func (j judgement) wrong() (wrong, unfinished problem) {
	for i, s := range j.states {
		pod := j.pods[i].Name
		switch {
		case s.last != nil && s.last.problem.reason != "":
			wrong = firstOf(wrong, s.last.problem)
		case s.late:
			unfinished = firstOf(unfinished, s.lateOn(pod))
		case s.last != nil && len(s.last.synced.unsent) > 0:
			unfinished = firstOf(unfinished, problem{Unfinished, fmt.Sprintf("pod %s: %v", pod, s.last.synced.stopped)})
		}
	}
	return wrong, unfinished
}

// firstOf returns the first problem, or the second one if there is none.
func firstOf(a, b problem) problem {
	if a.reason != "" {
		return a
	}
	return b
}

// lateOn is the problem of a rule that a pod may lack, as its sync has not ended, or not begun.
func (s state) lateOn(pod string) problem {
	if !s.running {
		return problem{
			Unfinished,
			fmt.Sprintf(
				"pod %s: it waits for other pods of the CNF: %d are sent changes at a time, "+
					"%d of those that have failed before: see why these do not finish if this stays",
				pod,
				podsAtOnce,
				failedAtOnce,
			),
		}
	}
	return problem{Unfinished, fmt.Sprintf(
		"pod %s: the CNF answers slowly, and has not been sent everything yet: see why if this stays", pod)}
}

// judge returns what is known of the rules of a CNF.
func (r *cnfReconciler) judge(j judgement, mayTell func() bool) verdicts {
	wrong, unfinished := j.wrong()
	wrong = r.steady(j.key, wrong, mayTell)
	waiting, hold := r.observe(j.cnf)
	if wrong.reason == "" && waiting != "" {
		wrong = problem{NotReady, waiting}
	}
	told := wrong
	if told.reason == "" {
		told = r.steady(j.key, unfinished, mayTell)
	}
	switch {
	case told.reason != "":
		r.trouble(j.key, j.deployments[0], told)
	case !j.behind() && hold == 0:
		r.settled(j.key)
	}
	byRule := make(map[types.UID]verdict, len(j.rules))
	out := verdicts{states: j.states, of: func(x rule) verdict { return byRule[x.GetUID()] }}.again(hold)
	for _, s := range j.states {
		out = out.again(s.lateIn)
	}
	for _, x := range j.rules {
		v, known := j.verdict(x, wrong)
		if !known {
			continue
		}
		kept := r.held(x, v.problem, mayTell)
		if kept != v.problem && v.reason != "" {
			out = out.again(newsTime) // it may be told then
		}
		v.problem = kept
		byRule[x.GetUID()] = v
		out.rules = append(out.rules, x)
	}
	return out
}

// of returns the outcome that tells about a rule as it is now; nil if there is none yet.
func (s state) of(x rule, now services) *outcome {
	if p := s.partial; p != nil && p.aim.isFor(x, now) && p.synced.refused[id{x.kind.Collection, x.GetName()}] != nil {
		return p
	}
	if s.last == nil || s.last.aim.versions != nil && !s.last.aim.isFor(x, now) {
		return nil
	}
	return s.last
}

// verdict returns the state of a rule, unless it depends on a pod that lacks the rule as it is:
// then nothing new is known.
func (j judgement) verdict(x rule, wrong problem) (v verdict, known bool) {
	v = verdict{problem: wrong, gone: wrong.reason == ""}
	var late problem
	known = true
	for i, s := range j.states {
		if !s.ready {
			continue
		}
		pod := j.pods[i].Name
		o := s.of(x, j.services)
		if o == nil {
			known = false
			v.gone = false
			if s.late {
				late = s.lateOn(pod)
			}
			continue
		}
		if o.aim.versions == nil {
			continue // the sync failed before it came to rules
		}
		p := o.aim.on(x, o.synced)
		if o.problem.reason != "" && p.reason != Rejected {
			continue // not synced, or not to the end
		}
		v.written = v.written || s.written[id{x.kind.Collection, x.GetName()}] > 0
		if p.reason != "" {
			v.gone = false
			if v.reason == "" || p.ofRule() && !v.ofRule() {
				v.problem = problem{p.reason, onPod(pod, p)}
			}
		}
	}
	switch {
	case known || v.reason != "":
		return v, true
	case late.reason == "" || isTold(x):
		return v, false
	}
	v.problem = late
	return v, true
}

// isTold reports whether the status of a rule says what its CNF made of it as it is.
func isTold(x rule) bool {
	c := meta.FindStatusCondition(x.RuleStatus().Conditions, batch.ConditionApplied)
	return c != nil && c.ObservedGeneration == x.GetGeneration() && (x.inSync() || problem{reason: c.Reason}.byCNF())
}

// onPod names the pod in a message, unless the problem is the same on all pods.
func onPod(pod string, p problem) string {
	if p.byCNF() {
		return "pod " + pod + ": " + p.message
	}
	return p.message
}
