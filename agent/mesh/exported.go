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
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
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

// reachedAt is the start of the message of the condition Ready of what other clusters reach.
const reachedAt = "other clusters reach the Service at "

// exported returns the conditions of a ServiceExport whose Service other clusters reach at the given addresses.
func exported(at string) []metav1.Condition {
	return []metav1.Condition{
		{Type: string(mcsv1alpha1.ServiceExportConditionValid), Status: metav1.ConditionTrue, Reason: string(mcsv1alpha1.ServiceExportReasonValid), Message: "the Service can be exported"},
		{Type: string(mcsv1alpha1.ServiceExportConditionReady), Status: metav1.ConditionTrue, Reason: string(mcsv1alpha1.ServiceExportReasonExported), Message: reachedAt + at},
	}
}

// exportStatus is a ServiceExport whose conditions change.
type exportStatus struct {
	*slimExport
	conditions []metav1.Condition // that the agent sets
}

// draw implements draft.
func (e exportStatus) draw(now time.Time) Object { return e.full(e.changed(now)) }

// changed returns the new conditions of the object. Conditions of others stay.
func (e exportStatus) changed(now time.Time) []metav1.Condition {
	all := e.Conditions()
	for _, c := range e.conditions {
		c.ObservedGeneration, c.LastTransitionTime = e.generation, metav1.NewTime(now)
		meta.SetStatusCondition(&all, c)
	}
	return all
}

// exportStatuses returns the ServiceExports whose conditions change. Valid reports whether the Service can be
// exported, and Ready whether other clusters reach it.
func (a *Addresses) exportStatuses(now time.Time) (out []draft) {
	for i := range a.wanted.exports {
		e := &a.wanted.exports[i]
		addrs := a.addressesOf(e)
		if e.troubles == nil && e.object.at.is && len(e.needs) == 1 && len(addrs) == 1 && addrs[0] == e.object.at.addr() && a.wanted.network.IsValid() {
			continue // it has these conditions
		}
		status := exportStatus{e.object, e.conditions(addrs, a.wanted.network.IsValid())}
		if !reflect.DeepEqual(status.changed(now), e.object.Conditions()) {
			out = append(out, status)
		}
	}
	return out
}

// addressesOf returns the addresses at which other clusters reach an exported Service.
func (a *Addresses) addressesOf(e *export) (addrs []netip.Addr) {
	for _, n := range e.needs {
		if at := a.wanted.ingress[n].at; at >= 0 {
			if granted := a.ingress[at].addrs; len(granted) > 0 {
				if len(e.needs) == 1 {
					return granted[:1]
				}
				addrs = append(addrs, granted[0])
			}
		}
	}
	return addrs
}

// conditions returns the conditions of a ServiceExport with the addresses that are granted.
func (e *export) conditions(granted []netip.Addr, network bool) []metav1.Condition {
	t := e.troubles
	if t == nil {
		t = &troubles{}
	}
	var addrs []string
	for _, a := range granted {
		addrs = append(addrs, a.String())
	}
	slices.Sort(addrs)
	cs := exported(addressList(addrs) + t.refusedText())
	valid, ready := &cs[0], &cs[1]
	not := func(reason, message string) {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, reason, message
	}
	const pending = string(mcsv1alpha1.ServiceExportReasonPending)
	switch {
	case t.mistake != "":
		valid.Status, valid.Reason, valid.Message = metav1.ConditionFalse, string(t.reason), t.mistake
		not(pending, "the Service cannot be exported: see the condition Valid")
	case !network:
		not(ReasonNoGlobalNetwork, "this cluster has no global network: other clusters reach the Service at its own addresses")
	case t.taken != "":
		not(ReasonNameTaken, fmt.Sprintf("GlobalIngressIP %s is for something else: delete it, or export a Service with another name", t.taken))
	case t.unreached != "":
		not(ReasonNoEndpoints, t.unreached+t.refusedText())
	case len(e.needs) == 0 && len(t.others) > 0:
		not(ReasonEndpointsTaken, "none of its endpoints has an address for this Service"+t.refusedText())
	case len(e.needs) == 0:
		not(ReasonNoEndpoints, "the headless Service has no endpoints with an IPv4 address in the pod network"+t.refusedText())
	case len(addrs) < len(e.needs):
		not(pending, fmt.Sprintf("%d of %d global addresses are allocated: see kubectl get globalingressips", len(addrs), len(e.needs)))
	}
	return cs
}

// refusedText returns which endpoints other clusters do not reach at an address of the Service, as the end of a message.
func (e *troubles) refusedText() (text string) {
	switch n := len(e.refusals); {
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
