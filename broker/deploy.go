package broker

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/globalnet"
	"subctl/internal/kube"
	"subctl/internal/wake"
)

// applyTimeout bounds the wait until the API server serves new kinds.
const applyTimeout = 30 * time.Second

// Apply applies objects that Render returned, and waits until their kinds are served. It may
// be interrupted and repeated.
func Apply(ctx context.Context, c client.Client, objects []client.Object) error {
	ctx, cancel := context.WithTimeoutCause(ctx, applyTimeout,
		fmt.Errorf("the API server did not serve what was applied within %s", applyTimeout))
	defer cancel()
	var definitions []*apiextensionsv1.CustomResourceDefinition
	for _, obj := range objects {
		crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
		if !ok {
			continue
		}
		if err := kube.Apply(ctx, c, kube.FieldOwner, crd); err != nil {
			return err
		}
		definitions = append(definitions, crd)
	}
	for _, crd := range definitions {
		if err := waitEstablished(ctx, c, crd.Name); err != nil {
			return err
		}
	}
	for _, obj := range objects {
		switch obj := obj.(type) {
		case *apiextensionsv1.CustomResourceDefinition:
			continue
		case *corev1.ConfigMap:
			if err := applyGlobalnetInfo(ctx, c, obj); err != nil {
				return err
			}
			continue
		}
		if err := applyServed(ctx, c, obj); err != nil {
			return err
		}
		if q, ok := obj.(*corev1.ResourceQuota); ok {
			if err := startQuota(ctx, c, client.ObjectKeyFromObject(q)); err != nil {
				return fmt.Errorf("putting the quota of namespace %s in force: %w", q.Namespace, err)
			}
		}
	}
	return nil
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
		q.Status.Hard, q.Status.Used = q.Spec.Hard, used
		return c.Status().Update(ctx, q, client.FieldOwner(kube.FieldOwner))
	})
}

// applyServed applies obj, whose kind or namespace may not be served yet.
func applyServed(ctx context.Context, c client.Client, obj client.Object) error {
	for {
		err := kube.Apply(ctx, c, kube.FieldOwner, obj)
		if err == nil || !kube.NotThere(err) {
			return err
		}
		if wake.After(ctx, 100*time.Millisecond) != nil {
			return err
		}
	}
}

func waitEstablished(ctx context.Context, c client.Client, name string) error {
	for {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := c.Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
			return fmt.Errorf("waiting for the CRD %s: %w", name, err)
		}
		for _, cond := range crd.Status.Conditions {
			if cond.Type == apiextensionsv1.Established && cond.Status == apiextensionsv1.ConditionTrue {
				return nil
			}
			if cond.Type == apiextensionsv1.NamesAccepted && cond.Status == apiextensionsv1.ConditionFalse {
				return fmt.Errorf("the CRD %s is refused: %s", name, cond.Message)
			}
		}
		if err := wake.After(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("waiting for the CRD %s: %w", name, err)
		}
	}
}

// applyGlobalnetInfo creates the record of global networks. If it exists, everything except
// the clusters' entries is applied: joining clusters write the entries.
func applyGlobalnetInfo(ctx context.Context, c client.Client, info *corev1.ConfigMap) error {
	err := c.Create(ctx, info.DeepCopy(), client.FieldOwner(kube.FieldOwner))
	if !apierrors.IsAlreadyExists(err) {
		if err != nil {
			return fmt.Errorf("creating ConfigMap %s: %w", client.ObjectKeyFromObject(info), err)
		}
		return nil
	}
	settings := info.DeepCopy()
	delete(settings.Data, globalnet.ClusterInfoKey)
	return kube.Apply(ctx, c, kube.FieldOwner, settings)
}
