package agent

import (
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"subctl/agent/mesh"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
)

// wholeCluster returns what the cache of an agent without a node holds of a kind: all objects of the cluster, slimmed
// if they are not ours.
func wholeCluster(kind client.Object, ours cache.ByObject) cache.ByObject {
	switch kind.(type) {
	case *v1alpha1.Submariner:
		return ours
	case *corev1.Pod:
		return cache.ByObject{Transform: slimPod}
	case *corev1.Service:
		return cache.ByObject{Transform: slimService}
	case *discoveryv1.EndpointSlice:
		return cache.ByObject{Transform: slimEndpointSlice}
	case *submarinerv1.GlobalIngressIP:
		return cache.ByObject{Transform: slimIngress}
	case *mcsv1alpha1.ServiceExport:
		return cache.ByObject{Transform: slimMetadata(func(e *mcsv1alpha1.ServiceExport) client.Object {
			slim := &mcsv1alpha1.ServiceExport{ObjectMeta: slimMeta(e.ObjectMeta), Status: e.Status}
			slim.Generation = e.Generation
			return slim
		})}
	case *corev1.Node:
		return cache.ByObject{Transform: slimMetadata(func(n *corev1.Node) client.Object {
			return &corev1.Node{ObjectMeta: slimMeta(n.ObjectMeta, submarinerv1.GatewayNodeLabel)}
		})}
	case *corev1.Namespace:
		return cache.ByObject{Transform: slimMetadata(func(n *corev1.Namespace) client.Object {
			return &corev1.Namespace{ObjectMeta: slimMeta(n.ObjectMeta)}
		})}
	}
	return cache.ByObject{}
}

// slimMetadata returns a transformation of objects of type T.
func slimMetadata[T client.Object](slim func(T) client.Object) func(any) (any, error) {
	return func(obj any) (any, error) {
		if o, ok := obj.(T); ok {
			return slim(o), nil
		}
		return obj, nil
	}
}

// slimMeta keeps what identifies an object, the annotation that asks for addresses, and some labels.
func slimMeta(m metav1.ObjectMeta, labels ...string) metav1.ObjectMeta {
	out := metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
	}
	for _, l := range labels {
		if v, ok := m.Labels[l]; ok {
			metav1.SetMetaDataLabel(&out, l, v)
		}
	}
	if v, ok := m.Annotations[submarinerv1.OwnGlobalIPAnnotation]; ok {
		metav1.SetMetaDataAnnotation(&out, submarinerv1.OwnGlobalIPAnnotation, v)
	}
	return out
}

// slimPod keeps the labels, by which GlobalEgressIPs select pods. Most pods share theirs with others, so their text is kept once.
func slimPod(obj any) (any, error) {
	return slimMetadata(func(p *corev1.Pod) client.Object {
		slim := &corev1.Pod{
			ObjectMeta: slimMeta(p.ObjectMeta), Spec: corev1.PodSpec{HostNetwork: p.Spec.HostNetwork},
			Status: corev1.PodStatus{Phase: p.Status.Phase, PodIP: p.Status.PodIP, PodIPs: p.Status.PodIPs},
		}
		for k, v := range p.Labels {
			metav1.SetMetaDataLabel(&slim.ObjectMeta, unique.Make(k).Value(), unique.Make(v).Value())
		}
		return slim
	})(obj)
}

// someSelector is the selector of all Services that have one.
var someSelector = map[string]string{"any": "any"}

// slimService keeps whether there is a selector.
func slimService(obj any) (any, error) {
	return slimMetadata(func(s *corev1.Service) client.Object {
		slim := &corev1.Service{ObjectMeta: slimMeta(s.ObjectMeta), Spec: corev1.ServiceSpec{Type: s.Spec.Type, ClusterIP: s.Spec.ClusterIP}}
		if len(s.Spec.Selector) > 0 {
			slim.Spec.Selector = someSelector
		}
		return slim
	})(obj)
}

// ourLabels are the labels of all GlobalIngressIPs that the agent has made, of which there may be many thousands.
var ourLabels = mesh.Ours()

// slimIngress keeps who has made an object, and what the agent compares and writes. The status is written without labels and annotations,
// which that does not change.
func slimIngress(obj any) (any, error) {
	return slimMetadata(func(i *submarinerv1.GlobalIngressIP) client.Object {
		slim := &submarinerv1.GlobalIngressIP{ObjectMeta: slimMeta(i.ObjectMeta), Spec: i.Spec, Status: i.Status}
		slim.Generation, slim.OwnerReferences = i.Generation, i.OwnerReferences
		if mesh.IsOurs(i) {
			slim.Labels = ourLabels
		}
		if v, ok := i.Annotations[submarinerv1.HeadlessEndpointAnnotation]; ok {
			metav1.SetMetaDataAnnotation(&slim.ObjectMeta, submarinerv1.HeadlessEndpointAnnotation, v)
		}
		return slim
	})(obj)
}

// slimEndpointSlice keeps addresses and pods. Whether the Service is headless, and exported, is not in it.
func slimEndpointSlice(obj any) (any, error) {
	return slimMetadata(func(s *discoveryv1.EndpointSlice) client.Object {
		slim := &discoveryv1.EndpointSlice{ObjectMeta: slimMeta(s.ObjectMeta, discoveryv1.LabelServiceName), AddressType: s.AddressType}
		for _, ep := range s.Endpoints {
			e := discoveryv1.Endpoint{Addresses: ep.Addresses}
			if ep.TargetRef != nil {
				e.TargetRef = &corev1.ObjectReference{Kind: ep.TargetRef.Kind, Name: ep.TargetRef.Name}
			}
			slim.Endpoints = append(slim.Endpoints, e)
		}
		return slim
	})(obj)
}
