package globalnet

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	submarinerv1 "subctl/api/submariner/v1"
)

// Duplicates returns the GlobalIngressIPs of pods and endpoints without effect, because an older one has the same address of the pod network, each
// with that older one. This happens if a pod is an endpoint of two Services without selector, or of one and has a global address of its own.
func (e Endpoints) Duplicates(network netip.Prefix, ingress []*submarinerv1.GlobalIngressIP, pods []*corev1.Pod) map[*submarinerv1.GlobalIngressIP]*submarinerv1.GlobalIngressIP {
	local := make(map[ref]netip.Addr, len(pods))
	for _, p := range pods {
		local[refOf(p)] = PodIP(p)
	}
	of := make(map[*submarinerv1.GlobalIngressIP]netip.Addr, len(ingress))
	first := make(map[netip.Addr]*submarinerv1.GlobalIngressIP, len(ingress))
	for _, i := range ingress {
		var ip netip.Addr
		switch {
		case i.Spec.Target == submarinerv1.TargetHeadlessServicePod && i.Spec.PodRef != nil:
			ip = local[ref{i.Namespace, i.Spec.PodRef.Name}]
		case i.Spec.Target == submarinerv1.TargetHeadlessServiceEndpoints:
			ip, _ = netip.ParseAddr(i.Annotations[submarinerv1.HeadlessEndpointAnnotation]) // a mistake has a condition
		}
		global, err := netip.ParseAddr(i.Status.AllocatedIP)
		if err != nil || !network.Contains(global) || e.RefuseOwn(i.Namespace, ip) != nil {
			continue // gateways do not translate it either
		}
		of[i] = ip
		if other := first[ip]; other == nil || ingressOwner(i).older(ingressOwner(other)) {
			first[ip] = i
		}
	}
	out := map[*submarinerv1.GlobalIngressIP]*submarinerv1.GlobalIngressIP{}
	for i, ip := range of {
		if first[ip] != i {
			out[i] = first[ip]
		}
	}
	return out
}
