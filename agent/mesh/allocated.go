package mesh

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/globalnet"
)

// allocated is an object that requests global addresses, and what it gets.
type allocated struct {
	kind    string
	object  Object
	count   int
	held    []string // its status
	conds   []metav1.Condition
	mistake string            // in the object; it gets no address
	reason  string            // of the mistake
	network bool              // the cluster has a global network
	selects *metav1.Condition // of a GlobalEgressIP; nil for none
	grant   globalnet.Grant
}

// readAllocated returns all objects that request addresses.
func readAllocated(s Snapshot, w wanted) []allocated {
	var out []allocated
	for _, o := range List[*submarinerv1.ClusterGlobalEgressIP](s) {
		a := allocated{kind: "ClusterGlobalEgressIP", object: o, count: o.Spec.Count(), held: o.Status.AllocatedIPs, conds: o.Status.Conditions}
		if !slices.Contains(w.egress, o.Name) {
			a.reason, a.mistake = submarinerv1.ReasonInvalidInstance, "no gateway uses it: use "+strings.Join(w.egress, ", ")
		}
		out = append(out, a)
	}
	egress := List[*submarinerv1.GlobalEgressIP](s)
	surplus := globalnet.Surplus(egress)
	for _, o := range egress {
		a := allocated{kind: "GlobalEgressIP", object: o, count: o.Spec.Count(), held: o.Status.AllocatedIPs, conds: o.Status.Conditions}
		if surplus[o] {
			a.reason, a.mistake = submarinerv1.ReasonInvalidInput, fmt.Sprintf("namespace %s has %d older GlobalEgressIPs, and no more get addresses: delete some", o.Namespace, globalnet.MaxOfNamespace)
		} else if o.Spec.PodSelector != nil {
			if _, err := globalnet.Selector(o.Spec.PodSelector); err != nil {
				a.reason, a.mistake = submarinerv1.ReasonInvalidInput, clip(fmt.Sprintf("podSelector is not valid: %v", err))
			}
		}
		out = append(out, a)
	}
	for _, o := range List[*submarinerv1.GlobalIngressIP](s) {
		a := allocated{kind: "GlobalIngressIP", object: o, count: 1, conds: o.Status.Conditions}
		if o.Status.AllocatedIP != "" {
			a.held = []string{o.Status.AllocatedIP}
		}
		if m := ingressMistake(o); m != "" {
			a.reason, a.mistake = submarinerv1.ReasonInvalidInput, m
		}
		out = append(out, a)
	}
	for i := range out {
		out[i].network = w.network.IsValid()
		if !out[i].network {
			out[i].reason, out[i].mistake = submarinerv1.ReasonInvalidInput, "this cluster has no global network: join it to a broker with globalnet"
		}
	}
	return out
}

// selectPods determines the conditions Selects, as if the addresses that are granted were in the statuses already: so each status is written once.
func (a *Addresses) selectPods(s Snapshot) {
	own := map[types.NamespacedName]bool{} // pods with addresses of their own, which take precedence
	var egress []*submarinerv1.GlobalEgressIP
	var shared []*submarinerv1.ClusterGlobalEgressIP
	of := map[*submarinerv1.GlobalEgressIP]*allocated{}
	for i := range a.allocated {
		x := &a.allocated[i]
		if len(x.grant.Addrs) == 0 {
			continue
		}
		switch o := x.object.(type) {
		case *submarinerv1.GlobalIngressIP:
			if o.Spec.Target == submarinerv1.TargetHeadlessServicePod {
				own[types.NamespacedName{Namespace: o.Namespace, Name: o.Spec.PodRef.Name}] = true
			}
		case *submarinerv1.ClusterGlobalEgressIP:
			granted := *o
			granted.Status.AllocatedIPs = x.addresses()
			shared = append(shared, &granted)
		case *submarinerv1.GlobalEgressIP:
			granted := *o
			granted.Status.AllocatedIPs = x.addresses()
			egress, of[&granted] = append(egress, &granted), x
		}
	}
	selections := globalnet.Select(egress, slices.DeleteFunc(slices.Clone(List[*corev1.Pod](s)), func(p *corev1.Pod) bool { return own[keyOf(p)] }))
	crowded := globalnet.Crowded(a.wanted.gateways, egress, shared)
	for o, is := range selections {
		of[o].selects = selects(o, is, crowded[o])
	}
}

// ingressMistake returns what a GlobalIngressIP lacks.
func ingressMistake(o *submarinerv1.GlobalIngressIP) string {
	switch o.Spec.Target {
	case submarinerv1.TargetHeadlessServicePod:
		if o.Spec.PodRef == nil || o.Spec.PodRef.Name == "" {
			return "the target HeadlessServicePod needs a podRef: name the pod"
		}
	case submarinerv1.TargetHeadlessServiceEndpoints:
		if a, err := netip.ParseAddr(o.Annotations[submarinerv1.HeadlessEndpointAnnotation]); err != nil || !a.Is4() {
			return "the target HeadlessServiceEndpoints needs the annotation " + submarinerv1.HeadlessEndpointAnnotation + ": the IPv4 address of the endpoint"
		}
	case submarinerv1.TargetClusterIPService:
		if o.Spec.ServiceRef == nil || o.Spec.ServiceRef.Name == "" {
			return "the target ClusterIPService needs a serviceRef: name the Service"
		}
	default:
		return fmt.Sprintf("target %q is unknown", o.Spec.Target)
	}
	return ""
}

func (a *allocated) name() string {
	if ns := a.object.GetNamespace(); ns != "" {
		return a.kind + " " + ns + "/" + a.object.GetName()
	}
	return a.kind + " " + a.object.GetName()
}

func (a *allocated) request() globalnet.Request {
	r := globalnet.Request{
		Name: a.name(), UID: string(a.object.GetUID()), Version: a.object.GetResourceVersion(),
		Since: a.object.GetCreationTimestamp().Time, Count: a.count,
	}
	if a.mistake != "" {
		r.Count = 0
	}
	for _, text := range a.held {
		addr, _ := netip.ParseAddr(text) // the zero Addr is not in the pool
		r.Held = append(r.Held, addr)
	}
	return r
}

// condition returns the condition Allocated.
func (a *allocated) condition() metav1.Condition {
	c := metav1.Condition{Type: submarinerv1.ConditionAllocated, Status: metav1.ConditionFalse, ObservedGeneration: a.object.GetGeneration()}
	switch {
	case a.mistake != "":
		c.Reason, c.Message = a.reason, a.mistake
	case a.count == 0:
		c.Reason, c.Message = submarinerv1.ReasonNothingRequested, "it requests no address"
		if a.kind == "ClusterGlobalEgressIP" {
			c.Message += ": pods without other addresses reach no other cluster"
		}
	case a.grant.Missing > 0:
		c.Reason = submarinerv1.ReasonPoolExhausted
		c.Message = fmt.Sprintf("the global network has no %s: it waits until others are deleted, or ask for a larger network with subctl join --globalnet-cluster-size", inARow(a.count))
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, submarinerv1.ReasonAllocated, "allocated "+addressRange(a.grant.Addrs)
	}
	return c
}

// selects returns the condition Selects of a GlobalEgressIP. Its message names no pods, which come and go.
func selects(o *submarinerv1.GlobalEgressIP, is globalnet.Selection, crowded int) *metav1.Condition {
	c := metav1.Condition{Type: submarinerv1.ConditionSelects, Status: metav1.ConditionFalse, ObservedGeneration: o.Generation}
	others := "GlobalEgressIP " + addressList(is.Before)
	switch {
	case len(is.Before) > 0 && is.Pods == 0:
		c.Reason, c.Message = submarinerv1.ReasonOthersFirst, "all pods that it selects have the addresses of "+others+" instead, which takes precedence"
	case is.Pods == 0:
		c.Reason, c.Message = submarinerv1.ReasonNoPods, "it selects no pods of namespace "+o.Namespace
	case crowded > 0:
		c.Reason = submarinerv1.ReasonNoRoom
		c.Message = fmt.Sprintf("%d of its %d addresses have no effect: each of several active gateways uses at most %d addresses, those of its ClusterGlobalEgressIP and of older GlobalEgressIPs first",
			crowded, len(o.Status.AllocatedIPs), globalnet.MaxReturned)
	case len(is.Before) > 0:
		c.Reason, c.Message = submarinerv1.ReasonOthersFirst, "of the pods that it selects, some have the addresses of "+others+" instead, which takes precedence"
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, submarinerv1.ReasonPodsSelected, "pods have its addresses as their source"
	}
	return &c
}

func inARow(n int) string {
	if n == 1 {
		return "free address"
	}
	return fmt.Sprintf("%d free addresses in a row", n)
}

func addressRange(of []netip.Addr) string {
	switch len(of) {
	case 0:
		return "no address"
	case 1:
		return of[0].String()
	}
	return of[0].String() + "-" + of[len(of)-1].String()
}

// addresses returns the granted addresses as statuses have them.
func (a *allocated) addresses() (texts []string) {
	for _, addr := range a.grant.Addrs {
		texts = append(texts, addr.String())
	}
	return texts
}

// status returns the object with its new status; nil if it has that already.
func (a *allocated) status(now time.Time) Object {
	conds := slices.Clone(a.conds)
	c := a.condition()
	c.LastTransitionTime = metav1.NewTime(now)
	meta.SetStatusCondition(&conds, c)
	if a.selects != nil {
		a.selects.LastTransitionTime = c.LastTransitionTime
		meta.SetStatusCondition(&conds, *a.selects)
	} else {
		meta.RemoveStatusCondition(&conds, submarinerv1.ConditionSelects)
	}
	addrs := a.addresses()
	if slices.Equal(addrs, a.held) && reflect.DeepEqual(conds, a.conds) {
		return nil
	}
	switch o := a.object.DeepCopyObject().(type) {
	case *submarinerv1.ClusterGlobalEgressIP:
		o.Status = submarinerv1.GlobalEgressIPStatus{Conditions: conds, AllocatedIPs: addrs}
		return o
	case *submarinerv1.GlobalEgressIP:
		o.Status = submarinerv1.GlobalEgressIPStatus{Conditions: conds, AllocatedIPs: addrs}
		return o
	case *submarinerv1.GlobalIngressIP:
		o.Status = submarinerv1.GlobalIngressIPStatus{Conditions: conds, AllocatedIP: strings.Join(addrs, "")}
		return o
	}
	return nil
}
