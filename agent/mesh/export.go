package mesh

import (
	"fmt"
	"net/netip"
	"slices"
	"sort"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

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
func (w *wanted) compareEndpoints(pods []*corev1.Pod) {
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
func (w *wanted) export(s Snapshot, pods []*corev1.Pod) {
	services := List[*corev1.Service](s)
	exports := List[*mcsv1alpha1.ServiceExport](s)
	endpoints := byService(List[*discoveryv1.EndpointSlice](s))
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
func (w *wanted) clusterIP(e *export, service *corev1.Service, endpoints []*discoveryv1.EndpointSlice) {
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
	w.need(e, want{owner: e.object, target: submarinerv1.TargetClusterIPService})
}

// headlessPods gives each pod of an exported headless Service an address.
func (w *wanted) headlessPods(e *export, endpoints []*discoveryv1.EndpointSlice, pods []*corev1.Pod) {
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
func (w *wanted) headlessEndpoints(e *export, endpoints []*discoveryv1.EndpointSlice) {
	eachAddress(endpoints, func(ip netip.Addr) {
		if e.refuse(ip, w.endpoints.RefuseOwn) {
			w.need(e, want{owner: e.object, target: submarinerv1.TargetHeadlessServiceEndpoints, endpoint: ip})
		}
	})
}

// need adds an object that an export needs.
func (w *wanted) need(e *export, k want) {
	number, same := w.want(k)
	w.noteNeed(e, number, same)
}

// noteNeed notes an object that the last export needs, once, or that something else has its name.
func (w *wanted) noteNeed(e *export, number int32, same bool) {
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
		return compareKeys(a.service.Namespace, a.service.Name, b.service)
	})
	return out
}

// of returns the EndpointSlices of an exported Service.
func (s serviceSlices) of(o *mcsv1alpha1.ServiceExport) (out []*discoveryv1.EndpointSlice) {
	key := KeyOf(o)
	from, _ := sort.Find(len(s), func(i int) int {
		return compareKeys(key.Namespace, key.Name, s[i].service)
	})
	for ; from < len(s) && s[from].service == key; from++ {
		out = append(out, s[from].slice)
	}
	return out
}
