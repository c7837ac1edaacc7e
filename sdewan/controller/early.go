package controller

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/sdewan"
)

// A sync of a CNF that answers slowly takes minutes. What the CNF has refused, and will not accept in this sync, is in the statuses of rules before that:
// this often.
const reportEvery = time.Second

// early reports on rules during a sync.
type early struct {
	*reconciler
	limit func(rule, problem) problem // returns what a status is to say: see held

	mu    sync.Mutex
	rules []rule // as their statuses are now
	index map[types.UID]int
	over  bool // the attempt has ended without the pod
}

func (r *reconciler) early(rules []rule, limit func(rule, problem) problem) *early {
	e := &early{reconciler: r, limit: limit, rules: append([]rule(nil), rules...), index: make(map[types.UID]int, len(rules))}
	for i, x := range rules {
		e.index[x.GetUID()] = i
	}
	return e
}

// refused reports that a pod has refused objects. What cannot be written is written after the sync.
func (e *early) refused(ctx context.Context, pod string, a aim, refused map[id]error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var rules []rule
	verdicts := map[types.UID]verdict{}
	for _, x := range e.rules {
		if refused[id{x.kind.Collection, x.GetName()}] == nil {
			continue
		}
		p := a.on(x, synced{refused: refused})
		if p.reason != Rejected {
			continue
		}
		if e.over && !e.renew(ctx, &x) {
			continue
		}
		verdicts[x.GetUID()] = verdict{problem: e.limit(x, problem{p.reason, onPod(pod, p)})}
		rules = append(rules, rule{x.DeepCopyObject().(sdewan.Rule), x.kind}) // others read x
	}
	_ = e.report(ctx, rules, func(x rule) verdict { return verdicts[x.GetUID()] })
	for _, x := range rules {
		e.rules[e.index[x.GetUID()]] = x
	}
}

// renew reads a rule again, and reports whether it has not changed, and is still one of the CNF: other attempts may have followed the one that the report is
// about.
func (e *early) renew(ctx context.Context, x *rule) bool {
	now := x.kind.New()
	if e.client.Get(ctx, client.ObjectKeyFromObject(x.Rule), now) != nil || now.GetUID() != x.GetUID() || now.GetGeneration() != x.GetGeneration() || moved(*x, now) {
		return false
	}
	x.Rule = now
	return true
}

// end returns the rules with the statuses that they have now. If the sync of a pod goes on, which reads them, they are copies.
func (e *early) end(late bool) []rule {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	out := slices.Clone(e.rules)
	if late {
		for i, x := range out {
			out[i].Rule = x.DeepCopyObject().(sdewan.Rule)
		}
	}
	return out
}
