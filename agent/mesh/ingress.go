package mesh

import (
	"cmp"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/globalnet"
)

// ingressSpec returns the spec of a GlobalIngressIP for a pod, a Service or an endpoint of a Service
// with a name.
func ingressSpec(target submarinerv1.GlobalIngressTarget, name string) submarinerv1.GlobalIngressIPSpec {
	spec := submarinerv1.GlobalIngressIPSpec{Target: target}
	if ref := (&corev1.LocalObjectReference{Name: name}); target == submarinerv1.TargetHeadlessServicePod {
		spec.PodRef = ref
	} else {
		spec.ServiceRef = ref
	}
	return spec
}

// ingressOwner returns the owner of a GlobalIngressIP with a target: a pod or, for a Service, the
// ServiceExport.
func ingressOwner(target submarinerv1.GlobalIngressTarget, name string, uid types.UID) metav1.OwnerReference {
	if target == submarinerv1.TargetHeadlessServicePod {
		return metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: name, UID: uid}
	}
	return metav1.OwnerReference{
		APIVersion: mcsv1alpha1.GroupVersion.String(),
		Kind:       mcsv1alpha1.ServiceExportKindName,
		Name:       name,
		UID:        uid,
	}
}

// targetPod returns the pod that a GlobalIngressIP stands for; false if it stands for something
// else.
func targetPod(o *submarinerv1.GlobalIngressIP) (name string, is bool) {
	return nameIn(o.Spec.Target == submarinerv1.TargetHeadlessServicePod, o.Spec.PodRef)
}

// targetService returns the Service that a GlobalIngressIP stands for; false if it stands for
// something else.
func targetService(o *submarinerv1.GlobalIngressIP) (name string, is bool) {
	return nameIn(o.Spec.Target == submarinerv1.TargetClusterIPService, o.Spec.ServiceRef)
}

// nameIn returns the name in a reference, if the object stands for its kind and has one.
func nameIn(is bool, ref *corev1.LocalObjectReference) (string, bool) {
	if !is || ref == nil {
		return "", false
	}
	return ref.Name, true
}

// isForEndpoint reports whether a GlobalIngressIP stands for an endpoint of a headless Service.
func isForEndpoint(o *submarinerv1.GlobalIngressIP) bool {
	return o.Spec.Target == submarinerv1.TargetHeadlessServiceEndpoints
}

// endpointOf returns the endpoint that a GlobalIngressIP stands for; the zero Addr if it stands for
// something else, or the text is no IPv4 address.
func endpointOf(o *submarinerv1.GlobalIngressIP) netip.Addr {
	return parseIPv4(o.Annotations[submarinerv1.HeadlessEndpointAnnotation])
}

// ingressMistake returns what a GlobalIngressIP lacks; empty if nothing.
func ingressMistake(o *submarinerv1.GlobalIngressIP) string {
	switch spec := o.Spec; spec.Target {
	case submarinerv1.TargetHeadlessServicePod:
		if spec.PodRef == nil || spec.PodRef.Name == "" {
			return "the target HeadlessServicePod needs a podRef: name the pod"
		}
	case submarinerv1.TargetClusterIPService:
		if spec.ServiceRef == nil || spec.ServiceRef.Name == "" {
			return "the target ClusterIPService needs a serviceRef: name the Service"
		}
	case submarinerv1.TargetHeadlessServiceEndpoints:
		if !endpointOf(o).IsValid() {
			return "the target HeadlessServiceEndpoints needs the annotation " +
				submarinerv1.HeadlessEndpointAnnotation + ": the IPv4 address of the endpoint"
		}
	default:
		return fmt.Sprintf("target %q is unknown", spec.Target)
	}
	return ""
}

// duplicates returns the GlobalIngressIPs of pods and endpoints without effect, because an older
// one has the same address of the pod network, each with that older one. This happens if a pod is
// an endpoint of two Services without selector, or of one and has a global address of its own.
func (w *wanted) duplicates(pods []*corev1.Pod) map[*submarinerv1.GlobalIngressIP]*submarinerv1.GlobalIngressIP {
	of := make(map[*submarinerv1.GlobalIngressIP]netip.Addr, len(w.have))
	first := make(map[netip.Addr]*submarinerv1.GlobalIngressIP, len(w.have))
	for _, o := range w.have {
		var ip netip.Addr
		if name, is := targetPod(o); is {
			if p := find(pods, o.GetNamespace(), name); p != nil {
				ip = globalnet.PodIP(p)
			}
		} else if isForEndpoint(o) {
			ip = endpointOf(o) // a mistake has a condition
		}
		if !w.network.Contains(parseIPv4(o.Status.AllocatedIP)) || w.endpoints.RefuseOwn(o.GetNamespace(), ip) != nil {
			continue // gateways do not translate it either
		}
		of[o] = ip
		if other := first[ip]; other == nil || olderIngress(o, other) {
			first[ip] = o
		}
	}
	out := map[*submarinerv1.GlobalIngressIP]*submarinerv1.GlobalIngressIP{}
	for o, ip := range of {
		if first[ip] != o {
			out[o] = first[ip]
		}
	}
	return out
}

// olderIngress reports whether o has the address of two that have the same one.
func olderIngress(o, other *submarinerv1.GlobalIngressIP) bool {
	return cmp.Or(cmp.Compare(o.CreationTimestamp.Unix(), other.CreationTimestamp.Unix()),
		cmp.Compare(o.Namespace, other.Namespace), cmp.Compare(o.Name, other.Name)) < 0
}

// parseIPv4 parses an address; the zero Addr if the text is something else.
func parseIPv4(text string) netip.Addr {
	if a, err := netip.ParseAddr(text); err == nil && a.Is4() {
		return a
	}
	return netip.Addr{}
}
