// Package kube holds what every talk with an API server needs: the scheme of the
// kinds we use and server-side apply. It knows nothing of clusters or brokers.
package kube

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
)

// FieldOwner is the field manager of everything the command line applies. Agents
// use FieldOwner + "-" + role.
const FieldOwner = "subctl"

// NewScheme returns a scheme of all kinds we read or write.
func NewScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, submarinerv1.AddToScheme, v1alpha1.AddToScheme,
	} {
		if err := add(s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Apply makes the API server hold obj's fields by server-side apply under the
// field manager owner, taking over fields that others set. obj is a typed object
// with name and, unless cluster-scoped, namespace; its kind is found in the
// client's scheme. obj is not changed.
func Apply(ctx context.Context, c client.Client, owner string, obj client.Object) error {
	u, err := Unstructured(c.Scheme(), obj)
	if err != nil {
		return err
	}
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(owner), client.ForceOwnership); err != nil {
		return fmt.Errorf("applying %s %s: %w", u.GetKind(), client.ObjectKeyFromObject(u), err)
	}
	return nil
}

// Resource returns the resource of a kind we write, without asking the API server,
// which may not have the kind yet.
func Resource(gvk schema.GroupVersionKind) string {
	if gvk.Kind == "CablePolicies" { // plural already
		return "cablepolicies"
	}
	resource, _ := meta.UnsafeGuessKindToResource(gvk)
	return resource.Resource
}

// ApplyStatus makes the API server hold obj's status, and nothing else of it, by
// server-side apply under the field manager owner. If obj has a UID, only the object
// with that UID is written.
func ApplyStatus(ctx context.Context, c client.Client, owner string, obj client.Object) error {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return fmt.Errorf("converting %s: %w", obj.GetName(), err)
	}
	gvk, err := apiutil.GVKForObject(obj, c.Scheme())
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: map[string]any{"status": m["status"]}}
	u.SetGroupVersionKind(gvk)
	u.SetName(obj.GetName())
	u.SetNamespace(obj.GetNamespace())
	u.SetUID(obj.GetUID())
	if err := c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(owner), client.ForceOwnership); err != nil {
		return fmt.Errorf("applying the status of %s %s: %w", gvk.Kind, client.ObjectKeyFromObject(u), err)
	}
	return nil
}

// Unstructured returns obj as the API server should be sent it: with kind, and
// without the fields that only the server writes (status of a kind that has the
// subresource, creation time, managed fields).
func Unstructured(s *runtime.Scheme, obj client.Object) (*unstructured.Unstructured, error) {
	gvk, err := apiutil.GVKForObject(obj, s)
	if err != nil {
		return nil, err
	}
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("converting %s %s: %w", gvk.Kind, obj.GetName(), err)
	}
	u := &unstructured.Unstructured{Object: m}
	u.SetGroupVersionKind(gvk)
	u.SetManagedFields(nil)
	u.SetResourceVersion("")
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(u.Object, "spec", "template", "metadata", "creationTimestamp")
	if !statusIsData(gvk.Kind) {
		unstructured.RemoveNestedField(u.Object, "status")
	}
	return u, nil
}

// statusIsData says that status is an ordinary field of the kind: upstream's CRDs
// of Gateway and RouteAgent have no status subresource.
func statusIsData(kind string) bool { return kind == "Gateway" || kind == "RouteAgent" }
