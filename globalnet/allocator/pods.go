package allocator

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/globalnet"
)

// maxWarnings is the maximum number of Warnings about annotations without effect, and of those
// about pods that wait for an address: users of namespaces decide how many there are.
const maxWarnings = 1000

// ownPods gives the pods that ask for it addresses of their own.
func (w *needed) ownPods(s role.Snapshot, pods []*corev1.Pod) {
	all := map[string]bool{}
	for _, n := range role.List[*corev1.Namespace](s) {
		all[n.Name] = asksForOwn(n)
		if asksOddly(n) && len(w.odd) < maxWarnings {
			w.odd = append(w.odd, n)
		}
	}
	for _, p := range pods {
		if asksOddly(p) && len(w.odd) < maxWarnings {
			w.odd = append(w.odd, podOf(p))
		}
		if asksForOwn(p) || all[p.GetNamespace()] {
			w.pod(p)
		}
	}
}

// waitingPods returns warnings about pods that wait for an address of their own, at most
// maxWarnings: users look at their pods, and not at what stands for them.
func (a *Addresses) waitingPods() (out []role.Warning) {
	for _, k := range a.wanted.ingress {
		p, is := k.owner.(*corev1.Pod)
		if !is || k.at < 0 || a.ingress[k.at].missing == 0 {
			continue
		}
		if out = append(out, role.Warning{
			About: podOf(p),
			Condition: metav1.Condition{
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
func podOf(p *corev1.Pod) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.GetNamespace(), Name: p.Name, UID: p.UID}}
}

// pod gives a pod an address of its own, unless it has no address in the pod network. A pod that
// ends keeps the one it has: its connections may go on until then. pod reports whether the pod
// needs one, and returns what want does.
func (w *needed) pod(p *corev1.Pod) (number int32, same, needs bool) {
	switch {
	case hasNoAddress(p):
		return 0, false, false
	case p.DeletionTimestamp != nil:
		w.ending[types.NamespacedName{Namespace: p.GetNamespace(), Name: podIngress(p.Name)}] = true
		return 0, false, false
	}
	number, same = w.require(ingress{owner: p, target: submarinerv1.TargetHeadlessServicePod})
	return number, same, true
}

// hasNoAddress reports whether a pod can have no global address of its own: it uses the address of
// its node, has ended, or has no IPv4 address.
func hasNoAddress(p *corev1.Pod) bool {
	return p.Spec.HostNetwork || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed ||
		p.Status.PodIP != "" && !globalnet.PodIP(p).IsValid()
}

// asksForOwn reports whether a pod or a namespace asks for addresses of pods' own.
func asksForOwn(o role.Object) bool {
	return o.GetAnnotations()[submarinerv1.OwnGlobalIPAnnotation] == submarinerv1.OwnGlobalIP
}

// asksOddly reports whether a pod or a namespace has the annotation for that with a value that has
// no effect.
func asksOddly(o role.Object) bool {
	value, has := o.GetAnnotations()[submarinerv1.OwnGlobalIPAnnotation]
	return has && value != submarinerv1.OwnGlobalIP
}

// pod implements globalnet.Pod.
type pod struct{ *corev1.Pod }

func podsOf(all []*corev1.Pod) []pod {
	out := make([]pod, len(all))
	for i, p := range all {
		out[i] = pod{p}
	}
	return out
}

// Created implements globalnet.Pod.
func (p pod) Created() int64 { return p.CreationTimestamp.Unix() }

// IP implements globalnet.Pod.
func (p pod) IP() netip.Addr { return globalnet.PodIP(p.Pod) }

// LabelSet implements globalnet.Pod.
func (p pod) LabelSet() labels.Labels { return labels.Set(p.Labels) }
