package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"subctl/sdewan"
	"subctl/sdewan/rest"
)

// podTimeout bounds all requests of one sync of a pod.
const podTimeout = 2 * time.Minute

// podsAtOnce is the number of pods of a CNF that are synced at the same time.
const podsAtOnce = 16

// outcome is the result of syncing one pod.
type outcome struct {
	aim      aim
	synced   synced
	problem  problem  // with the pod
	mistakes []string // in its annotations
}

// syncPods syncs all pods that are ready, at the same time.
func (r *reconciler) syncPods(ctx context.Context, c cnf) (of func(rule) verdict, after time.Duration) {
	r.fleet.keep(c.key, c.pods)
	unmanaged, mistakes := c.unmanaged()
	services := r.names.of(ctx, c.rules)
	mayTell := sync.OnceValue(func() bool { return r.mayTell(c.key) })
	early := r.early(c.rules, func(x rule, p problem) problem { return steadyOf(x, p, mayTell) })
	outcomes := make([]outcome, len(c.pods))
	var group sync.WaitGroup
	slots := make(chan struct{}, podsAtOnce)
	for i, p := range c.pods {
		if isReady(p) {
			slots <- struct{}{}
			group.Go(func() {
				defer func() { <-slots }()
				outcomes[i] = r.syncPod(ctx, c, p, services, unmanaged, early)
			})
		}
	}
	group.Wait()
	copy(c.rules, early.rules)
	var wrong, unfinished problem // with the CNF
	for i, o := range outcomes {
		if o.problem.reason != "" {
			wrong = o.problem
		}
		if len(o.synced.unsent) > 0 {
			unfinished = problem{Unfinished, fmt.Sprintf("pod %s: %v", c.pods[i].Name, o.synced.stopped)}
		}
	}
	wrong = r.steady(c.key, wrong, mayTell)
	waiting := c.notReady()
	if wrong.reason == "" && waiting != "" {
		wrong = problem{NotReady, waiting}
	}
	for _, o := range outcomes {
		mistakes = append(mistakes, o.mistakes...)
	}
	r.note(c, mistakes)
	told := wrong
	if told.reason == "" {
		told = r.steady(c.key, unfinished, mayTell)
	}
	again := told.reason != ""
	if again {
		r.trouble(c.key, c.deployments[0], told)
	} else {
		r.settled(c.key)
	}
	verdicts := make(map[types.UID]verdict, len(c.rules))
	for _, x := range c.rules {
		v := verdict{problem: wrong, gone: wrong.reason == ""}
		for i, o := range outcomes {
			if o.aim.desires == nil {
				continue // not ready
			}
			p := o.aim.on(x, o.synced)
			if o.problem.reason != "" && p.reason != Rejected {
				continue // not synced, or not to the end
			}
			key := id{x.kind.Collection, x.GetName()}
			v.written = v.written || o.synced.written[key]
			if p.reason != "" {
				v.gone = false
				if v.reason == "" || p.ofRule() && !v.ofRule() {
					v.problem = problem{p.reason, onPod(c.pods[i].Name, p)}
				}
				again = again || p.byCNF()
			}
		}
		v.problem = steadyOf(x, v.problem, mayTell)
		verdicts[x.GetUID()] = v
	}
	switch {
	case again:
		after = 0
	case services.late:
		after = dnsSoon
	case services.dns:
		after = min(dnsAgain, r.o.Resync)
	default:
		after = r.o.Resync
	}
	return func(x rule) verdict { return verdicts[x.GetUID()] }, after
}

// onPod names the pod in a message, unless the problem is the same on all pods.
func onPod(pod string, p problem) string {
	if p.byCNF() {
		return "pod " + pod + ": " + p.message
	}
	return p.message
}

func (r *reconciler) syncPod(ctx context.Context, c cnf, p *corev1.Pod, services services, unmanaged func(*rest.Collection, string) bool, early *early) outcome {
	ctx, cancel := context.WithTimeout(ctx, r.o.podTimeout)
	defer cancel()
	m, trouble := r.fleet.of(ctx, c.key, p)
	defer r.fleet.done(m, c.key.Namespace)
	if trouble != nil {
		return outcome{problem: *trouble}
	}
	annotation, ok := p.Annotations[sdewan.NetworksAnnotation]
	if !ok {
		annotation = c.deployments[0].Spec.Template.Annotations[sdewan.NetworksAnnotation]
	}
	var o outcome
	networks, err := sdewan.ParseNetworks(annotation)
	if err != nil {
		o.mistakes = []string{oneLine(err)}
	}
	o.aim = aimOf(c.rules, networks, services.render, unmanaged)
	o.synced, err = m.sync(ctx, m.client, o.aim.desires, syncOptions{
		owes:   func(service string) bool { return owes(c.rules, service) },
		report: func(refused map[id]error) { early.refused(ctx, p.Name, o.aim, refused) },
	})
	if err != nil {
		m.read = time.Time{} // the Secrets may have changed
		if o.problem = problemOf(p.Name, err); o.problem.reason == Unreachable && ctx.Err() != nil && !errors.Is(err, errLarge) {
			o.problem = problem{Unfinished, fmt.Sprintf("pod %s: the CNF answers so slowly that %v were not enough: it is tried again (%v)", p.Name, r.o.podTimeout, err)}
		}
		return o
	}
	if !m.complete && len(o.synced.unsent) == 0 && len(o.synced.restarts) == 0 {
		m.complete = true
		r.fleet.newcomers.add(c.key, reasons{fresh: true})
	}
	if o.synced.unapplied {
		o.problem = problem{NotInKernel, fmt.Sprintf("pod %s: its kernel does not hold the configuration that the pod has: see the log of the pod", p.Name)}
	}
	return o
}
