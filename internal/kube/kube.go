// Package kube provides the scheme of the kinds that we use, server-side apply and access
// reviews. It does not depend on clusters or brokers.
package kube

import (
	"context"
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	sdewanipsec "subctl/api/sdewan/ipsec/v1alpha1"
	sdewan "subctl/api/sdewan/v1alpha1"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
)

// FieldOwner is the field manager of the command line. Agents use FieldOwner + "-" + role.
const FieldOwner = "subctl"

// NewScheme returns a scheme with all kinds that we read or write.
func NewScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, submarinerv1.AddToScheme, v1alpha1.AddToScheme,
		sdewan.AddToScheme, sdewanipsec.AddToScheme, mcsv1alpha1.Install,
	} {
		if err := add(s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Apply applies obj by server-side apply with the field manager owner, and takes
// ownership of fields of other managers. obj must be a typed object with a name and, unless
// it is cluster-scoped, a namespace; its kind must be in the client's scheme. Apply does not
// modify obj.
func Apply(ctx context.Context, c client.Client, owner string, obj client.Object) error {
	u, err := Unstructured(c.Scheme(), obj)
	if err != nil {
		return err
	}
	err = Settled(func() error {
		return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(owner),
			client.ForceOwnership)
	})
	if err != nil {
		return fmt.Errorf("applying %s %s: %w", u.GetKind(), client.ObjectKeyFromObject(u), err)
	}
	return nil
}

// Settled calls write again, a few times within a second, while the API server reports a conflict.
// It does so for a new object if others are created at the same time in a namespace with a
// ResourceQuota.
func Settled(write func() error) error { return retry.RetryOnConflict(retry.DefaultBackoff, write) }

// Resource returns the resource name of a kind that we write, such as "endpoints". It does
// not ask the API server, which may not have the kind yet.
func Resource(gvk schema.GroupVersionKind) string {
	switch gvk.Kind {
	case "CablePolicies", "ExportedServices": // plural already
		return strings.ToLower(gvk.Kind)
	case "Gateway": // guessed as "gatewaies"
		return "gateways"
	}
	resource, _ := meta.UnsafeGuessKindToResource(gvk)
	return resource.Resource
}

// ApplyStatus applies only the status of obj, by server-side apply with the field manager
// owner. If obj has a UID, ApplyStatus fails unless the existing object has the same UID.
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
	if err := c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(owner),
		client.ForceOwnership); err != nil {
		return fmt.Errorf("applying the status of %s %s: %w", gvk.Kind, client.ObjectKeyFromObject(u), err)
	}
	return nil
}

// Unstructured returns obj in the form in which it is sent to the API server: with its kind,
// and without the fields that only the server writes (resource version, creation time, managed
// fields, and the status of kinds with a status subresource).
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

// statusIsData reports whether status is an ordinary field of the kind: upstream's CRDs
// of Gateway and RouteAgent have no status subresource.
func statusIsData(kind string) bool { return kind == "Gateway" || kind == "RouteAgent" }
