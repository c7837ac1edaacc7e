package cluster

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// onNodes are the requirements on the labels of the nodes on which our pods run: Linux, and a
// kubelet with a kernel. A virtual node stands for a cloud service or another cluster. It has
// neither, and its provider gives a pod no network of a node. Such nodes often have the
// taint virtualTaint, too, but our pods tolerate every taint.
var onNodes = []corev1.NodeSelectorRequirement{
	{Key: corev1.LabelOSStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"linux"}},
	{Key: "type", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"virtual-kubelet", "kwok"}},
	{Key: "eks.amazonaws.com/compute-type", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"fargate"}},
	{Key: "liqo.io/type", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"virtual-node"}},
	{Key: "virtualization", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"virtualnode2"}}, // of AKS, on Azure Container Instances
}

// virtualTaint is the key of the taint of virtual-kubelet's nodes.
const virtualTaint = "virtual-kubelet.io/provider"

// Unsuited returns why no pod of ours runs on a node; empty if pods of ours can run there.
func Unsuited(n corev1.Node) string {
	for _, r := range onNodes {
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

// SuitedNodes returns the affinity to the nodes on which our pods can run.
func SuitedNodes() *corev1.Affinity {
	var all []corev1.NodeSelectorRequirement
	for _, r := range onNodes {
		all = append(all, *r.DeepCopy())
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: all}},
		},
	}}
}

// evictSeconds is the time for which a pod of a Deployment stays on a node that is not Ready:
// a kubelet that restarts is back before that. Kubernetes' default is five minutes.
const evictSeconds = 15

// PlaceDeployment makes the pods of a Deployment run in every cluster that has a node for them: they
// tolerate every taint, as the pods of the DaemonSets do, and they leave a node that is not Ready.
//
// Every taint includes the taints of nodes that are not Ready or are being drained. There, the
// pod that is to be replaced still exists when the new pod is scheduled, so new pods avoid nodes
// with a pod that has the labels of the template.
func PlaceDeployment(pod *corev1.PodTemplateSpec) {
	pod.Spec.Affinity = SuitedNodes()
	pod.Spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
			Weight: 100,
			PodAffinityTerm: corev1.PodAffinityTerm{
				TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: merged(pod.Labels)},
			},
		}},
	}
	pod.Spec.Tolerations = nil
	// The first toleration that matches a taint counts: these two are before the general one.
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
			Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
			TolerationSeconds: new(int64(evictSeconds)),
		})
	}
	for _, effect := range []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute} {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: effect})
	}
}

// everyTaint tolerates every taint, for as long as it is there: the pods of DaemonSets.
var everyTaint = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}

// Tolerated reports whether tolerations let a pod run on a node with these taints. If not, it returns
// the taint that does not.
func Tolerated(taints []corev1.Taint, tolerations []corev1.Toleration) (corev1.Taint, bool) {
	for _, taint := range taints {
		if taint.Effect == corev1.TaintEffectPreferNoSchedule {
			continue
		}
		if !slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool { return tolerates(t, taint) }) {
			return taint, false
		}
	}
	return corev1.Taint{}, true
}

// tolerates reports whether a toleration matches a taint.
func tolerates(t corev1.Toleration, taint corev1.Taint) bool {
	switch {
	case t.Effect != "" && t.Effect != taint.Effect, t.Key != "" && t.Key != taint.Key:
		return false
	case t.Operator == corev1.TolerationOpExists:
		return true
	}
	return t.Key != "" && t.Value == taint.Value
}
