package cluster

import (
	"crypto/sha256"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/api/submariner/v1alpha1"
)

// Trial returns a pod that runs "subctl version" on a node, and then ends. Otherwise it is the pod
// of a gateway of sub, with everything that an API server or a kubelet can reject: image,
// ServiceAccount, priority class, limits, network of the node, capabilities, volumes. If it ends
// well, the pod of a gateway can be created and started there.
//
// It differs in three ways. Its labels are not those by which the DaemonSet finds its pods. It has
// no ports, because on the node the gateway that is to be replaced uses them. And it is assigned to
// its node, not scheduled.
func Trial(sub *v1alpha1.Submariner, node string) *corev1.Pod {
	template := gateway(sub, 0).Spec.Template
	name := fmt.Sprintf("submariner-image-trial-%x", sha256.Sum256([]byte(node+" "+GatewayImage(sub))))[:40]
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace, Labels: ours("")},
		Spec:       template.Spec,
	}
	pod.Spec.NodeName = node
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.TerminationGracePeriodSeconds = new(int64(0))
	c := &pod.Spec.Containers[0]
	c.Args = []string{"version"}
	c.Ports = nil
	return pod
}

// GatewayImage returns the image of the gateway agents.
func GatewayImage(sub *v1alpha1.Submariner) string { return Image(sub, gatewayComponent) }
