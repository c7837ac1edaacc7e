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

// Reasons of the condition Ready of a ServiceExport that the Multi-Cluster Services API does not
// have.
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

// exported returns the conditions of a ServiceExport whose Service other clusters reach at the
// given addresses.
func exported(at string) []metav1.Condition {
	return []metav1.Condition{
		{
			Type:    string(mcsv1alpha1.ServiceExportConditionValid),
			Status:  metav1.ConditionTrue,
			Reason:  string(mcsv1alpha1.ServiceExportReasonValid),
			Message: "the Service can be exported",
		},
		{
			Type:    string(mcsv1alpha1.ServiceExportConditionReady),
			Status:  metav1.ConditionTrue,
			Reason:  string(mcsv1alpha1.ServiceExportReasonExported),
			Message: reachedAt + at,
		},
	}
}

// isExportedAt reports whether the conditions of a ServiceExport are those that exported returns.
func isExportedAt(o *mcsv1alpha1.ServiceExport, at string) bool {
	is := o.Status.Conditions
	if len(is) != 2 || !strings.HasPrefix(is[1].Message, reachedAt) || is[1].Message[len(reachedAt):] != at {
		return false
	}
	want := exported(at)
	for i := range want {
		want[i].ObservedGeneration = o.Generation
		want[i].LastTransitionTime = is[i].LastTransitionTime
	}
	return slices.Equal(is, want)
}

// exportDraft is a ServiceExport whose conditions change.
type exportDraft struct {
	*export
	a *Addresses
}

// GetNamespace implements draft.
func (d exportDraft) GetNamespace() string { return d.object.GetNamespace() }

// draw implements draft.
func (d exportDraft) draw(now time.Time) Object {
	conditions, _ := d.a.exportConditions(d.export, now)
	o := d.object.DeepCopy()
	o.Status.Conditions = conditions
	return o
}

// exportConditions returns the new conditions of a ServiceExport, and whether it does not have
// them. Conditions of others stay. If the cluster leaves, the export loses ours, which nobody would
// change any more.
func (a *Addresses) exportConditions(e *export, now time.Time) (all []metav1.Condition, changed bool) {
	addrs := a.addressesOf(e)
	network := a.wanted.network.IsValid()
	if e.troubles == nil && network && len(e.needs) == 1 && len(addrs) == 1 && isExportedAt(e.object, addrs[0].String()) {
		return nil, false // draw is not called
	}
	had := e.object.Status.Conditions
	all = slices.Clone(had)
	if a.wanted.leaving {
		all = slices.DeleteFunc(all, func(c metav1.Condition) bool {
			return c.Type == string(mcsv1alpha1.ServiceExportConditionValid) ||
				c.Type == string(mcsv1alpha1.ServiceExportConditionReady)
		})
		return all, len(all) < len(had)
	}
	for _, c := range e.conditions(addrs, a.waits(e), network) {
		c.ObservedGeneration = e.object.Generation
		c.LastTransitionTime = metav1.NewTime(now)
		meta.SetStatusCondition(&all, c)
	}
	return all, !reflect.DeepEqual(all, had)
}

// settleTime is the time for which an export must lack something before its conditions show it. A
// new export usually has its address sooner, and after a Service, its ServiceExport is usually
// deleted. To report the state between would double the writes to the API server, and give users an
// Event about a missing Service.
const settleTime = time.Second

// exportStatuses determines the ServiceExports whose conditions change. Valid reports whether the
// Service can be exported, and Ready whether other clusters reach it.
func (a *Addresses) exportStatuses(s Snapshot) {
	previous := addressMemory(s)
	a.Memory.Lacking = map[types.UID]time.Time{}
	for i := range a.wanted.exports {
		e := &a.wanted.exports[i]
		all, changed := a.exportConditions(e, s.Now)
		if !changed {
			continue
		}
		if mayPass(all) {
			since, known := previous.Lacking[e.object.UID]
			if !known {
				since = s.Now
			}
			a.Memory.Lacking[e.object.UID] = since
			if left := settleTime - s.Now.Sub(since); left > 0 {
				if a.again == 0 || left < a.again {
					a.again = left
				}
				continue
			}
		}
		a.exports = append(a.exports, exportDraft{e, a})
	}
}

// mayPass reports whether an export with these conditions may soon have others, or be gone. The
// type of a Service mostly stays.
func mayPass(all []metav1.Condition) bool {
	valid := meta.FindStatusCondition(all, string(mcsv1alpha1.ServiceExportConditionValid))
	ready := meta.FindStatusCondition(all, string(mcsv1alpha1.ServiceExportConditionReady))
	return valid != nil && valid.Reason != string(mcsv1alpha1.ServiceExportReasonInvalidServiceType) && ready != nil &&
		Passing(ready.Reason)
}

// Passing reports whether an export that is not Ready for a reason mostly waits: for a Service,
// endpoints or an address that it is about to get.
func Passing(reason string) bool {
	return reason == string(mcsv1alpha1.ServiceExportReasonPending) || reason == ReasonNoEndpoints
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

// waits reports whether an exported Service waits for addresses, as the pool has none.
func (a *Addresses) waits(e *export) bool {
	return slices.ContainsFunc(e.needs, func(n int32) bool {
		at := a.wanted.ingress[n].at
		return at >= 0 && a.ingress[at].missing > 0
	})
}

// conditions returns the conditions of a ServiceExport with the addresses that are granted, and
// whether the pool has none for the rest.
func (e *export) conditions(granted []netip.Addr, exhausted, network bool) []metav1.Condition {
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
	valid := &cs[0]
	ready := &cs[1]
	not := func(reason, message string) {
		ready.Status = metav1.ConditionFalse
		ready.Reason = reason
		ready.Message = message
	}
	const pending = string(mcsv1alpha1.ServiceExportReasonPending)
	switch {
	case t.mistake != "":
		valid.Status = metav1.ConditionFalse
		valid.Reason = string(t.reason)
		valid.Message = t.mistake
		not(pending, "the Service cannot be exported: see the condition Valid")
	case !network:
		not(ReasonNoGlobalNetwork,
			"this cluster has no global network: clusters that are connected to it reach the Service at its own addresses")
	case t.taken != "":
		not(
			ReasonNameTaken,
			fmt.Sprintf("GlobalIngressIP %s is for something else: delete it, or export a Service with another name",
				t.taken),
		)
	case t.unreached != "":
		not(ReasonNoEndpoints, t.unreached+t.refusedText())
	case len(e.needs) == 0 && len(t.others) > 0:
		not(ReasonEndpointsTaken, "none of its endpoints has an address for this Service"+t.refusedText())
	case len(e.needs) == 0:
		not(ReasonNoEndpoints,
			"the headless Service has no endpoints with an IPv4 address in the pod network"+t.refusedText())
	case exhausted:
		not(submarinerv1.ReasonPoolExhausted,
			fmt.Sprintf("%d of %d global addresses are allocated: %s", len(addrs), len(e.needs), poolExhausted(1)))
	case len(addrs) < len(e.needs):
		not(
			pending,
			fmt.Sprintf("%d of %d global addresses are allocated: see kubectl get globalingressips", len(addrs),
				len(e.needs)),
		)
	}
	return cs
}

// refusedText returns which endpoints other clusters do not reach at an address of the Service, as
// the end of a message.
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
