package controller

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// lateAfter is the time after which a rule that a pod lacks is reported as Unfinished. It is longer
// than pods of one CNF usually differ: the report is a write of the status of each such rule.
const lateAfter = 5 * time.Second

// podKey names a pod of a CNF.
type podKey struct {
	cnf types.NamespacedName // namespace, and value of the label sdewanPurpose
	pod string
}

// syncs records what syncs of pods came to: the controller of pods writes, and the controller of
// CNFs reads. All of it can be lost.
type syncs struct {
	now     func() time.Time
	changed func(cnf types.NamespacedName) // is called when there is something to report

	mu   sync.Mutex
	pods map[types.NamespacedName]map[string]*podSync // by CNF and name of the pod
}

// podSync is what is known of a pod, as long as its containers run.
type podSync struct {
	incarnation string
	cancel      context.CancelFunc // ends the running sync; nil if there is none
	revision    revision           // of the running sync
	partial     *outcome           // of the running sync: what the pod has refused for good
	last        *outcome           // of the last sync that ended; nil if there is none
	lateSince   time.Time          // since when the pod lacks a change that another pod has; zero if it lacks none
	count       int                // of syncs that have ended
	written     map[id]int         // the objects that the pod was given, and no report has told: by which sync
}

// state is what a report says about a pod.
type state struct {
	ready   bool
	running bool          // a sync of the pod is running
	due     bool          // another sync must follow
	last    *outcome      // of the last sync that ended; nil if there is none
	partial *outcome      // of the running sync; nil if nothing is known of it
	behind  bool          // the last sync did not consider the configuration as it is
	late    bool          // and another pod has been ahead for lateAfter
	lateIn  time.Duration // after which it is late, if nothing changes; 0 if it is not known
	count   int           // of syncs that have ended
	written map[id]int    // the objects that the pod was given, and no report has told
}

func newSyncs(now func() time.Time) *syncs {
	return &syncs{
		now:     now,
		changed: func(types.NamespacedName) {},
		pods:    map[types.NamespacedName]map[string]*podSync{},
	}
}

// begin begins a sync of a pod with a revision. Its context ends when the pod does. The caller
// calls end.
func (s *syncs) begin(ctx context.Context, key podKey, pod *corev1.Pod, r revision) (context.Context, *podSync) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.of(key.cnf, pod)
	ctx, p.cancel = context.WithCancel(ctx)
	p.revision = r
	return ctx, p
}

// of returns the record of a pod.
func (s *syncs) of(cnf types.NamespacedName, pod *corev1.Pod) *podSync {
	pods := s.pods[cnf]
	if pods == nil {
		pods = map[string]*podSync{}
		s.pods[cnf] = pods
	}
	p := pods[pod.Name]
	if p == nil || p.incarnation != incarnation(pod) {
		if p != nil && p.cancel != nil {
			p.cancel()
		}
		p = &podSync{incarnation: incarnation(pod), written: map[id]int{}}
		pods[pod.Name] = p
	}
	return p
}

// refused records what a pod has refused for good, while its sync goes on.
func (s *syncs) refused(key podKey, p *podSync, a aim, refused map[id]error) {
	s.mu.Lock()
	all := maps.Clone(refused)
	if p.partial != nil {
		maps.Copy(all, p.partial.synced.refused)
	}
	p.partial = &outcome{aim: a, synced: synced{refused: all}}
	s.mu.Unlock()
	s.changed(key.cnf)
}

// end ends a sync. What a sync that was cancelled came to is no news.
func (s *syncs) end(ctx context.Context, key podKey, p *podSync, o outcome) {
	s.mu.Lock()
	if ctx.Err() == nil {
		p.count++
		for key := range o.synced.written {
			p.written[key] = p.count
		}
		p.last = s.slim(key.cnf, &o)
	}
	p.cancel()
	p.cancel = nil
	p.partial = nil
	s.mu.Unlock()
	s.changed(key.cnf)
}

// slim returns an outcome as it is kept: a CNF may have many pods, and many rules. Pods with the
// same revision share what became of the rules.
func (s *syncs) slim(cnf types.NamespacedName, o *outcome) *outcome {
	for _, other := range s.pods[cnf] {
		last := other.last
		if last == nil || last.revision != o.revision || last.aim.versions == nil || o.aim.versions == nil {
			continue
		}
		o.aim = last.aim
		break
	}
	if len(o.synced.waiting) == 0 {
		o.synced.written = nil // is not asked for any more
	}
	return o
}

// keep forgets all pods of a CNF except these, and cancels their syncs.
func (s *syncs) keep(cnf types.NamespacedName, pods []*corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, p := range s.pods[cnf] {
		isSame := func(o *corev1.Pod) bool { return o.Name == name && incarnation(o) == p.incarnation }
		if slices.ContainsFunc(pods, isSame) {
			continue
		}
		if p.cancel != nil {
			p.cancel()
		}
		delete(s.pods[cnf], name)
	}
	if len(s.pods[cnf]) == 0 {
		delete(s.pods, cnf)
	}
}

// states returns the state of each pod of a CNF, for the revision that each pod should have. A pod
// that is not ready is synced anew when it is.
func (s *syncs) states(cnf types.NamespacedName, pods []*corev1.Pod, revisionOf func(*corev1.Pod) revision) []state {
	s.mu.Lock()
	defer s.mu.Unlock()
	states := make([]state, len(pods))
	ahead := false // a pod has the configuration as it is
	for i, pod := range pods {
		p := s.of(cnf, pod)
		if !isReady(pod) {
			p.last = nil
			continue
		}
		r := revisionOf(pod)
		running := p.cancel != nil
		behind := p.last == nil || p.last.revision != r
		due := behind && !(running && p.revision == r)
		states[i] = state{
			ready: true, running: running, due: due, last: p.last, partial: p.partial, behind: behind,
			count: p.count, written: maps.Clone(p.written),
		}
		ahead = ahead || !behind
	}
	now := s.now()
	for i, pod := range pods {
		p := s.of(cnf, pod)
		st := &states[i]
		switch {
		case !st.behind:
			p.lateSince = time.Time{}
			continue
		case p.lateSince.IsZero() && ahead:
			p.lateSince = now
		case p.lateSince.IsZero():
			continue
		}
		st.lateIn = max(0, lateAfter-now.Sub(p.lateSince))
		st.late = st.lateIn == 0
	}
	return states
}

// reported records that a report of these states has told what became of rules.
func (s *syncs) reported(cnf types.NamespacedName, pods []*corev1.Pod, states []state, rules []rule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, st := range states {
		p := s.pods[cnf][pods[i].Name]
		if p == nil || p.incarnation != incarnation(pods[i]) {
			continue
		}
		for _, x := range rules {
			if key := (id{x.kind.Collection, x.GetName()}); p.written[key] <= st.count {
				delete(p.written, key)
			}
		}
	}
}

// hasFailed reports whether the last sync of a pod failed, or had no time for all changes.
func (s *syncs) hasFailed(key podKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pods[key.cnf][key.pod]
	return p != nil && p.last != nil && (p.last.problem.reason != "" || len(p.last.synced.unsent) > 0)
}
