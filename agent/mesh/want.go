package mesh

import (
	"fmt"
	"hash/fnv"
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
	target   target
	endpoint ipv4
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
	case targetPod:
		return podIngress(name)
	case targetEndpoint:
		return fmt.Sprintf("ep-%.44s-%.15s", name, k.endpoint) // upstream
	default:
		return name
	}
}

// GetNamespace implements draft.
func (k *want) GetNamespace() string { return k.owner.GetNamespace() }

// draw implements draft.
func (k *want) draw(time.Time) Object {
	of := ingress{k.owner.GetName(), k.target, k.endpoint}
	o := &submarinerv1.GlobalIngressIP{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       k.GetNamespace(),
			Name:            k.name(),
			Labels:          Ours(),
			OwnerReferences: of.owner(k.owner.GetUID()),
		},
		Spec: of.spec(),
	}
	if o.Spec.ServiceRef != nil {
		o.Labels[submarinerv1.ServiceRefLabel] = o.Spec.ServiceRef.Name
	}
	if k.endpoint.is {
		o.Annotations = map[string]string{submarinerv1.HeadlessEndpointAnnotation: k.endpoint.String()}
	}
	return o
}

// is reports whether the spec of an object is as wanted. Then its ownerUID, if there is one, is of
// an owner with the right kind and name.
func (o *slimIngress) is(k *want) bool { return o.target == k.target && o.ref == k.owner.GetName() }

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
