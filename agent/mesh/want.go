package mesh

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	submarinerv1 "subctl/api/submariner/v1"
)

// want is a GlobalIngressIP that the cluster needs. Kubernetes deletes it with its owner: a pod or,
// for a Service, the ServiceExport.
type want struct {
	owner    Object
	at       int32 // its index in wanted.have; -1 if it does not exist
	neededBy int32 // the number of the last export that needs it, plus 1
	target   submarinerv1.GlobalIngressTarget
	endpoint netip.Addr // that it stands for; the zero Addr for other targets
}

// want adds a GlobalIngressIP. It returns the number of the one that has its name, and whether that
// stands for the same: an exported Service may be named like the GlobalIngressIP of a pod.
func (w *wanted) want(k want) (number int32, same bool) {
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
func (k *want) same(o want) bool {
	return k.target == o.target && k.owner.GetName() == o.owner.GetName() && k.endpoint == o.endpoint
}

// name returns the name of the object.
func (k *want) name() string {
	switch name := k.owner.GetName(); k.target {
	case submarinerv1.TargetHeadlessServicePod:
		return podIngress(name)
	case submarinerv1.TargetHeadlessServiceEndpoints:
		return fmt.Sprintf("ep-%.44s-%.15s", name, k.endpoint) // upstream
	default:
		return name
	}
}

// GetNamespace implements draft.
func (k *want) GetNamespace() string { return k.owner.GetNamespace() }

// draw implements draft.
func (k *want) draw(time.Time) Object {
	o := &submarinerv1.GlobalIngressIP{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       k.GetNamespace(),
			Name:            k.name(),
			Labels:          Ours(),
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
func (k *want) ownerReference() metav1.OwnerReference {
	return ingressOwner(k.target, k.owner.GetName(), k.owner.GetUID())
}

// matches reports whether the spec of an object is as wanted.
func (k *want) matches(o *submarinerv1.GlobalIngressIP) bool {
	name, other := o.Spec.PodRef, o.Spec.ServiceRef
	if k.target != submarinerv1.TargetHeadlessServicePod {
		name, other = other, name
	}
	return o.Spec.Target == k.target && name != nil && name.Name == k.owner.GetName() && other == nil
}

// keeps reports whether an object of ours is in every respect as wanted.
func (k *want) keeps(o *submarinerv1.GlobalIngressIP) bool {
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
