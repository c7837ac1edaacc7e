package mesh

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
)

// export is a ServiceExport, and what stands for its Service.
type export struct {
	object  *mcsv1alpha1.ServiceExport
	reason  mcsv1alpha1.ServiceExportConditionReason // why it is not valid; empty if it is
	mistake string
	needs   []types.NamespacedName // GlobalIngressIPs
	taken   string                 // the name of one that stands for something else
	// unreached is why other clusters reach nothing at the address of the Service; empty if they do.
	unreached string
	refused   []string     // why other clusters do not reach endpoints, for the first listedAddresses
	refusals  int          // how many endpoints they do not reach; maxRefusals if there are more
	others    []string     // the GlobalIngressIPs at whose addresses other clusters reach endpoints instead
	noted     map[any]bool // what needs and refused have: a Service may have many thousands of endpoints
}

// compareEndpoints looks for endpoints that other clusters reach at the address of another object.
func (w *wanted) compareEndpoints(s Snapshot) {
	all := List[*submarinerv1.GlobalIngressIP](s)
	if !slices.ContainsFunc(all, func(o *submarinerv1.GlobalIngressIP) bool {
		return o.Spec.Target == submarinerv1.TargetHeadlessServiceEndpoints
	}) {
		return // the addresses of pods differ
	}
	duplicates := map[types.NamespacedName]*submarinerv1.GlobalIngressIP{}
	for o, first := range w.endpoints.Duplicates(w.network, all, List[*corev1.Pod](s)) {
		duplicates[keyOf(o)] = first
	}
	for i := range w.exports {
		w.exports[i].without(duplicates)
	}
}

// export gives exported Services what stands for them.
func (w *wanted) export(s Snapshot) {
	services := map[types.NamespacedName]*corev1.Service{}
	for _, o := range List[*corev1.Service](s) {
		services[keyOf(o)] = o
	}
	pods := map[types.NamespacedName]*corev1.Pod{}
	for _, o := range List[*corev1.Pod](s) {
		pods[keyOf(o)] = o
	}
	endpoints := map[types.NamespacedName][]*discoveryv1.EndpointSlice{}
	for _, o := range List[*discoveryv1.EndpointSlice](s) {
		key := types.NamespacedName{Namespace: o.Namespace, Name: o.Labels[discoveryv1.LabelServiceName]}
		endpoints[key] = append(endpoints[key], o)
	}
	for _, o := range List[*mcsv1alpha1.ServiceExport](s) {
		e := export{object: o}
		switch service := services[keyOf(o)]; {
		case o.DeletionTimestamp != nil:
			continue
		case service == nil:
			e.reason, e.mistake = mcsv1alpha1.ServiceExportReasonNoService, fmt.Sprintf("there is no Service %s in namespace %s", o.Name, o.Namespace)
		case service.Spec.Type == corev1.ServiceTypeExternalName:
			e.reason, e.mistake = mcsv1alpha1.ServiceExportReasonInvalidServiceType, "a Service of type ExternalName has no endpoints in this cluster: export a Service with endpoints"
		case !w.network.IsValid():
		case service.Spec.ClusterIP == corev1.ClusterIPNone && len(service.Spec.Selector) > 0:
			w.headlessPods(&e, endpoints[keyOf(o)], pods)
		case service.Spec.ClusterIP == corev1.ClusterIPNone:
			w.headlessEndpoints(&e, endpoints[keyOf(o)])
		default:
			w.clusterIP(&e, service, endpoints[keyOf(o)])
		}
		w.exports = append(w.exports, e)
	}
}

// clusterIP gives an exported Service with an address in the cluster a global address.
func (w *wanted) clusterIP(e *export, service *corev1.Service, endpoints []*discoveryv1.EndpointSlice) {
	if !isIPv4(service.Spec.ClusterIP) && !slices.ContainsFunc(service.Spec.ClusterIPs, isIPv4) {
		e.unreached = "the Service has no IPv4 address"
		return
	}
	refused, reached := false, false
	eachAddress(endpoints, func(ip netip.Addr, _ string) {
		if e.refuse(ip, w.endpoints.Refuse(service.Namespace, ip)) {
			reached = true
		} else {
			refused = true
		}
	})
	if refused && !reached {
		e.unreached = "other clusters may reach none of its endpoints"
	}
	e.need(w.want(&submarinerv1.GlobalIngressIP{
		ObjectMeta: metav1.ObjectMeta{Namespace: service.Namespace, Name: service.Name},
		Spec:       submarinerv1.GlobalIngressIPSpec{Target: submarinerv1.TargetClusterIPService, ServiceRef: &corev1.LocalObjectReference{Name: service.Name}},
	}, e.object, mcsv1alpha1.GroupVersion.String(), mcsv1alpha1.ServiceExportKindName))
}

// headlessPods gives each pod of an exported headless Service an address.
func (w *wanted) headlessPods(e *export, endpoints []*discoveryv1.EndpointSlice, pods map[types.NamespacedName]*corev1.Pod) {
	for _, slice := range endpoints {
		for _, ep := range slice.Endpoints {
			if ep.TargetRef == nil || ep.TargetRef.Kind != "Pod" {
				continue
			}
			p := pods[types.NamespacedName{Namespace: slice.Namespace, Name: ep.TargetRef.Name}]
			if p == nil {
				continue
			}
			if key, free, needs := w.pod(p); needs {
				e.need(key, free)
			}
		}
	}
}

// headlessEndpoints gives each endpoint of an exported headless Service without selector an address.
func (w *wanted) headlessEndpoints(e *export, endpoints []*discoveryv1.EndpointSlice) {
	name := e.object.Name
	eachAddress(endpoints, func(ip netip.Addr, text string) {
		if !e.refuse(ip, w.endpoints.RefuseOwn(e.object.Namespace, ip)) {
			return
		}
		e.need(w.want(&submarinerv1.GlobalIngressIP{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: e.object.Namespace, Name: fmt.Sprintf("ep-%.44s-%.15s", name, text), // upstream
				Annotations: map[string]string{submarinerv1.HeadlessEndpointAnnotation: text},
			},
			Spec: submarinerv1.GlobalIngressIPSpec{Target: submarinerv1.TargetHeadlessServiceEndpoints, ServiceRef: &corev1.LocalObjectReference{Name: name}},
		}, e.object, mcsv1alpha1.GroupVersion.String(), mcsv1alpha1.ServiceExportKindName))
	})
}

func isIPv4(text string) bool {
	ip, err := netip.ParseAddr(text)
	return err == nil && ip.Is4()
}

// eachAddress calls do for each IPv4 address in EndpointSlices, and its text.
func eachAddress(endpoints []*discoveryv1.EndpointSlice, do func(netip.Addr, string)) {
	for _, slice := range endpoints {
		for _, ep := range slice.Endpoints {
			for _, text := range ep.Addresses {
				if ip, err := netip.ParseAddr(text); err == nil && ip.Is4() {
					do(ip, text)
				}
			}
		}
	}
}
