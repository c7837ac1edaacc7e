package controller

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	batch "subctl/api/sdewan/v1alpha1"
)

// This file concludes from what is known of each pod which rules are in sync, and why others are not.

// attempt is the result of an attempt to sync a CNF.
type attempt struct {
	rules []rule             // to be reported
	of    func(rule) verdict // of rules
	after time.Duration      // after which to try again if nothing changes; 0: soon, and then more and more seldom
	late  bool               // a pod has not finished: an attempt after its end tells more
	hold  time.Duration      // for how long rules keep NotReady although the pods are ready
	slow  bool               // names were not looked up in time: it is tried again after that, and more and more seldom
}

// judgement is what is known at the end of an attempt. The states are those of the pods.
type judgement struct {
	cnf
	services services
	states   []state
}

// late reports whether a pod has not finished.
func (j judgement) late() bool {
	return slices.ContainsFunc(j.states, func(s state) bool { return s.late })
}

// wrong returns what is wrong with the CNF as its pods tell, and what they have not been sent yet. A pod that is late has the problem that it had before.
func (j judgement) wrong() (wrong, unfinished problem, fresh bool) {
	for i, s := range j.states {
		pod := j.pods[i].Name
		switch {
		case s.problem.reason != "":
			wrong, fresh = s.problem, true
		case s.late && s.last.reason != "" && !fresh:
			wrong = s.last
		case s.late && s.long:
			unfinished = lateOn(pod, s.waits)
		case len(s.synced.unsent) > 0:
			unfinished, fresh = problem{Unfinished, fmt.Sprintf("pod %s: %v", pod, s.synced.stopped)}, true
		}
	}
	return wrong, unfinished, fresh
}

// lateOn is the problem of a rule that a pod may lack, as it has not finished, or not begun.
func lateOn(pod string, waits bool) problem {
	if waits {
		return problem{Unfinished, fmt.Sprintf("pod %s: it waits for other pods of the CNF: %d are sent changes at a time, %d of those that have failed before: see why these do not finish if this stays", pod, podsAtOnce, failedAtOnce)}
	}
	return problem{Unfinished, fmt.Sprintf("pod %s: the CNF answers slowly, and has not been sent everything yet: see why if this stays", pod)}
}

// judge returns the result of an attempt.
func (r *reconciler) judge(j judgement, mayTell func() bool) attempt {
	wrong, unfinished, again := j.wrong()
	wrong = r.steady(j.key, wrong, mayTell)
	waiting, hold := r.observe(j.cnf)
	if wrong.reason == "" && waiting != "" {
		wrong, again = problem{NotReady, waiting}, true
	}
	told := wrong
	if told.reason == "" {
		told = r.steady(j.key, unfinished, mayTell)
	}
	switch {
	case told.reason != "":
		r.trouble(j.key, j.deployments[0], told)
	case !j.late() && hold == 0:
		r.settled(j.key)
	}
	a := attempt{late: j.late(), hold: hold}
	verdicts := make(map[types.UID]verdict, len(j.rules))
	behind := false
	for _, x := range j.rules {
		behind = behind || j.behind(x)
		v, ok, byCNF := j.verdict(x, wrong)
		again = again || byCNF
		if ok {
			kept := r.held(x, v.problem, mayTell)
			again = again || kept.reason == NotReady && v.reason != NotReady && v.reason != ""
			v.problem = kept
			verdicts[x.GetUID()] = v
			a.rules = append(a.rules, x)
		}
	}
	a.of = func(x rule) verdict { return verdicts[x.GetUID()] }
	switch {
	case again:
		a.after = 0
	case j.services.late || behind:
		a.after, a.slow = dnsSoon, j.services.late
	case j.services.dns:
		a.after = min(dnsAgain, r.o.Resync)
	default:
		a.after = r.o.Resync
	}
	return a
}

// behind reports whether a pod that is not late was synced before a rule was as it is now, or had the target that it has now.
func (j judgement) behind(x rule) bool {
	return slices.ContainsFunc(j.states, func(s state) bool { return !s.late && j.lacks(s, x) })
}

// lacks reports whether a sync of a pod did not consider a rule as it is now.
func (j judgement) lacks(s state, x rule) bool {
	return s.aim.versions != nil && !s.aim.isFor(x, j.services)
}

// verdict returns the state of a rule, unless it depends on a pod that is late: then nothing new is known. ByCNF reports whether a pod that is not late is the cause of a problem.
func (j judgement) verdict(x rule, wrong problem) (v verdict, known, byCNF bool) {
	v = verdict{problem: wrong, gone: wrong.reason == ""}
	var late problem
	known = true
	for i, s := range j.states {
		pod := j.pods[i].Name
		if s.late || j.lacks(s, x) {
			known, v.gone = false, false
			if s.long {
				late = lateOn(pod, s.waits)
			}
			continue
		}
		if s.aim.versions == nil {
			continue // not ready
		}
		p := s.aim.on(x, s.synced)
		if s.problem.reason != "" && p.reason != Rejected {
			continue // not synced, or not to the end
		}
		v.written = v.written || s.synced.written[id{x.kind.Collection, x.GetName()}]
		if p.reason != "" {
			v.gone = false
			if v.reason == "" || p.ofRule() && !v.ofRule() {
				v.problem = problem{p.reason, onPod(pod, p)}
			}
			byCNF = byCNF || p.byCNF()
		}
	}
	switch {
	case known || v.reason != "":
		return v, true, byCNF
	case late.reason == "" || isTold(x):
		return v, false, byCNF
	}
	v.problem = late
	return v, true, byCNF
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
