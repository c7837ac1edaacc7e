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

// podsAtOnce is the number of pods of a CNF that are synced at the same time. Of these, at most failedAtOnce are pods whose last sync has failed: however many pods
// do not answer, the others wait for them only once, for podTimeout for each podsAtOnce of them. A pod whose last sync has failed waits for the others that have failed.
const (
	podsAtOnce   = 16
	failedAtOnce = podsAtOnce / 2
)

// outcome is the result of syncing one pod.
type outcome struct {
	aim      aim
	synced   synced
	problem  problem  // with the pod
	mistakes []string // in its annotations
}

// syncPods syncs all pods that are ready, at the same time.
func (r *reconciler) syncPods(ctx context.Context, c cnf) attempt {
	r.keep(c.key, c.pods)
	unmanaged, mistakes := c.unmanaged()
	services := r.names.of(ctx, c.rules)
	mayTell := sync.OnceValue(func() bool { return r.mayTell(c.key) })
	early := r.early(c.rules, func(x rule, p problem) problem { return r.held(x, p, mayTell) })
	for _, p := range c.pods {
		if isReady(p) {
			r.runs.start(ctx, c.key, p, func(ctx context.Context) outcome { return r.syncPod(ctx, c, p, services, unmanaged, early) })
		}
	}
	j := judgement{cnf: c, services: services, states: r.runs.wait(ctx, c.key, c.pods)}
	j.rules = early.end(j.late())
	if !j.late() {
		for _, s := range j.states {
			mistakes = append(mistakes, s.mistakes...)
		}
		r.note(c, mistakes)
	}
	return r.judge(j, mayTell)
}

// keep forgets all pods of a CNF but these.
func (r *reconciler) keep(cnf types.NamespacedName, pods []*corev1.Pod) {
	r.runs.keep(cnf, pods)
	r.fleet.keep(cnf, pods)
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
	aim, desires := aimOf(c.rules, networks, services, unmanaged)
	o.aim = aim
	o.synced, err = m.sync(ctx, m.client, desires, syncOptions{
		owes:   func(service string) bool { return owes(c.rules, service) },
		report: func(refused map[id]error) { early.refused(ctx, p.Name, aim, refused) },
	})
	if err != nil {
		r.fleet.distrust(m, p)
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
