package cluster

import (
	"crypto/sha256"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/api/submariner/v1alpha1"
)

// nobody is the ID of the user and the group without rights.
const nobody = 65534

// Trial returns a pod that runs "subctl version" on a node, in the image of the gateways of
// sub, and then ends: it shows whether the node can pull and run the image. The pod has no rights.
func Trial(sub *v1alpha1.Submariner, node string) *corev1.Pod {
	image := GatewayImage(sub)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:      fmt.Sprintf("submariner-image-trial-%x", sha256.Sum256([]byte(node+" "+image)))[:40],
			Namespace: Namespace, Labels: ours(""),
		},
		Spec: corev1.PodSpec{
			NodeName: node, RestartPolicy: corev1.RestartPolicyNever,
			ServiceAccountName: GatewayName, AutomountServiceAccountToken: new(false), // has the pull secrets of the gateways
			TerminationGracePeriodSeconds: new(int64(0)), EnableServiceLinks: new(false),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: new(true), RunAsUser: new(int64(nobody)), RunAsGroup: new(int64(nobody)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{
				Name: "subctl", Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
				Command: []string{"subctl", "version"},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
}

// GatewayImage returns the image of the gateway agents.
func GatewayImage(sub *v1alpha1.Submariner) string { return Image(sub, gatewayComponent) }
