package allocator

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/globalnet"
)

// Slim returns what the role of Globalnet looks at of an object: its agent holds all pods, Services
// and endpoints of the cluster. The result shares parts with the object.
func Slim(o role.Object) role.Object {
	switch o := o.(type) {
	case *corev1.Pod:
		slim := &corev1.Pod{ObjectMeta: slimOwner(o.ObjectMeta)}
		slim.Labels = o.Labels // by which GlobalEgressIPs select pods
		slim.Spec.HostNetwork = o.Spec.HostNetwork
		slim.Status.Phase = o.Status.Phase
		slim.Status.PodIP = o.Status.PodIP
		slim.Status.PodIPs = o.Status.PodIPs
		return slim
	case *corev1.Service:
		slim := &corev1.Service{ObjectMeta: slimOwner(o.ObjectMeta)}
		slim.Spec.Type = o.Spec.Type
		slim.Spec.ClusterIP = o.Spec.ClusterIP
		slim.Spec.ClusterIPs = o.Spec.ClusterIPs
		if len(o.Spec.Selector) > 0 {
			slim.Spec.Selector = role.AnySelector
		}
		return slim
	case *discoveryv1.EndpointSlice:
		return slimSlice(o)
	case *submarinerv1.GlobalIngressIP:
		slim := &submarinerv1.GlobalIngressIP{ObjectMeta: role.Identity(o.ObjectMeta), Spec: o.Spec, Status: o.Status}
		slim.Generation = o.Generation
		slim.OwnerReferences = o.OwnerReferences
		role.KeepLabel(&slim.ObjectMeta, o.ObjectMeta, submarinerv1.ManagedByLabel)
		role.KeepAnnotation(&slim.ObjectMeta, o.ObjectMeta, submarinerv1.HeadlessEndpointAnnotation)
		return slim
	case *submarinerv1.GlobalEgressIP:
		return globalnet.Slim(o)
	case *mcsv1alpha1.ServiceExport:
		slim := &mcsv1alpha1.ServiceExport{ObjectMeta: role.Identity(o.ObjectMeta), Status: o.Status}
		slim.Generation = o.Generation
		return slim
	case *corev1.Node:
		slim := &corev1.Node{
			ObjectMeta: role.Identity(o.ObjectMeta),
		} // whether it is a gateway, and whether pods use it
		role.KeepLabel(&slim.ObjectMeta, o.ObjectMeta, submarinerv1.GatewayNodeLabel)
		role.KeepAnnotation(&slim.ObjectMeta, o.ObjectMeta, submarinerv1.WeightAnnotation)
		role.KeepAnnotation(&slim.ObjectMeta, o.ObjectMeta, submarinerv1.DrainAnnotation)
		return slim
	case *corev1.Namespace:
		return &corev1.Namespace{ObjectMeta: slimOwner(o.ObjectMeta)}
	}
	return o
}

// slimSlice keeps the Service and the endpoints of an EndpointSlice.
func slimSlice(o *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	slim := &discoveryv1.EndpointSlice{
		ObjectMeta: role.Identity(o.ObjectMeta),
		Endpoints:  make([]discoveryv1.Endpoint, len(o.Endpoints)),
	}
	role.KeepLabel(&slim.ObjectMeta, o.ObjectMeta, discoveryv1.LabelServiceName)
	for i, ep := range o.Endpoints {
		slim.Endpoints[i].Addresses = ep.Addresses
		if ref := ep.TargetRef; ref != nil {
			slim.Endpoints[i].TargetRef = &corev1.ObjectReference{Kind: ref.Kind, Name: ref.Name}
		}
	}
	return slim
}

// longestAddress is the length of the longest text that can be an address.
const longestAddress = len("ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255")

// slimOwner is like identity, and keeps the annotation that asks for addresses, and the one that
// tells users the address. Whoever may write annotations can make them long: text that cannot be
// right is cut.
func slimOwner(m metav1.ObjectMeta) metav1.ObjectMeta {
	out := role.Identity(m)
	if value, has := m.Annotations[submarinerv1.OwnGlobalIPAnnotation]; has {
		if value != submarinerv1.OwnGlobalIP {
			value = ""
		}
		metav1.SetMetaDataAnnotation(&out, submarinerv1.OwnGlobalIPAnnotation, value)
	}
	if value, has := m.Annotations[submarinerv1.GlobalIPAnnotation]; has {
		metav1.SetMetaDataAnnotation(&out, submarinerv1.GlobalIPAnnotation, value[:min(len(value), longestAddress)])
	}
	return out
}
