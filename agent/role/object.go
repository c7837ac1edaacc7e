package role

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	submarinerv1 "subctl/api/submariner/v1"
)

// IsGatewayNode reports whether a node has the label of gateway nodes.
func IsGatewayNode(n *corev1.Node) bool {
	return n != nil && n.Labels[submarinerv1.GatewayNodeLabel] == "true"
}

// KeyOf returns the namespace and the name of an object.
func KeyOf(o Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// Compare compares objects of a kind in the order that they have in a Snapshot: by namespace, then
// by name.
func Compare(x, y Object) int { return CompareKey(x, KeyOf(y)) }

// CompareKey compares an object with a key in that order.
func CompareKey(o Object, key types.NamespacedName) int {
	return CompareKeys(o.GetNamespace(), o.GetName(), key)
}

func CompareKeys(namespace, name string, key types.NamespacedName) int {
	return cmp.Or(strings.Compare(namespace, key.Namespace), strings.Compare(name, key.Name))
}

// Object is an object of the API server. It has the methods of controller-runtime's
// client.Object, which this package does not import, as it would bring a client with it.
type Object interface {
	metav1.Object
	runtime.Object
}

// Ours returns the labels of all objects that the globalnet agent makes; some have others, too.
func Ours() map[string]string {
	return map[string]string{submarinerv1.ManagedByLabel: submarinerv1.ManagedBy}
}

// IsOurs reports whether the globalnet agent has made an object.
func IsOurs(o Object) bool {
	return o.GetLabels()[submarinerv1.ManagedByLabel] == submarinerv1.ManagedBy
}
