package allocator

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/globalnet"
)

// ingressSpec returns the spec of a GlobalIngressIP for a pod, a Service or an endpoint of a
// Service with a name.
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
func (w *needed) duplicates(pods []*corev1.Pod) map[*submarinerv1.GlobalIngressIP]*submarinerv1.GlobalIngressIP {
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

// ingress is a GlobalIngressIP that the cluster needs. Kubernetes deletes it with its owner: a pod
// or, for a Service, the ServiceExport.
type ingress struct {
	owner    role.Object
	at       int32 // its index in wanted.have; -1 if it does not exist
	neededBy int32 // the number of the last export that needs it, plus 1
	target   submarinerv1.GlobalIngressTarget
	endpoint netip.Addr // that it stands for; the zero Addr for other targets
}

// require adds a GlobalIngressIP. It returns the number of the one that has its name, and whether
// that stands for the same: an exported Service may be named like the GlobalIngressIP of a pod.
func (w *needed) require(k ingress) (number int32, same bool) {
	name := k.name()
	at, found := search(w.have, k.owner.GetNamespace(), name)
	number = int32(len(w.ingress))
	if found {
		if w.wants[at] > 0 {
			number = w.wants[at] - 1
			return number, w.ingress[number].same(k)
		}
		k.at = int32(at)
		w.wants[at] = number + 1
	} else {
		key := types.NamespacedName{Namespace: k.owner.GetNamespace(), Name: name}
		if other, is := w.fresh[key]; is {
			return other, w.ingress[other].same(k)
		}
		k.at = -1
		w.fresh[key] = number
	}
	w.ingress = append(w.ingress, k)
	return number, true
}

// same reports whether two objects of the same namespace stand for the same.
func (k *ingress) same(o ingress) bool {
	return k.target == o.target && k.owner.GetName() == o.owner.GetName() && k.endpoint == o.endpoint
}

// name returns the name of the object.
func (k *ingress) name() string {
	switch name := k.owner.GetName(); k.target {
	case submarinerv1.TargetHeadlessServicePod:
		return podIngress(name)
	case submarinerv1.TargetHeadlessServiceEndpoints:
		return fmt.Sprintf("ep-%.44s-%.15s", name, k.endpoint) // upstream
	default:
		return name
	}
}

// GetNamespace implements pendingWrite.
func (k *ingress) GetNamespace() string { return k.owner.GetNamespace() }

// build implements pendingWrite.
func (k *ingress) build(time.Time) role.Object {
	o := &submarinerv1.GlobalIngressIP{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       k.GetNamespace(),
			Name:            k.name(),
			Labels:          role.Ours(),
			OwnerReferences: []metav1.OwnerReference{k.ownerReference()},
		},
		Spec: ingressSpec(k.target, k.owner.GetName()),
	}
	if o.Spec.ServiceRef != nil {
		o.Labels[submarinerv1.ServiceRefLabel] = o.Spec.ServiceRef.Name
	}
	if k.endpoint.IsValid() {
		o.Annotations = map[string]string{submarinerv1.HeadlessEndpointAnnotation: k.endpoint.String()}
	}
	return o
}

// ownerReference returns the reference to the owner.
func (k *ingress) ownerReference() metav1.OwnerReference {
	return ingressOwner(k.target, k.owner.GetName(), k.owner.GetUID())
}

// matches reports whether the spec of an object is as wanted.
func (k *ingress) matches(o *submarinerv1.GlobalIngressIP) bool {
	name := o.Spec.PodRef
	other := o.Spec.ServiceRef
	if k.target != submarinerv1.TargetHeadlessServicePod {
		name, other = other, name
	}
	return o.Spec.Target == k.target && name != nil && name.Name == k.owner.GetName() && other == nil
}

// keeps reports whether an object of ours is in every respect as wanted.
func (k *ingress) keeps(o *submarinerv1.GlobalIngressIP) bool {
	return k.matches(o) && len(o.OwnerReferences) == 1 && o.OwnerReferences[0] == k.ownerReference() &&
		endpointOf(o) == k.endpoint
}

// podIngress returns the name of the GlobalIngressIP of a pod, as upstream, except that long names
// stay different.
func podIngress(pod string) string {
	const most = 59 // upstream
	if len(pod) <= most {
		return "pod-" + pod
	}
	h := fnv.New32a()
	h.Write([]byte(pod))
	return fmt.Sprintf("pod-%s-%08x", strings.TrimRight(pod[:most-9], "-."), h.Sum32())
}
