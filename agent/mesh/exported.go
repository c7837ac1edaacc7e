package mesh

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
)

// Reasons of the condition Ready of a ServiceExport that the Multi-Cluster Services API does not have.
const (
	ReasonNoGlobalNetwork = "NoGlobalNetwork"
	ReasonNameTaken       = "NameTaken"
	ReasonNoEndpoints     = "NoEndpoints"
	ReasonEndpointsTaken  = "EndpointsTaken"
)

// listedAddresses is the most addresses in the message of a condition.
const listedAddresses = 5

// exportStatuses returns the ServiceExports whose conditions change. Valid reports whether the Service can be
// exported, and Ready whether other clusters reach it.
func (a *Addresses) exportStatuses(now time.Time) []Object {
	granted := map[types.NamespacedName]string{}
	for i := range a.allocated {
		if o, ok := a.allocated[i].object.(*submarinerv1.GlobalIngressIP); ok && len(a.allocated[i].grant.Addrs) > 0 {
			granted[keyOf(o)] = a.allocated[i].grant.Addrs[0].String()
		}
	}
	var out []Object
	for _, e := range a.wanted.exports {
		o := e.object.DeepCopy()
		for _, c := range e.conditions(granted, a.wanted.network.IsValid()) {
			c.ObservedGeneration, c.LastTransitionTime = o.Generation, metav1.NewTime(now)
			meta.SetStatusCondition(&o.Status.Conditions, c)
		}
		if !reflect.DeepEqual(o.Status.Conditions, e.object.Status.Conditions) {
			out = append(out, o)
		}
	}
	return out
}

// conditions returns the conditions of a ServiceExport. granted has the addresses of GlobalIngressIPs.
func (e export) conditions(granted map[types.NamespacedName]string, network bool) []metav1.Condition {
	valid := metav1.Condition{Type: string(mcsv1alpha1.ServiceExportConditionValid), Status: metav1.ConditionTrue, Reason: string(mcsv1alpha1.ServiceExportReasonValid), Message: "the Service can be exported"}
	ready := metav1.Condition{Type: string(mcsv1alpha1.ServiceExportConditionReady), Status: metav1.ConditionFalse, Reason: string(mcsv1alpha1.ServiceExportReasonPending)}
	var addrs []string
	for _, key := range e.needs {
		if a := granted[key]; a != "" {
			addrs = append(addrs, a)
		}
	}
	slices.Sort(addrs)
	switch {
	case e.mistake != "":
		valid.Status, valid.Reason, valid.Message = metav1.ConditionFalse, string(e.reason), e.mistake
		ready.Message = "the Service cannot be exported: see the condition Valid"
	case !network:
		ready.Reason, ready.Message = ReasonNoGlobalNetwork, "this cluster has no global network: other clusters reach the Service at its own addresses"
	case e.taken != "":
		ready.Reason = ReasonNameTaken
		ready.Message = fmt.Sprintf("GlobalIngressIP %s is for something else: delete it, or export a Service with another name", e.taken)
	case e.unreached != "":
		ready.Reason, ready.Message = ReasonNoEndpoints, e.unreached+e.refusedText()
	case len(e.needs) == 0 && len(e.others) > 0:
		ready.Reason, ready.Message = ReasonEndpointsTaken, "none of its endpoints has an address for this Service"+e.refusedText()
	case len(e.needs) == 0:
		ready.Reason, ready.Message = ReasonNoEndpoints, "the headless Service has no endpoints with an IPv4 address in the pod network"+e.refusedText()
	case len(addrs) < len(e.needs):
		ready.Message = fmt.Sprintf("%d of %d global addresses are allocated: see kubectl get globalingressips", len(addrs), len(e.needs))
	default:
		ready.Status, ready.Reason = metav1.ConditionTrue, string(mcsv1alpha1.ServiceExportReasonExported)
		ready.Message = "other clusters reach the Service at " + addressList(addrs) + e.refusedText()
	}
	return []metav1.Condition{valid, ready}
}

// without removes from needs the GlobalIngressIPs whose endpoint another one has, and notes that one.
func (e *export) without(duplicates map[types.NamespacedName]*submarinerv1.GlobalIngressIP) {
	e.needs = slices.DeleteFunc(e.needs, func(key types.NamespacedName) bool {
		first := duplicates[key]
		if first != nil {
			e.others = append(e.others, fmt.Sprintf("%s (GlobalIngressIP %s)", first.Status.AllocatedIP, first.Name))
		}
		return first != nil
	})
	slices.Sort(e.others)
}

// need notes an object that an export needs, once, or that something else has its name.
func (e *export) need(key types.NamespacedName, free bool) {
	switch {
	case !free:
		e.taken = key.Name
	case e.once(key):
		e.needs = append(e.needs, key)
	}
}

// maxRefusals is how many endpoints that are not reached are counted: whoever may write EndpointSlices can list millions.
const maxRefusals = 10000

// refuse notes why an endpoint is not reached. It reports whether it is.
func (e *export) refuse(ip netip.Addr, why error) bool {
	if why != nil && e.refusals < maxRefusals && e.once(ip) {
		if e.refusals++; len(e.refused) < listedAddresses {
			e.refused = append(e.refused, why.Error())
		}
	}
	return why == nil
}

// once reports whether it is called with a note for the first time.
func (e *export) once(note any) bool {
	if e.noted[note] {
		return false
	}
	if e.noted == nil {
		e.noted = map[any]bool{}
	}
	e.noted[note] = true
	return true
}

// refusedText returns which endpoints other clusters do not reach at an address of the Service, as the end of a message.
func (e export) refusedText() (text string) {
	switch n := e.refusals; {
	case n == 1:
		text = "; they do not reach an endpoint: " + e.refused[0]
	case n > listedAddresses:
		count := fmt.Sprint(n)
		if n == maxRefusals {
			count += " or more"
		}
		text = fmt.Sprintf("; they do not reach %s endpoints, among them: %s", count, strings.Join(e.refused, ", "))
	case n > 1:
		text = fmt.Sprintf("; they do not reach %d endpoints: %s", n, strings.Join(e.refused, ", "))
	}
	if len(e.others) > 0 {
		text += "; other clusters reach endpoints that another object has at " + addressList(e.others)
	}
	return text
}

// addressList returns addresses as text, and how many there are if they are many.
func addressList(addrs []string) string {
	if len(addrs) <= listedAddresses {
		return strings.Join(addrs, ", ")
	}
	return fmt.Sprintf("%s and %d others", strings.Join(addrs[:listedAddresses], ", "), len(addrs)-listedAddresses)
}
