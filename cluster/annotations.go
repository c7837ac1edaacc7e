package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/kube"
)

// RemoveAnnotations removes from pods and Services the annotation with their global address. The
// globalnet agent does so, too, when its cluster gives up its global network, but may have been
// down, or slow.
func RemoveAnnotations(ctx context.Context, c client.Client) error {
	patch := client.RawPatch(types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, submarinerv1.GlobalIPAnnotation))
	for _, kind := range annotatedKinds() {
		list, err := kube.ListMetadata(ctx, c, kind, "")
		if err != nil {
			return err
		}
		for _, o := range list {
			if _, has := o.Annotations[submarinerv1.GlobalIPAnnotation]; !has {
				continue
			}
			o.SetGroupVersionKind(kind)
			if err := c.Patch(ctx, &o, patch, client.FieldOwner(kube.FieldOwner)); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("removing the annotation %s of %s %s/%s: %w", submarinerv1.GlobalIPAnnotation,
					kind.Kind, o.Namespace, o.Name, err)
			}
		}
	}
	return nil
}

// annotatedKinds are the kinds of objects that have the annotation.
func annotatedKinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("Pod"),
		corev1.SchemeGroupVersion.WithKind("Service"),
	}
}
