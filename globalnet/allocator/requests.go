package allocator

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/globalnet"
)

// allocated is an object that requests global addresses, and what it gets.
type allocated struct {
	object  role.Object
	mistake *mistake          // it gets no address; nil if there is none
	selects *metav1.Condition // of a GlobalEgressIP; nil for none
	addrs   []netip.Addr      // that are granted
	missing int               // how many it waits for
	// of a ClusterGlobalEgressIP that the agent has made: all traffic uses it, and it requests
	// fewer addresses than usual
	few bool
}

// mistake is a mistake in an object.
type mistake struct{ reason, message string }

// invalid returns the mistake with a message; nil if that is empty.
func invalid(message string) *mistake {
	if message == "" {
		return nil
	}
	return &mistake{submarinerv1.ReasonInvalidInput, message}
}

// readAllocated returns all objects that request addresses: egress, and GlobalIngressIPs in the
// order of the list of the snapshot.
func readAllocated(s role.Snapshot, w *needed) (egress, ingress []allocated) {
	for _, o := range role.List[*submarinerv1.ClusterGlobalEgressIP](s) {
		a := allocated{
			object: o,
			few: role.IsOurs(o) && (w.several || o.Name == submarinerv1.ClusterEgress) &&
				o.Spec.Count() < submarinerv1.DefaultClusterEgressIPs,
		}
		if !slices.Contains(w.egress, o.Name) {
			a.mistake = &mistake{
				submarinerv1.ReasonInvalidInstance,
				"no gateway uses it: use " + strings.Join(w.egress, ", "),
			}
		}
		egress = append(egress, a)
	}
	all := role.List[*submarinerv1.GlobalEgressIP](s)
	surplus := globalnet.Surplus(all)
	for _, o := range all {
		a := allocated{object: o}
		if surplus[o] {
			a.mistake = invalid(
				fmt.Sprintf("namespace %s has %d older GlobalEgressIPs, and no more get addresses: delete some",
					o.Namespace, globalnet.MaxOfNamespace),
			)
		} else if o.Spec.PodSelector != nil {
			if _, err := globalnet.Selector(o.Spec.PodSelector); err != nil {
				a.mistake = invalid(role.Clip(fmt.Sprintf("podSelector is not valid: %v", err)))
			}
		}
		egress = append(egress, a)
	}
	ingress = make([]allocated, len(w.have))
	for i, o := range w.have {
		ingress[i] = allocated{object: o, mistake: invalid(ingressMistake(o))}
	}
	if !w.network.IsValid() {
		none := invalid("this cluster has no global network: join it to a broker with globalnet")
		for _, list := range [][]allocated{egress, ingress} {
			for i := range list {
				list[i].mistake = none
			}
		}
	}
	return egress, ingress
}

// kind returns the kind of the object.
func (a *allocated) kind() string {
	switch a.object.(type) {
	case *submarinerv1.ClusterGlobalEgressIP:
		return "ClusterGlobalEgressIP"
	case *submarinerv1.GlobalEgressIP:
		return "GlobalEgressIP"
	}
	return "GlobalIngressIP"
}

// count returns how many addresses the object requests, if it has no mistake.
func (a *allocated) count() int {
	switch o := a.object.(type) {
	case *submarinerv1.ClusterGlobalEgressIP:
		return o.Spec.Count()
	case *submarinerv1.GlobalEgressIP:
		return o.Spec.Count()
	}
	return 1
}

// held appends the addresses in the status of the object. Text that is no address is the zero Addr,
// which is not in the pool.
func (a *allocated) held(to []netip.Addr) []netip.Addr {
	var texts []string
	switch o := a.object.(type) {
	case *submarinerv1.GlobalIngressIP:
		if text := o.Status.AllocatedIP; text != "" {
			to = append(to, parseIPv4(text))
		}
	case *submarinerv1.ClusterGlobalEgressIP:
		texts = o.Status.AllocatedIPs
	case *submarinerv1.GlobalEgressIP:
		texts = o.Status.AllocatedIPs
	}
	for _, text := range texts {
		addr, _ := netip.ParseAddr(text)
		to = append(to, addr)
	}
	return to
}

// request returns the request of the object, which holds addresses.
func (a *allocated) request(held []netip.Addr) globalnet.Request {
	o := a.object
	r := globalnet.Request{
		Kind:      a.kind(),
		Namespace: o.GetNamespace(),
		Name:      o.GetName(),
		UID:       string(o.GetUID()),
		Version:   o.GetResourceVersion(),
		Since:     o.GetCreationTimestamp().Time,
		Count:     a.count(),
		Held:      held,
	}
	if a.mistake != nil {
		r.Count = 0
	}
	return r
}

// condition returns the condition Allocated.
func (a *allocated) condition() metav1.Condition {
	c := metav1.Condition{
		Type:               submarinerv1.ConditionAllocated,
		Status:             metav1.ConditionFalse,
		ObservedGeneration: a.object.GetGeneration(),
	}
	switch {
	case a.mistake != nil:
		c.Reason = a.mistake.reason
		c.Message = a.mistake.message
	case a.count() == 0:
		c.Reason = submarinerv1.ReasonNothingRequested
		c.Message = "it requests no address"
		if a.kind() == "ClusterGlobalEgressIP" {
			c.Message += ": pods without other addresses reach no other cluster"
		}
	case a.missing > 0:
		c.Reason = submarinerv1.ReasonPoolExhausted
		c.Message = poolExhausted(a.count())
	default:
		generation := c.ObservedGeneration
		c = allocatedTrue(addressRange(a.addrs))
		c.ObservedGeneration = generation
		if a.few {
			c.Message += fmt.Sprintf(", fewer than the usual %d: spec.numGlobalIPs requests more",
				submarinerv1.DefaultClusterEgressIPs)
		}
	}
	return c
}

// allocatedMessage is the start of the message of the condition Allocated.
const allocatedMessage = "allocated "

// allocatedTrue returns the condition Allocated of an object that has the addresses that it
// requests.
func allocatedTrue(addresses string) metav1.Condition {
	return metav1.Condition{
		Type:    submarinerv1.ConditionAllocated,
		Status:  metav1.ConditionTrue,
		Reason:  submarinerv1.ReasonAllocated,
		Message: allocatedMessage + addresses,
	}
}

// isAllocated reports whether the only condition of a GlobalIngressIP is the one that allocatedTrue
// returns for the address in its status. It makes no text: there may be many thousands of objects.
func isAllocated(o *submarinerv1.GlobalIngressIP) bool {
	cs := o.Status.Conditions
	if len(cs) != 1 {
		return false
	}
	c := cs[0]
	addr, is := strings.CutPrefix(c.Message, allocatedMessage)
	c.Message = allocatedMessage
	c.LastTransitionTime = metav1.Time{}
	want := allocatedTrue("")
	want.ObservedGeneration = o.Generation
	return is && addr == o.Status.AllocatedIP && c == want
}

// poolExhausted returns what is missing to allocate n addresses, and the remedy.
func poolExhausted(n int) string {
	return fmt.Sprintf(
		"the global network has no %s: it waits until others are deleted, or ask for a larger network with subctl join --globalnet-cluster-size",
		inARow(n))
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
	for _, addr := range a.addrs {
		texts = append(texts, addr.String())
	}
	return texts
}

// statusWrite is an object whose status changes.
type statusWrite struct{ *allocated }

// GetNamespace implements pendingWrite.
func (a statusWrite) GetNamespace() string { return a.object.GetNamespace() }

// build implements pendingWrite.
func (a statusWrite) build(now time.Time) role.Object {
	conds, _ := a.conditions(now)
	switch o := a.object.DeepCopyObject().(type) {
	case *submarinerv1.ClusterGlobalEgressIP:
		o.Status = submarinerv1.GlobalEgressIPStatus{Conditions: conds, AllocatedIPs: a.addresses()}
		return o
	case *submarinerv1.GlobalEgressIP:
		o.Status = submarinerv1.GlobalEgressIPStatus{Conditions: conds, AllocatedIPs: a.addresses()}
		return o
	case *submarinerv1.GlobalIngressIP:
		o.Status = submarinerv1.GlobalIngressIPStatus{Conditions: conds, AllocatedIP: strings.Join(a.addresses(), "")}
		return o
	}
	return nil
}

// changed reports whether the object does not have its new status.
func (a *allocated) changed(now time.Time) bool {
	var held []string
	switch o := a.object.(type) {
	case *submarinerv1.GlobalIngressIP:
		if a.mistake == nil && len(a.addrs) == 1 && a.addrs[0] == parseIPv4(o.Status.AllocatedIP) && isAllocated(o) {
			return false
		}
		if text := o.Status.AllocatedIP; text != "" {
			held = []string{text}
		}
	case *submarinerv1.ClusterGlobalEgressIP:
		held = o.Status.AllocatedIPs
	case *submarinerv1.GlobalEgressIP:
		held = o.Status.AllocatedIPs
	}
	_, changed := a.conditions(now)
	return changed || !slices.Equal(a.addresses(), held)
}

// conditions returns the conditions of the new status, and whether the object does not have them.
// Conditions of others stay.
func (a *allocated) conditions(now time.Time) (conds []metav1.Condition, changed bool) {
	var had []metav1.Condition
	switch o := a.object.(type) {
	case *submarinerv1.GlobalIngressIP:
		had = o.Status.Conditions
	case *submarinerv1.ClusterGlobalEgressIP:
		had = o.Status.Conditions
	case *submarinerv1.GlobalEgressIP:
		had = o.Status.Conditions
	}
	conds = slices.Clone(had)
	c := a.condition()
	c.LastTransitionTime = metav1.NewTime(now)
	meta.SetStatusCondition(&conds, c)
	if a.selects != nil {
		selects := *a.selects
		selects.LastTransitionTime = c.LastTransitionTime
		meta.SetStatusCondition(&conds, selects)
	} else {
		meta.RemoveStatusCondition(&conds, submarinerv1.ConditionSelects)
	}
	return conds, !reflect.DeepEqual(conds, had)
}
