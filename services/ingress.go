package services

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/prefix"
)

// ingress has the global addresses of a cluster, by what they lead to.
type ingress struct {
	services  map[types.NamespacedName]allocated
	pods      map[types.NamespacedName]allocated
	endpoints map[headlessEndpoint]allocated
}

// headlessEndpoint is an endpoint of a headless Service without selector.
type headlessEndpoint struct {
	service types.NamespacedName
	addr    netip.Addr
}

// allocated is a global address, and the time at which its object was created. Of two objects for
// the same, gateways use the older one.
type allocated struct {
	addr    netip.Addr
	created int64
}

func newIngress(s Source) ingress {
	in := ingress{
		services:  map[types.NamespacedName]allocated{},
		pods:      map[types.NamespacedName]allocated{},
		endpoints: map[headlessEndpoint]allocated{},
	}
	for _, o := range s.Ingress {
		ip, err := netip.ParseAddr(o.Status.AllocatedIP)
		if err != nil || !prefix.Contains(s.GlobalNetworks, ip) {
			continue
		}
		a := allocated{ip, o.CreationTimestamp.Unix()}
		switch service, pod := o.Spec.ServiceRef, o.Spec.PodRef; {
		case o.Spec.Target == submarinerv1.TargetClusterIPService && service != nil:
			addOldest(in.services, types.NamespacedName{Namespace: o.Namespace, Name: service.Name}, a)
		case o.Spec.Target == submarinerv1.TargetHeadlessServicePod && pod != nil:
			addOldest(in.pods, types.NamespacedName{Namespace: o.Namespace, Name: pod.Name}, a)
		case o.Spec.Target == submarinerv1.TargetHeadlessServiceEndpoints && service != nil:
			of := types.NamespacedName{Namespace: o.Namespace, Name: service.Name}
			if at, err := netip.ParseAddr(o.Annotations[submarinerv1.HeadlessEndpointAnnotation]); err == nil {
				addOldest(in.endpoints, headlessEndpoint{of, at}, a)
			}
		}
	}
	return in
}

// addOldest adds an address, unless there is one that is as old.
func addOldest[K comparable](to map[K]allocated, key K, a allocated) {
	if other, has := to[key]; !has || a.created < other.created {
		to[key] = a
	}
}

// translate returns the endpoints of a headless Service at their global addresses, sorted.
// Endpoints without one are left out: they wait for it.
func (in ingress) translate(s *corev1.Service, endpoints []endpoint) []endpoint {
	var out []endpoint
	for _, e := range endpoints {
		a, has := in.pods[types.NamespacedName{Namespace: s.Namespace, Name: e.pod}]
		if !has {
			a, has = in.endpoints[headlessEndpoint{keyOf(s), e.addr}]
		}
		if has {
			e.addr = a.addr
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, endpoint.compare)
	return slices.CompactFunc(out, func(a, b endpoint) bool { return a.addr == b.addr })
}
