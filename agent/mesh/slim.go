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

// Slim returns what the role of Globalnet looks at of an object: its agent holds all pods, Services
// and endpoints of the cluster. Kinds of which there may be many thousands of objects become
// compact types of this package, and others keep their types. The result shares parts with the
// object. Slim does not change what it has returned before.
func Slim(o Object) Object {
	switch o := o.(type) {
	case *corev1.Pod:
		return newSlimPod(o)
	case *corev1.Service:
		return newSlimService(o)
	case *discoveryv1.EndpointSlice:
		return newSlimSlice(o)
	case *submarinerv1.GlobalIngressIP:
		return newSlimIngress(o)
	case *submarinerv1.GlobalEgressIP:
		return globalnet.Slim(o)
	case *mcsv1alpha1.ServiceExport:
		return newSlimExport(o)
	case *corev1.Node:
		return slimGateway(o)
	case *corev1.Namespace:
		return &corev1.Namespace{ObjectMeta: slimOwner(o.ObjectMeta)}
	}
	return o
}

// exact copies a list without spare capacity. Decoders leave room for at least four elements.
func exact[T any](list []T) []T { return append([]T(nil), list...) }

// identity keeps what identifies an object.
func identity(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: m.Name, Namespace: unique.Make(m.Namespace).Value(), UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
	}
}

// ownAddress are the annotations of all namespaces that ask for addresses of their own.
var ownAddress = map[string]string{submarinerv1.OwnGlobalIPAnnotation: submarinerv1.OwnGlobalIP}

// oddAddress are the annotations of all namespaces with another value.
var oddAddress = map[string]string{submarinerv1.OwnGlobalIPAnnotation: ""}

// slimOwner is like identity, and keeps the annotation that asks for addresses.
func slimOwner(m metav1.ObjectMeta) metav1.ObjectMeta {
	out := identity(m)
	switch value, has := m.Annotations[submarinerv1.OwnGlobalIPAnnotation]; {
	case value == submarinerv1.OwnGlobalIP:
		out.Annotations = ownAddress
	case has: // of any length
		out.Annotations = oddAddress
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
	slim := &corev1.Node{ObjectMeta: identity(n.ObjectMeta)}
	keepLabel(&slim.ObjectMeta, n.ObjectMeta, submarinerv1.GatewayNodeLabel)
	keepAnnotation(&slim.ObjectMeta, n.ObjectMeta, submarinerv1.WeightAnnotation)
	keepAnnotation(&slim.ObjectMeta, n.ObjectMeta, submarinerv1.DrainAnnotation)
	return slim
}
