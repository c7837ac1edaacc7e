package allocator

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/globalnet"
)

// selectPods determines the conditions Selects, as if the addresses that are granted were in the
// statuses already: so each status is written once.
func (a *Addresses) selectPods(s role.Snapshot) {
	var egress []*submarinerv1.GlobalEgressIP
	var shared []*submarinerv1.ClusterGlobalEgressIP
	of := map[*submarinerv1.GlobalEgressIP]*allocated{}
	for i := range a.egress {
		x := &a.egress[i]
		if len(x.addrs) == 0 {
			continue
		}
		switch o := x.object.(type) {
		case *submarinerv1.ClusterGlobalEgressIP:
			granted := *o
			granted.Status.AllocatedIPs = x.addresses()
			shared = append(shared, &granted)
		case *submarinerv1.GlobalEgressIP:
			granted := *o
			granted.Status.AllocatedIPs = x.addresses()
			egress = append(egress, &granted)
			of[&granted] = x
		}
	}
	if len(egress) == 0 {
		return
	}
	pods := role.List[*corev1.Pod](s)
	own := map[*corev1.Pod]bool{}
	for i := range a.ingress { // pods with addresses of their own take precedence
		if name, is := targetPod(a.wanted.have[i]); is && len(a.ingress[i].addrs) > 0 {
			own[find(pods, a.wanted.have[i].GetNamespace(), name)] = true
		}
	}
	selections := globalnet.Select(egress, podsOf(slices.DeleteFunc(pods, func(p *corev1.Pod) bool { return own[p] })))
	crowded := globalnet.Crowded(a.wanted.gateways, egress, shared)
	for o, is := range selections {
		of[o].selects = a.wanted.selects(o, is, crowded[o])
	}
}

// selects returns the condition Selects of a GlobalEgressIP. Its message names no pods, which come
// and go. Replies to an address must return through the gateway that has translated: so no two
// gateways use the same, and a gateway without one uses those of its ClusterGlobalEgressIP.
func (w *needed) selects(o *submarinerv1.GlobalEgressIP, is globalnet.Selection, crowded int) *metav1.Condition {
	c := metav1.Condition{
		Type:               submarinerv1.ConditionSelects,
		Status:             metav1.ConditionFalse,
		ObservedGeneration: o.Generation,
	}
	others := "GlobalEgressIP " + addressList(is.Before)
	switch {
	case len(is.Before) > 0 && is.Pods == 0:
		c.Reason = submarinerv1.ReasonOthersFirst
		c.Message = "all pods that it selects have the addresses of " + others + " instead, which takes precedence"
	case is.Pods == 0:
		c.Reason = submarinerv1.ReasonNoPods
		c.Message = "it selects no pods of namespace " + o.Namespace
	case crowded > 0:
		c.Reason = submarinerv1.ReasonNoRoom
		c.Message = fmt.Sprintf(
			"%d of its %d addresses have no effect: each of several active gateways uses at most %d addresses, those of its ClusterGlobalEgressIP and of older GlobalEgressIPs first",
			crowded, len(o.Status.AllocatedIPs), submarinerv1.MaxAllocatedIPs)
	case len(o.Status.AllocatedIPs) < len(w.gateways):
		c.Reason = submarinerv1.ReasonFewAddresses
		c.Message = fmt.Sprintf("it has %d of the %d addresses that its gateways need to use one each: through the "+
			"others, pods have those of the gateway's ClusterGlobalEgressIP as their source; set spec.numberOfIPs to "+
			"%[2]d at least",
			len(o.Status.AllocatedIPs), len(w.gateways))
	case len(is.Before) > 0:
		c.Reason = submarinerv1.ReasonOthersFirst
		c.Message = "of the pods that it selects, some have the addresses of " + others +
			" instead, which takes precedence"
	default:
		c.Status = metav1.ConditionTrue
		c.Reason = submarinerv1.ReasonPodsSelected
		c.Message = "pods have its addresses as their source"
		if w.standbys {
			c.Message += ", except in what leaves through a standby gateway: packets of pods on its node, and of all " +
				"while it takes over, have those of its ClusterGlobalEgressIP"
		}
	}
	return &c
}
