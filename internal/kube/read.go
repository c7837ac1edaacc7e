package kube

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	submarinerv1 "subctl/api/submariner/v1"
)

// Optional reads the object with the given key into into, and returns it. It returns nil,
// without an error, if the object or its kind does not exist.
func Optional[T client.Object](ctx context.Context, c client.Reader, into T, key client.ObjectKey) (T, error) {
	var none T
	err := c.Get(ctx, key, into)
	if NotThere(err) {
		return none, nil
	}
	if err != nil {
		return none, fmt.Errorf("reading %s %s: %w", KindOf(into), strings.TrimPrefix(key.String(), "/"), err)
	}
	return into, nil
}

// KindOf returns the kind of an object of a Go type that is named after it.
func KindOf(o client.Object) string {
	name := fmt.Sprintf("%T", o)
	return name[strings.LastIndex(name, ".")+1:]
}

// NotThere reports whether err means that an object, or its kind, does not exist.
func NotThere(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

// Unreadable reports whether err means that an object does not exist, or that the user
// may not read it.
func Unreadable(err error) bool { return NotThere(err) || apierrors.IsForbidden(err) }

// Everywhere reports whether List returns the objects of a kind in all namespaces: users make them
// wherever their pods are.
func Everywhere(kind any) bool {
	switch kind.(type) {
	case *corev1.Pod, *corev1.Service, *discoveryv1.EndpointSlice,
		*submarinerv1.GlobalEgressIP, *submarinerv1.GlobalIngressIP:
		return true
	}
	return false
}

// List returns the objects of some kinds: the objects in a namespace, all objects of kinds that are
// Everywhere, and all objects of cluster-scoped kinds. Objects from a cache are shared and must not
// be changed. T is client.Object, or an interface with the same methods.
func List[T client.Object](
	ctx context.Context,
	r client.Reader,
	s *runtime.Scheme,
	namespace string,
	kinds []T,
) ([]T, error) {
	var objs []T
	for _, kind := range kinds {
		gvk, err := apiutil.GVKForObject(kind, s)
		if err != nil {
			return nil, err
		}
		made, err := s.New(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err != nil {
			return nil, err
		}
		list := made.(client.ObjectList)
		opts := []client.ListOption{client.UnsafeDisableDeepCopy}
		switch any(kind).(type) {
		case *corev1.Node, *submarinerv1.ClusterGlobalEgressIP: // cluster-scoped
		default:
			if !Everywhere(kind) {
				opts = append(opts, client.InNamespace(namespace))
			}
		}
		if err := r.List(ctx, list, opts...); err != nil {
			return nil, fmt.Errorf("listing %s: %w", gvk.Kind, err)
		}
		if err := meta.EachListItem(list, func(o runtime.Object) error {
			objs = append(objs, o.(T))
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return objs, nil
}
