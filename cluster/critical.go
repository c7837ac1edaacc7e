package cluster

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The priority classes of our pods.
const (
	nodeCritical    = "system-node-critical"
	clusterCritical = "system-cluster-critical"
)

// CriticalPods returns a ResourceQuota that permits pods with Kubernetes' critical priority
// classes in a namespace. GKE, and API servers that limit these classes, permit them
// only in kube-system and in namespaces with such a quota. Elsewhere it has no effect: it permits
// more pods than any cluster has.
func CriticalPods(namespace string) *corev1.ResourceQuota {
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "submariner-critical-pods", Namespace: namespace, Labels: ours("")},
		Spec: corev1.ResourceQuotaSpec{
			Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1G")},
			ScopeSelector: &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{{
				ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpIn,
				Values: []string{nodeCritical, clusterCritical},
			}}},
		},
	}
}
