package cluster

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/cluster/gatewaynodes"
)

// NoPods returns why no pod of ours runs on a node; empty if pods of ours can run there.
func NoPods(n corev1.Node) string { return gatewaynodes.NoPods(&n) }

// SuitedNodes returns the affinity to the nodes on which our pods can run.
func SuitedNodes() *corev1.Affinity {
	var all []corev1.NodeSelectorRequirement
	for _, r := range gatewaynodes.ForPods {
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

// PlaceDeployment makes the pods of a Deployment run in every cluster that has a node for them:
// they tolerate every taint, as the pods of the DaemonSets do, and they leave a node that is not
// Ready.
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
				TopologyKey:   corev1.LabelHostname,
				LabelSelector: &metav1.LabelSelector{MatchLabels: merged(pod.Labels)},
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
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
			Operator: corev1.TolerationOpExists, Effect: effect,
		})
	}
}

// everyTaint tolerates every taint, for as long as it is there: the pods of DaemonSets.
var everyTaint = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}

// Tolerated reports whether tolerations let a pod run on a node with these taints. If not, it
// returns the taint that does not.
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
