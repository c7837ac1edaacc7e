// Package gatewaynodes decides which nodes of a cluster are its gateway nodes: those that join
// labels, and those that replace gateway nodes that are gone. Its functions are pure: join calls
// them with what it has read, and the agent of package mesh's role GatewayNodes with what it
// watches.
package gatewaynodes

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	submarinerv1 "subctl/api/submariner/v1"
)

// IsGateway reports whether a node is labelled as a gateway.
func IsGateway(n *corev1.Node) bool { return n.Labels[submarinerv1.GatewayNodeLabel] == "true" }

// isOurs reports whether join, or the agent that replaces gateway nodes, has labelled a node.
func isOurs(n *corev1.Node) bool {
	return n.Annotations[submarinerv1.LabelledByAnnotation] == submarinerv1.ManagedBy
}

// ready returns the condition Ready of a node; nil if there is none.
func ready(n *corev1.Node) *corev1.NodeCondition {
	for i, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}

// IsReady reports whether a node is Ready.
func IsReady(n *corev1.Node) bool {
	c := ready(n)
	return c != nil && c.Status == corev1.ConditionTrue
}

// Unsuited returns why a node cannot become a gateway, such as "it is cordoned"; empty if it can.
func Unsuited(n *corev1.Node) string {
	label, labelled := n.Labels[submarinerv1.GatewayNodeLabel]
	switch {
	case labelled && label != "true":
		return "its label " + submarinerv1.GatewayNodeLabel + "=" + label + " excludes it"
	case NoPods(n) != "":
		return "it " + NoPods(n)
	case n.Spec.Unschedulable:
		return "it is cordoned"
	case Leaving(n) != "":
		return "it is about to be removed (" + Leaving(n) + ")"
	case !IsReady(n):
		return "it is not Ready"
	}
	return ""
}

// ForPods are the requirements on the labels of the nodes on which our pods run: Linux, and a
// kubelet with a kernel. A virtual node stands for a cloud service or another cluster. It has
// neither, and its provider gives a pod no network of a node. Such nodes often have the
// taint virtualTaint, too, but our pods tolerate every taint.
var ForPods = []corev1.NodeSelectorRequirement{
	{Key: corev1.LabelOSStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"linux"}},
	{Key: "type", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"virtual-kubelet", "kwok"}},
	{Key: "eks.amazonaws.com/compute-type", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"fargate"}},
	{Key: "liqo.io/type", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"virtual-node"}},
	// of AKS, on Azure Container Instances
	{Key: "virtualization", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"virtualnode2"}},
}

// virtualTaint is the key of the taint of virtual-kubelet's nodes.
const virtualTaint = "virtual-kubelet.io/provider"

// NoPods returns why no pod of ours runs on a node; empty if pods of ours can run there.
func NoPods(n *corev1.Node) string {
	for _, r := range ForPods {
		value, has := n.Labels[r.Key]
		switch {
		case r.Operator == corev1.NodeSelectorOpIn && !has:
			return "has no label " + r.Key
		case r.Operator == corev1.NodeSelectorOpIn && !slices.Contains(r.Values, value):
			return "runs " + value
		case r.Operator == corev1.NodeSelectorOpNotIn && slices.Contains(r.Values, value):
			return fmt.Sprintf("is virtual: %s=%s", r.Key, value)
		}
	}
	if slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == virtualTaint }) {
		return "is virtual: taint " + virtualTaint
	}
	return ""
}

// departures are the keys of taints of nodes whose machines are about to be removed, or are shut
// down.
var departures = []string{
	"ToBeDeletedByClusterAutoscaler",
	"karpenter.sh/disrupted",
	"karpenter.sh/disruption", // before Karpenter 1.0
	"aws-node-termination-handler/spot-itn",
	"aws-node-termination-handler/asg-lifecycle-termination",
	"aws-node-termination-handler/rebalance-recommendation",
	"cloud.google.com/impending-node-termination",
	corev1.TaintNodeOutOfService,
	"node.cloudprovider.kubernetes.io/shutdown",
}

// KeepsTaint reports whether Unsuited or Leaving depend on a taint.
func KeepsTaint(key string) bool { return key == virtualTaint || slices.Contains(departures, key) }

// KeepsLabel reports whether functions of this package depend on a label of a node.
func KeepsLabel(key string) bool {
	switch key {
	case submarinerv1.GatewayNodeLabel, submarinerv1.PublicIPAnnotation, corev1.LabelTopologyZone, controlLabel,
		masterLabel:
		return true
	}
	return slices.ContainsFunc(ForPods, func(r corev1.NodeSelectorRequirement) bool { return r.Key == key })
}

// Leaving returns the reason why the machine of a node is known to be about to leave: a taint, or
// its deletion; empty if there is none.
func Leaving(n *corev1.Node) string {
	if n.DeletionTimestamp != nil {
		return "deleted"
	}
	for _, t := range n.Spec.Taints {
		if slices.Contains(departures, t.Key) {
			return "taint " + t.Key
		}
	}
	return ""
}

const (
	controlLabel = "node-role.kubernetes.io/control-plane"
	masterLabel  = "node-role.kubernetes.io/master" // before Kubernetes 1.25
)

// IsControl reports whether a node belongs to the control plane. Such nodes become gateways last.
func IsControl(n *corev1.Node) bool {
	_, control := n.Labels[controlLabel]
	_, master := n.Labels[masterLabel]
	return control || master
}

// Zone returns the zone of a node; empty if it has none. All nodes without a zone are in one.
func Zone(n *corev1.Node) string { return n.Labels[corev1.LabelTopologyZone] }

// Choose returns up to n of the candidates, to become gateways in addition to those that are there:
// each time the first node by name of the zone with the fewest gateways. It takes nodes of the
// control plane after all others.
func Choose(there, candidates []*corev1.Node, n int) (choice []*corev1.Node) {
	gateways := map[string]int{} // by zone
	for _, node := range there {
		gateways[Zone(node)]++
	}
	left := slices.Clone(candidates)
	for len(choice) < n && len(left) > 0 {
		next := slices.MinFunc(left, func(a, b *corev1.Node) int {
			return cmp.Or(compareBool(IsControl(a), IsControl(b)), cmp.Compare(gateways[Zone(a)], gateways[Zone(b)]),
				cmp.Compare(a.Name, b.Name))
		})
		left = slices.DeleteFunc(left, func(o *corev1.Node) bool { return o.Name == next.Name })
		gateways[Zone(next)]++
		choice = append(choice, next)
	}
	return choice
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
