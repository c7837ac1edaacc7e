package allocator

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"sort"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
)

// export is a ServiceExport, and what stands for its Service.
type export struct {
	object *mcsv1alpha1.ServiceExport
	needs  []int32 // the numbers of wants
	*troubles
}

// troubles has the reasons why other clusters reach nothing, or not all endpoints, at the address
// of a Service.
type troubles struct {
	reason  mcsv1alpha1.ServiceExportConditionReason // why it is not valid; empty if it is
	mistake string
	taken   string // the name of a GlobalIngressIP that stands for something else
	// unreached is the reason why other clusters reach nothing at the address of the Service; empty
	// if they do.
	unreached string
	refused   []string            // why other clusters do not reach endpoints, for the first listedAddresses
	refusals  map[netip.Addr]bool // the endpoints that they do not reach, at most maxRefusals
	others    []string            // the GlobalIngressIPs at whose addresses other clusters reach endpoints instead
}

// trouble returns the troubles of an export, to add to them. Most have none.
func (e *export) trouble() *troubles {
	if e.troubles == nil {
		e.troubles = &troubles{}
	}
	return e.troubles
}

// compareEndpoints looks for endpoints that other clusters reach at the address of another object.
func (w *needed) compareEndpoints(pods []*corev1.Pod) {
	if !slices.ContainsFunc(w.have, isForEndpoint) {
		return // the addresses of pods differ
	}
	w.useless = w.duplicates(pods)
	for i := range w.exports {
		e := &w.exports[i]
		e.needs = slices.DeleteFunc(e.needs, func(n int32) bool {
			at := w.ingress[n].at
			if at < 0 || w.useless[w.have[at]] == nil {
				return false
			}
			first := w.useless[w.have[at]]
			t := e.trouble()
			t.others = append(t.others, fmt.Sprintf("%s (GlobalIngressIP %s)", first.Status.AllocatedIP, first.Name))
			return true
		})
		if e.troubles != nil {
			slices.Sort(e.others)
		}
	}
}

// export gives exported Services what stands for them.
func (w *needed) export(s role.Snapshot, pods []*corev1.Pod) {
	services := role.List[*corev1.Service](s)
	exports := role.List[*mcsv1alpha1.ServiceExport](s)
	endpoints := byService(role.List[*discoveryv1.EndpointSlice](s))
	w.exports = make([]export, 0, len(exports))
	for _, o := range exports {
		if o.DeletionTimestamp != nil {
			continue
		}
		w.exports = append(w.exports, export{object: o})
		e := &w.exports[len(w.exports)-1]
		switch service := find(services, o.GetNamespace(), o.Name); {
		case service == nil:
			e.trouble().reason = mcsv1alpha1.ServiceExportReasonNoService
			e.trouble().mistake = fmt.Sprintf("there is no Service %s in namespace %s", o.Name, o.GetNamespace())
		case service.Spec.Type == corev1.ServiceTypeExternalName:
			e.trouble().reason = mcsv1alpha1.ServiceExportReasonInvalidServiceType
			e.trouble().mistake = "a Service of type ExternalName has no endpoints in this cluster: export a Service with endpoints"
		case !w.network.IsValid():
		case service.Spec.ClusterIP == corev1.ClusterIPNone && len(service.Spec.Selector) > 0:
			w.headlessPods(e, endpoints.of(o), pods)
		case service.Spec.ClusterIP == corev1.ClusterIPNone:
			w.headlessEndpoints(e, endpoints.of(o))
		default:
			w.clusterIP(e, service, endpoints.of(o))
		}
	}
}

// clusterIP gives an exported Service with an address in the cluster a global address.
func (w *needed) clusterIP(e *export, service *corev1.Service, endpoints []*discoveryv1.EndpointSlice) {
	if !hasIPv4(service) {
		e.trouble().unreached = "the Service has no IPv4 address"
		return
	}
	refused := false
	reached := false
	eachAddress(endpoints, func(ip netip.Addr) {
		if e.refuse(ip, w.endpoints.Refuse) {
			reached = true
		} else {
			refused = true
		}
	})
	if refused && !reached {
		e.trouble().unreached = "other clusters may reach none of its endpoints"
	}
	w.need(e, ingress{owner: e.object, target: submarinerv1.TargetClusterIPService})
}

// headlessPods gives each pod of an exported headless Service an address.
func (w *needed) headlessPods(e *export, endpoints []*discoveryv1.EndpointSlice, pods []*corev1.Pod) {
	for _, slice := range endpoints {
		for _, ep := range slice.Endpoints {
			if ep.TargetRef == nil || ep.TargetRef.Kind != "Pod" || ep.TargetRef.Name == "" {
				continue
			}
			p := find(pods, slice.Namespace, ep.TargetRef.Name)
			if p == nil {
				continue
			}
			if number, same, needs := w.pod(p); needs {
				w.noteNeed(e, number, same)
			}
		}
	}
}

// headlessEndpoints gives each endpoint of an exported headless Service without selector an
// address.
func (w *needed) headlessEndpoints(e *export, endpoints []*discoveryv1.EndpointSlice) {
	eachAddress(endpoints, func(ip netip.Addr) {
		if e.refuse(ip, w.endpoints.RefuseOwn) {
			w.need(e, ingress{owner: e.object, target: submarinerv1.TargetHeadlessServiceEndpoints, endpoint: ip})
		}
	})
}

// need adds an object that an export needs.
func (w *needed) need(e *export, k ingress) {
	number, same := w.require(k)
	w.noteNeed(e, number, same)
}

// noteNeed notes an object that the last export needs, once, or that something else has its name.
func (w *needed) noteNeed(e *export, number int32, same bool) {
	k := &w.ingress[number]
	last := int32(len(w.exports))
	switch {
	case !same:
		e.trouble().taken = k.name()
	case k.neededBy != last:
		k.neededBy = last
		e.needs = append(e.needs, number)
	}
}

// maxRefusals is the maximum number of endpoints that are counted as not reached: whoever may write
// EndpointSlices can list millions.
const maxRefusals = 10000

// refuse notes why an endpoint is not reached. It reports whether it is.
func (e *export) refuse(ip netip.Addr, why func(namespace string, ip netip.Addr) error) bool {
	err := why(e.object.GetNamespace(), ip)
	if err == nil {
		return true
	}
	t := e.trouble()
	if len(t.refusals) < maxRefusals && !t.refusals[ip] {
		if t.refusals == nil {
			t.refusals = map[netip.Addr]bool{}
		}
		if t.refusals[ip] = true; len(t.refused) < listedAddresses {
			t.refused = append(t.refused, err.Error())
		}
	}
	return false
}

// eachAddress calls do for each IPv4 address in EndpointSlices.
func eachAddress(endpoints []*discoveryv1.EndpointSlice, do func(netip.Addr)) {
	for _, slice := range endpoints {
		for _, ep := range slice.Endpoints {
			if ip := firstIPv4(ep.Addresses); ip.IsValid() { // Kubernetes gives no meaning to others
				do(ip)
			}
		}
	}
}

// firstIPv4 returns the first IPv4 address in a list; the zero Addr if there is none.
func firstIPv4(addresses []string) netip.Addr {
	for _, text := range addresses {
		if ip := parseIPv4(text); ip.IsValid() {
			return ip
		}
	}
	return netip.Addr{}
}

// hasIPv4 reports whether a Service has an IPv4 address in the cluster.
func hasIPv4(s *corev1.Service) bool {
	return parseIPv4(s.Spec.ClusterIP).IsValid() || firstIPv4(s.Spec.ClusterIPs).IsValid()
}

// serviceSlices are EndpointSlices, sorted by namespace and Service.
type serviceSlices []serviceSlice

// serviceSlice is an EndpointSlice of a Service.
type serviceSlice struct {
	service types.NamespacedName
	slice   *discoveryv1.EndpointSlice
}

// byService sorts EndpointSlices by Service. Those of a Service stay in the order in which they
// are.
func byService(all []*discoveryv1.EndpointSlice) serviceSlices {
	out := make(serviceSlices, len(all))
	for i, o := range all {
		out[i] = serviceSlice{
			types.NamespacedName{Namespace: o.Namespace, Name: o.Labels[discoveryv1.LabelServiceName]}, o,
		}
	}
	slices.SortStableFunc(out, func(a, b serviceSlice) int {
		return role.CompareKeys(a.service.Namespace, a.service.Name, b.service)
	})
	return out
}

// of returns the EndpointSlices of an exported Service.
func (s serviceSlices) of(o *mcsv1alpha1.ServiceExport) (out []*discoveryv1.EndpointSlice) {
	key := role.KeyOf(o)
	from, _ := sort.Find(len(s), func(i int) int {
		return role.CompareKeys(key.Namespace, key.Name, s[i].service)
	})
	for ; from < len(s) && s[from].service == key; from++ {
		out = append(out, s[from].slice)
	}
	return out
}

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

// exportWrite is a ServiceExport whose conditions change.
type exportWrite struct {
	*export
	a *Addresses
}

// GetNamespace implements pendingWrite.
func (d exportWrite) GetNamespace() string { return d.object.GetNamespace() }

// build implements pendingWrite.
func (d exportWrite) build(now time.Time) role.Object {
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
	if e.troubles == nil && network && len(e.needs) == 1 && len(addrs) == 1 && isExportedAt(e.object,
		addrs[0].String()) {
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
func (a *Addresses) exportStatuses(s role.Snapshot) {
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
		a.exports = append(a.exports, exportWrite{e, a})
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
