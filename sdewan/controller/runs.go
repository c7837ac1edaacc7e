package controller

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"subctl/internal/wake"
)

// Each pod of a CNF is synced on its own. A pod that answers slowly, or not at all, keeps no change from the others: its sync goes on while the next
// attempt works on them, and an attempt after its end reports what it came to. At most one sync of a pod runs.

const (
	// together is how long a change waits for pods that are only a little slower than the others: so a burst of changes is one attempt.
	together = 500 * time.Millisecond
	// lateAfter is the time after which an attempt ends without a pod that has not finished, counted from the last one that has. It is longer than pods
	// of one CNF usually differ: what is then said about the pod is a write of the status of each rule that it may lack.
	lateAfter = 5 * time.Second
)

// runs are the syncs of all pods.
type runs struct {
	slots   *shares // of CNFs that are worked on
	enqueue func(cnf types.NamespacedName)

	mu     sync.Mutex
	group  sync.WaitGroup
	closed bool
	cnfs   map[types.NamespacedName]*work
}

// work is what goes on for one CNF.
type work struct {
	changes, podChanges int  // so far
	seen, podSeen       int  // the same, when the last attempt began
	attended            bool // an attempt will see the ends of syncs
	holds               bool // a slot
	pods                map[types.UID]*run
	atOnce              chan struct{} // slots of syncs
	failed              chan struct{} // slots of syncs of pods whose last one has failed, which need one of atOnce, too
	signal              wake.Signal   // of changes, and of ends of syncs
}

// run is the sync of a pod, or what is left of the last one.
type run struct {
	incarnation string
	cancel      context.CancelFunc
	busy        bool
	waits       bool      // for a slot
	began       time.Time // or, while it waits, began to wait
	ended       time.Time
	seen        int      // work.seen when it began
	news        *outcome // that no attempt has taken yet
	last        problem  // with the pod, at the end of the last sync
	failed      bool     // whether the last sync has failed, or had no time for all changes
}

// state is what an attempt knows of a pod.
type state struct {
	outcome         // the zero value for a pod that is not ready, or late
	late    bool    // its sync has not ended
	waits   bool    // nor begun
	long    bool    // for lateAfter at least
	last    problem // with a pod that is late, when it was synced last
}

func newRuns(slots *shares) *runs {
	return &runs{slots: slots, enqueue: func(types.NamespacedName) {}, cnfs: map[types.NamespacedName]*work{}}
}

// changed tells that there may be something to do for a CNF: at once, if it is about a pod, as that one may be new.
func (r *runs) changed(cnf types.NamespacedName, aboutPod bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.cnfs[cnf]
	if w == nil {
		return // no attempt is waiting
	}
	w.changes++
	if aboutPod {
		w.podChanges++
	}
	w.signal.Send()
}

// begin begins an attempt, before it reads what there is to do. It is false if the namespace of the CNF has no slot left. A CNF has its slot until all of its syncs
// have ended.
func (r *runs) begin(cnf types.NamespacedName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.cnfs[cnf]
	if w == nil {
		w = &work{pods: map[types.UID]*run{}, atOnce: make(chan struct{}, podsAtOnce), failed: make(chan struct{}, failedAtOnce), signal: wake.NewSignal()}
	}
	if !w.holds && !r.slots.try(cnf.Namespace) {
		return false
	}
	r.cnfs[cnf] = w
	w.holds, w.attended, w.seen, w.podSeen = true, true, w.changes, w.podChanges
	return true
}

// end ends an attempt.
func (r *runs) end(cnf types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.cnfs[cnf]
	w.attended = false
	for _, p := range w.pods {
		if p.busy {
			return
		}
	}
	w.holds = false
	r.slots.give(cnf.Namespace)
	if len(w.pods) == 0 {
		delete(r.cnfs, cnf)
	}
}

// keep cancels the syncs of all pods of a CNF but these, and those of containers that have ended.
func (r *runs) keep(cnf types.NamespacedName, pods []*corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.cnfs[cnf]
	for uid, p := range w.pods {
		if slices.ContainsFunc(pods, func(o *corev1.Pod) bool { return o.UID == uid && incarnation(o) == p.incarnation }) {
			continue
		}
		if p.cancel(); !p.busy {
			delete(w.pods, uid)
		}
	}
}

// start begins a sync of a pod, unless one is running, or an attempt is still to take what the last one came to: see take.
func (r *runs) start(ctx context.Context, cnf types.NamespacedName, pod *corev1.Pod, do func(context.Context) outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	w := r.cnfs[cnf]
	p := w.pods[pod.UID]
	if p == nil {
		p = &run{incarnation: incarnation(pod)}
		w.pods[pod.UID] = p
	}
	if p.busy || p.news != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // it may outlive the attempt: see close
	p.cancel, p.busy, p.waits, p.began, p.seen, p.news = cancel, true, true, time.Now(), w.seen, nil
	slots := []chan struct{}{w.atOnce}
	if p.failed {
		slots = []chan struct{}{w.failed, w.atOnce}
	}
	r.group.Go(func() {
		defer cancel()
		o := r.inTurn(ctx, slots, p, do)
		again := r.ended(ctx, w, pod.UID, o)
		w.signal.Send()
		if again {
			r.enqueue(cnf)
		}
	})
}

// inTurn takes slots for a sync, and does it then.
func (r *runs) inTurn(ctx context.Context, slots []chan struct{}, p *run, do func(context.Context) outcome) outcome {
	for _, s := range slots {
		select {
		case s <- struct{}{}:
			defer func() { <-s }()
		case <-ctx.Done():
			return outcome{} // is discarded: see ended
		}
	}
	r.mu.Lock()
	p.waits, p.began = false, time.Now()
	r.mu.Unlock()
	return do(ctx)
}

// ended records the end of a sync, and reports whether another attempt must follow: because none is waiting, or the sync was cancelled.
func (r *runs) ended(ctx context.Context, w *work, pod types.UID, o outcome) (again bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, cancelled := w.pods[pod], ctx.Err() != nil // under the lock: keep cancels what it sees running
	p.busy, p.waits, p.ended, p.news = false, false, time.Now(), &o
	p.failed = o.problem.reason != "" || len(o.synced.unsent) > 0
	if cancelled {
		delete(w.pods, pod)
	}
	return cancelled || !w.attended
}

// wait waits for the syncs of pods, or until it is better to end the attempt and begin the next one: see attend. Then it returns what is known of each pod.
func (r *runs) wait(ctx context.Context, cnf types.NamespacedName, pods []*corev1.Pod) []state {
	began := time.Now()
	for {
		r.mu.Lock()
		w := r.cnfs[cnf]
		pause := w.attend(pods, began)
		if pause <= 0 || ctx.Err() != nil {
			states, again := w.take(pods)
			r.mu.Unlock()
			if again {
				r.enqueue(cnf)
			}
			return states
		}
		r.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-w.signal:
		case <-time.After(pause):
		}
	}
}

// attend returns for how long an attempt that has begun at a time should wait for syncs; 0 or less if it should not.
func (w *work) attend(pods []*corev1.Pod, began time.Time) time.Duration {
	busy, free, changed := false, false, w.changes != w.seen
	since := began // or the last end of a sync
	for _, pod := range pods {
		p := w.pods[pod.UID]
		if p == nil || !isReady(pod) {
			continue
		}
		busy, free, changed = busy || p.busy, free || !p.busy, changed || w.outdated(p)
		if !p.busy && p.ended.After(since) {
			since = p.ended
		}
	}
	switch {
	case !busy:
		return 0
	case w.podChanges != w.podSeen, free && changed:
		return together - time.Since(since)
	case free:
		return lateAfter - time.Since(since)
	}
	return time.Hour // the signal comes earlier
}

// outdated reports whether a sync has ended that lacks a change. One that has failed does not count: back-off decides when it is tried again.
func (w *work) outdated(p *run) bool {
	return p.news != nil && p.seen != w.seen && p.news.problem.reason == ""
}

// take returns what is known of pods, and whether another attempt must follow, because a pod lacks a change. What ends from now on is for the next attempt.
func (w *work) take(pods []*corev1.Pod) (states []state, again bool) {
	w.attended = false
	states = make([]state, len(pods))
	for i, pod := range pods {
		p, s := w.pods[pod.UID], &states[i]
		switch {
		case !isReady(pod):
			if p != nil {
				p.news = nil // it is synced anew when it is ready
			}
		case p == nil: // it was cancelled: the next attempt follows
			s.late = true
		case p.busy:
			s.late, s.waits, s.long, s.last = true, p.waits, time.Since(p.began) >= lateAfter, p.last
		case p.news == nil: // the controller ends
			s.late = true
		default:
			again = again || w.outdated(p)
			s.outcome, p.last, p.news = *p.news, p.news.problem, nil
		}
	}
	return states, again
}

// close cancels all syncs, and waits until they have ended.
func (r *runs) close() {
	r.mu.Lock()
	r.closed = true
	for _, w := range r.cnfs {
		for _, p := range w.pods {
			p.cancel()
		}
	}
	r.mu.Unlock()
	r.group.Wait()
}
