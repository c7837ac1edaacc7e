// Package broker is where clusters meet: the objects of a broker, the join file that invites
// a cluster, and the identity and rights of each member. Package exchange copies objects
// between the broker and its members; package trust has what is signed.
//
// A broker consists of namespaces, custom resources, RBAC and admission policies on the API
// server of some cluster. No pod runs there, and no secret that clusters share is stored
// there: the pre-shared key and the administrator's signing key are in the join file, and the
// broker has the fingerprint of the one and the public half of the other.
//
// The package does not know flags, kubeconfigs or kernels: packages cmd and agent do.
package broker

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/globalnet"
	"subctl/internal/kube"
)

// Apply applies objects that Render returned, and waits until their kinds are served. It may
// be interrupted and repeated.
func Apply(ctx context.Context, c client.Client, objects []client.Object) error {
	return kube.Install(ctx, c, kube.FieldOwner, objects, func(ctx context.Context, obj client.Object) error {
		switch obj := obj.(type) {
		case *corev1.ConfigMap:
			return applyGlobalnetInfo(ctx, c, obj)
		case *corev1.ResourceQuota:
			if err := kube.ApplyServed(ctx, c, kube.FieldOwner, obj); err != nil {
				return err
			}
			if err := startQuota(ctx, c, client.ObjectKeyFromObject(obj)); err != nil {
				return fmt.Errorf("putting the quota of namespace %s in force: %w", obj.Namespace, err)
			}
			return nil
		}
		return kube.ApplyServed(ctx, c, kube.FieldOwner, obj)
	})
}

// startQuota makes a quota count from zero where it has no count yet. Kubernetes' own
// controller counts what exists, but for a new kind only after half a minute, and until
// there is a count the API server refuses to create objects of the kind.
func startQuota(ctx context.Context, c client.Client, key client.ObjectKey) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		q := &corev1.ResourceQuota{}
		if err := c.Get(ctx, key, q); err != nil {
			return err
		}
		used := maps.Clone(q.Status.Used)
		if used == nil {
			used = corev1.ResourceList{}
		}
		for name := range q.Spec.Hard {
			if _, counted := used[name]; !counted {
				used[name] = resource.Quantity{Format: resource.DecimalSI}
			}
		}
		if len(used) == len(q.Status.Used) {
			return nil
		}
		q.Status.Hard = q.Spec.Hard
		q.Status.Used = used
		return c.Status().Update(ctx, q, client.FieldOwner(kube.FieldOwner))
	})
}

// applyGlobalnetInfo creates the record of global networks unless it exists, and applies everything
// except the clusters' entries, which joining clusters write.
func applyGlobalnetInfo(ctx context.Context, c client.Client, info *corev1.ConfigMap) error {
	err := c.Create(ctx, info.DeepCopy(), client.FieldOwner(kube.FieldOwner))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating ConfigMap %s: %w", client.ObjectKeyFromObject(info), err)
	}
	// Also a new one, so that deploying again changes nothing, not even who manages its fields.
	settings := info.DeepCopy()
	delete(settings.Data, globalnet.ClusterInfoKey)
	return kube.Apply(ctx, c, kube.FieldOwner, settings)
}
