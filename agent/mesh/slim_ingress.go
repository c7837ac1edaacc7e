package mesh

import (
	"net/netip"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
)

// slimIngress is a GlobalIngressIP: who has made it, what the agent compares, and its status. What
// is as in nearly all of them takes few bytes.
type slimIngress struct {
	slimMeta
	version    string
	generation int64
	ingress
	ours bool
	held ipv4 // the address in the status
	// allocated reports whether the only condition is exactly what allocatedTrue returns; since is
	// the time at which it became True.
	allocated bool
	since     int64
	ownerUID  types.UID
	odd       *oddIngress // nil if there is nothing else
}

// oddIngress has what few GlobalIngressIPs have, in place of compact values. It has no conditions
// if allocated is set.
type oddIngress struct {
	spec       submarinerv1.GlobalIngressIPSpec
	owners     []metav1.OwnerReference
	held       string
	conditions []metav1.Condition
}

// ingress is the pod, Service or endpoint for which a GlobalIngressIP stands.
type ingress struct {
	ref      string // the pod or the Service
	target   target
	endpoint ipv4 // that it stands for
}

// target is the target of a GlobalIngressIP with the reference that it needs and no other.
type target uint8

// The targets. The owner of the object for a pod is that pod, and the owner of others is the
// ServiceExport with the name of the Service.
const (
	targetOdd target = iota
	targetPod
	targetService
	targetEndpoint
)

var targetNames = [...]submarinerv1.GlobalIngressTarget{
	targetPod:      submarinerv1.TargetHeadlessServicePod,
	targetService:  submarinerv1.TargetClusterIPService,
	targetEndpoint: submarinerv1.TargetHeadlessServiceEndpoints,
}

// spec returns the spec of an object that stands for i, which is not targetOdd.
func (i ingress) spec() submarinerv1.GlobalIngressIPSpec {
	spec := submarinerv1.GlobalIngressIPSpec{Target: targetNames[i.target]}
	if ref := (&corev1.LocalObjectReference{Name: i.ref}); i.target == targetPod {
		spec.PodRef = ref
	} else {
		spec.ServiceRef = ref
	}
	return spec
}

// owner returns the reference to the owner of an object that stands for i.
func (i ingress) owner(uid types.UID) []metav1.OwnerReference {
	o := metav1.OwnerReference{
		APIVersion: mcsv1alpha1.GroupVersion.String(),
		Kind:       mcsv1alpha1.ServiceExportKindName,
		Name:       i.ref,
		UID:        uid,
	}
	if i.target == targetPod {
		o.APIVersion = "v1"
		o.Kind = "Pod"
	}
	return []metav1.OwnerReference{o}
}

func newSlimIngress(o *submarinerv1.GlobalIngressIP) *slimIngress {
	slim := &slimIngress{
		slimMeta: newSlimMeta(&o.ObjectMeta), version: o.ResourceVersion, generation: o.Generation, ours: IsOurs(o),
		held: parseIPv4(o.Status.AllocatedIP),
	}
	slim.endpoint = parseIPv4(endpointOf(o)) // other text is a mistake, as none is
	for _, ref := range []*corev1.LocalObjectReference{o.Spec.PodRef, o.Spec.ServiceRef} {
		if ref != nil && slim.ref == "" {
			slim.ref = part(slim.name, ref.Name)
		}
	}
	slim.target = target(max(0, slices.Index(targetNames[:], o.Spec.Target)))
	if slim.target == targetOdd || slim.ref == "" || !reflect.DeepEqual(slim.spec(), o.Spec) {
		slim.target = targetOdd
		slim.ref = ""
	}
	if len(o.OwnerReferences) == 1 && slim.target != targetOdd &&
		reflect.DeepEqual(slim.owner(o.OwnerReferences[0].UID), o.OwnerReferences) {
		slim.ownerUID = o.OwnerReferences[0].UID
	}
	if cs := o.Status.Conditions; len(cs) == 1 && slim.held.is {
		slim.allocated = true
		slim.since = cs[0].LastTransitionTime.Unix()
		slim.allocated = sameConditions(slim.Conditions(), cs)
	}
	if slim.ownerUID == "" || !slim.allocated && len(o.Status.Conditions) > 0 ||
		slim.held.String() != o.Status.AllocatedIP {
		slim.odd = &oddIngress{spec: o.Spec, owners: exact(o.OwnerReferences), held: o.Status.AllocatedIP}
		if !slim.allocated {
			slim.odd.conditions = exact(o.Status.Conditions)
		}
	}
	return slim
}

// endpointOf returns the endpoint that a GlobalIngressIP stands for; empty if it stands for
// something else.
func endpointOf(o *submarinerv1.GlobalIngressIP) string {
	return o.Annotations[submarinerv1.HeadlessEndpointAnnotation]
}

// Conditions returns the conditions of the status.
func (o *slimIngress) Conditions() []metav1.Condition {
	if o.allocated {
		c := allocatedTrue(o.held.String())
		c.ObservedGeneration = o.generation
		c.LastTransitionTime = metav1.Unix(o.since, 0)
		return []metav1.Condition{c}
	}
	if o.odd != nil {
		return slices.Clone(o.odd.conditions)
	}
	return nil
}

// full returns the object of the API. It has the labels and annotations that the agent knows: a
// written status changes none.
func (o *slimIngress) full() *submarinerv1.GlobalIngressIP {
	out := &submarinerv1.GlobalIngressIP{ObjectMeta: o.objectMeta()}
	out.ResourceVersion = o.version
	out.Generation = o.generation
	if o.ours {
		out.Labels = Ours()
	}
	if o.endpoint.is {
		out.Annotations = map[string]string{submarinerv1.HeadlessEndpointAnnotation: o.endpoint.String()}
	}
	out.Status = submarinerv1.GlobalIngressIPStatus{AllocatedIP: o.held.String(), Conditions: o.Conditions()}
	if o.odd != nil {
		out.Spec = *o.odd.spec.DeepCopy()
		out.OwnerReferences = slices.Clone(o.odd.owners)
		out.Status.AllocatedIP = o.odd.held
	} else {
		out.Spec = o.spec()
		out.OwnerReferences = o.owner(o.ownerUID)
	}
	return out
}

// draw implements draft.
func (o *slimIngress) draw(time.Time) Object { return o.full() }

// pod returns the pod that an object stands for; false if it stands for something else.
func (o *slimIngress) pod() (name string, is bool) {
	if o.target == targetOdd {
		return nameIn(o.odd.spec.Target == submarinerv1.TargetHeadlessServicePod, o.odd.spec.PodRef)
	}
	return o.ref, o.target == targetPod
}

// service returns the Service that an object stands for; false if it stands for something else.
func (o *slimIngress) service() (name string, is bool) {
	if o.target == targetOdd {
		return nameIn(o.odd.spec.Target == submarinerv1.TargetClusterIPService, o.odd.spec.ServiceRef)
	}
	return o.ref, o.target == targetService
}

// nameIn returns the name in a reference, if the object stands for its kind and has one.
func nameIn(is bool, ref *corev1.LocalObjectReference) (string, bool) {
	if !is || ref == nil {
		return "", false
	}
	return ref.Name, true
}

// forEndpoint reports whether an object stands for an endpoint of a headless Service.
func (o *slimIngress) forEndpoint() bool {
	return o.target == targetEndpoint ||
		o.target == targetOdd && o.odd.spec.Target == submarinerv1.TargetHeadlessServiceEndpoints
}

// GetGeneration implements metav1.Object.
func (o *slimIngress) GetGeneration() int64 { return o.generation }

// GetResourceVersion implements metav1.Object.
func (o *slimIngress) GetResourceVersion() string { return o.version }

// SetResourceVersion implements metav1.Object.
func (o *slimIngress) SetResourceVersion(version string) { o.version = version }

// DeepCopyObject implements runtime.Object.
func (o *slimIngress) DeepCopyObject() runtime.Object { c := *o; return &c }

// sameConditions reports whether two lists have the same conditions, in the same order and since
// the same time.
func sameConditions(a, b []metav1.Condition) bool {
	return slices.EqualFunc(a, b, func(x, y metav1.Condition) bool {
		same := x.LastTransitionTime.Time.Equal(y.LastTransitionTime.Time)
		x.LastTransitionTime = y.LastTransitionTime
		return same && x == y
	})
}

// heldText returns the address in the status as it is there; empty if it has none.
func (o *slimIngress) heldText() string {
	if o.odd != nil {
		return o.odd.held
	}
	return o.held.String()
}

// heldAddr returns the address in the status, which is the zero Addr for other text; false if it
// has none.
func (o *slimIngress) heldAddr() (netip.Addr, bool) {
	return o.held.addr(), o.held.is || o.odd != nil && o.odd.held != ""
}
