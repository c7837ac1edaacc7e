package cluster

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cluster/gatewaynodes"
)

// GatewayNode returns a node with the label and the annotation that make it a gateway.
// Join and the agent that replaces gateway nodes add them, and uninstall removes them.
func GatewayNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:        name,
		Labels:      map[string]string{submarinerv1.GatewayNodeLabel: "true"},
		Annotations: map[string]string{LabelledByAnnotation: ManagedBy},
	}}
}

// IsGateway reports whether a node is labelled as a gateway.
func IsGateway(n corev1.Node) bool { return gatewaynodes.IsGateway(&n) }

// IsReady reports whether a node is Ready.
func IsReady(n corev1.Node) bool { return gatewaynodes.IsReady(&n) }
