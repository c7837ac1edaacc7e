package mesh

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	submarinerv1 "subctl/api/submariner/v1"
)

// maxWarnings is the maximum number of Warnings about annotations without effect, and of those
// about pods that wait for an address: users of namespaces decide how many there are.
const maxWarnings = 1000

// ownPods gives the pods that ask for it addresses of their own.
func (w *wanted) ownPods(s Snapshot, pods []*slimPod) {
	all := map[string]bool{}
	for _, n := range List[*corev1.Namespace](s) {
		all[n.Name] = asksForOwn(n)
		if asksOddly(n) && len(w.odd) < maxWarnings {
			w.odd = append(w.odd, n)
		}
	}
	for _, p := range pods {
		if p.odd && len(w.odd) < maxWarnings {
			w.odd = append(w.odd, podOf(p))
		}
		if p.own || all[p.GetNamespace()] {
			w.pod(p)
		}
	}
}

// waitingPods returns warnings about pods that wait for an address of their own, at most
// maxWarnings: users look at their pods, and not at what stands for them.
func (a *Addresses) waitingPods() (out []Warning) {
	for _, k := range a.wanted.ingress {
		p, is := k.owner.(*slimPod)
		if !is || k.at < 0 || a.ingress[k.at].missing == 0 {
			continue
		}
		if out = append(out, Warning{
			podOf(p),
			metav1.Condition{
				Type:    submarinerv1.ConditionAllocated,
				Reason:  submarinerv1.ReasonPoolExhausted,
				Message: poolExhausted(1),
			},
		}); len(out) == maxWarnings {
			break
		}
	}
	return out
}

// podOf returns what an Event about a pod names.
func podOf(p *slimPod) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.GetNamespace(), Name: p.name, UID: p.GetUID()}}
}

// pod gives a pod an address of its own, unless it has no address in the pod network. A pod that
// ends keeps the one it has: its connections may go on until then. pod reports whether the pod
// needs one, and returns what want does.
func (w *wanted) pod(p *slimPod) (number int32, same, needs bool) {
	switch {
	case p.none:
		return 0, false, false
	case p.ending:
		w.ending[types.NamespacedName{Namespace: p.GetNamespace(), Name: podIngress(p.name)}] = true
		return 0, false, false
	}
	number, same = w.want(want{owner: p, target: targetPod})
	return number, same, true
}
