package cluster

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/internal/kube"
)

// secretsChangedAnnotation, on a gateway pod, is the time when a Secret that it mounts was changed.
const secretsChangedAnnotation = "submariner.io/secrets-changed"

// RereadSecrets makes the kubelets update the mounted Secrets of the gateway pods now, instead of
// within two minutes: a kubelet reads the Secrets of a pod again when the pod changes, even if only
// an annotation does. The error is Forbidden if the user may not change pods.
func RereadSecrets(ctx context.Context, c client.Client, now time.Time) error {
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods, client.InNamespace(Namespace), client.MatchingLabels{"app": GatewayName}); err != nil {
		return fmt.Errorf("listing the gateway pods: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		was := pod.DeepCopy()
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, secretsChangedAnnotation, now.UTC().Format(time.RFC3339Nano))
		err := c.Patch(ctx, pod, client.MergeFrom(was), client.FieldOwner(kube.FieldOwner))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("annotating gateway pod %s: %w", pod.Name, err)
		}
	}
	return nil
}

// NoReread is the warning to a user for whom RereadSecrets is forbidden.
const NoReread = "you may not change pods, so it may take two minutes until the gateway reads the new %s"
