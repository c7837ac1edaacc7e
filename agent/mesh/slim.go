package mesh

import (
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/globalnet"
)

// Slim returns an object with what the role of Globalnet looks at: the cache of its agent holds all pods, Services and endpoints of the cluster. The
// result shares parts with the object. Kinds of which there are few stay as they are.
func Slim(o Object) Object {
	switch o := o.(type) {
	case *corev1.Pod:
		return slimPod(o)
	case *corev1.Service:
		return slimService(o)
	case *discoveryv1.EndpointSlice:
		return slimEndpointSlice(o)
	case *submarinerv1.GlobalIngressIP:
		return slimIngress(o)
	case *submarinerv1.GlobalEgressIP:
		return globalnet.Slim(o)
	case *mcsv1alpha1.ServiceExport:
		slim := &mcsv1alpha1.ServiceExport{ObjectMeta: slimMeta(o.ObjectMeta), Status: o.Status}
		slim.Generation, slim.Status.Conditions = o.Generation, exact(o.Status.Conditions)
		return slim
	case *corev1.Node:
		return slimGateway(o)
	case *corev1.Namespace:
		return &corev1.Namespace{ObjectMeta: slimOwner(o.ObjectMeta)}
	}
	return o
}

// exact copies a list without spare capacity. Decoders leave room for at least four elements.
func exact[T any](list []T) []T { return append([]T(nil), list...) }

// slimMeta keeps what identifies an object.
func slimMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: m.Name, Namespace: unique.Make(m.Namespace).Value(), UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
	}
}

// ownAddress are the annotations of all pods and namespaces that ask for addresses of their own.
var ownAddress = map[string]string{submarinerv1.OwnGlobalIPAnnotation: submarinerv1.OwnGlobalIP}

// slimOwner is like slimMeta, and keeps the annotation that asks for addresses.
func slimOwner(m metav1.ObjectMeta) metav1.ObjectMeta {
	out := slimMeta(m)
	if m.Annotations[submarinerv1.OwnGlobalIPAnnotation] == submarinerv1.OwnGlobalIP { // other values, of any length, mean nothing
		out.Annotations = ownAddress
	}
	return out
}

func keepAnnotation(out *metav1.ObjectMeta, m metav1.ObjectMeta, key string) {
	if v, ok := m.Annotations[key]; ok {
		metav1.SetMetaDataAnnotation(out, key, v)
	}
}

func keepLabel(out *metav1.ObjectMeta, m metav1.ObjectMeta, key string) {
	if v, ok := m.Labels[key]; ok {
		metav1.SetMetaDataLabel(out, key, v)
	}
}

// slimGateway keeps whether a node is a gateway, and whether pods use it.
func slimGateway(n *corev1.Node) *corev1.Node {
	slim := &corev1.Node{ObjectMeta: slimMeta(n.ObjectMeta)}
	keepLabel(&slim.ObjectMeta, n.ObjectMeta, submarinerv1.GatewayNodeLabel)
	keepAnnotation(&slim.ObjectMeta, n.ObjectMeta, submarinerv1.WeightAnnotation)
	keepAnnotation(&slim.ObjectMeta, n.ObjectMeta, submarinerv1.DrainAnnotation)
	return slim
}

// slimPod keeps the labels, by which GlobalEgressIPs select pods. Most pods share theirs with others, so their text is kept once.
func slimPod(p *corev1.Pod) *corev1.Pod {
	slim := &corev1.Pod{
		ObjectMeta: slimOwner(p.ObjectMeta), Spec: corev1.PodSpec{HostNetwork: p.Spec.HostNetwork},
		Status: corev1.PodStatus{Phase: p.Status.Phase, PodIP: p.Status.PodIP, PodIPs: exact(p.Status.PodIPs)},
	}
	for k, v := range p.Labels {
		metav1.SetMetaDataLabel(&slim.ObjectMeta, unique.Make(k).Value(), unique.Make(v).Value())
	}
	return slim
}

// someSelector is the selector of all Services that have one.
var someSelector = map[string]string{"any": "any"}

// slimService keeps whether there is a selector.
func slimService(s *corev1.Service) *corev1.Service {
	slim := &corev1.Service{ObjectMeta: slimMeta(s.ObjectMeta), Spec: corev1.ServiceSpec{Type: s.Spec.Type, ClusterIP: s.Spec.ClusterIP, ClusterIPs: exact(s.Spec.ClusterIPs)}}
	if len(s.Spec.Selector) > 0 {
		slim.Spec.Selector = someSelector
	}
	return slim
}

// ourLabels are the labels of all GlobalIngressIPs that the agent has made, of which there may be many thousands.
var ourLabels = Ours()

// slimIngress keeps who has made an object, and what the agent compares and writes. The status is written without labels and annotations,
// which that does not change.
func slimIngress(i *submarinerv1.GlobalIngressIP) *submarinerv1.GlobalIngressIP {
	slim := &submarinerv1.GlobalIngressIP{ObjectMeta: slimMeta(i.ObjectMeta), Spec: i.Spec, Status: i.Status}
	slim.Generation, slim.OwnerReferences, slim.Status.Conditions = i.Generation, exact(i.OwnerReferences), exact(i.Status.Conditions)
	if IsOurs(i) {
		slim.Labels = ourLabels
	}
	if v := i.Annotations[submarinerv1.HeadlessEndpointAnnotation]; v != "" && len(v) <= len("255.255.255.255") { // what is longer is a mistake, as is no address
		metav1.SetMetaDataAnnotation(&slim.ObjectMeta, submarinerv1.HeadlessEndpointAnnotation, v)
	}
	return slim
}

// slimEndpointSlice keeps addresses and pods. Whether the Service is headless, and exported, is not in it.
func slimEndpointSlice(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	slim := &discoveryv1.EndpointSlice{ObjectMeta: slimMeta(s.ObjectMeta), AddressType: s.AddressType}
	keepLabel(&slim.ObjectMeta, s.ObjectMeta, discoveryv1.LabelServiceName)
	slim.Endpoints = make([]discoveryv1.Endpoint, 0, len(s.Endpoints))
	for _, ep := range s.Endpoints {
		e := discoveryv1.Endpoint{Addresses: exact(ep.Addresses)}
		if ep.TargetRef != nil {
			e.TargetRef = &corev1.ObjectReference{Kind: ep.TargetRef.Kind, Name: ep.TargetRef.Name}
		}
		slim.Endpoints = append(slim.Endpoints, e)
	}
	return slim
}
