package look

import (
	"context"
	"errors"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"subctl/api/submariner/v1alpha1"
	"subctl/services"
)

// Services are the objects of service discovery in a cluster, in all namespaces.
type Services struct {
	Exports []mcsv1alpha1.ServiceExport
	Imports []mcsv1alpha1.ServiceImport
	// Pages are the pages of export records, of the cluster itself and of others.
	Pages      []v1alpha1.ExportedServices
	Services   []corev1.Service
	Slices     []discoveryv1.EndpointSlice // those of imports
	Namespaces []corev1.Namespace

	once    sync.Once
	refused []services.Refusal
}

// ReadServices reads the objects of service discovery in a cluster that uses it.
func ReadServices(ctx context.Context, r client.Reader, s *Site) error {
	if !s.Joined() || !s.Submariner.Spec.ServiceDiscoveryEnabled {
		return nil
	}
	var exports mcsv1alpha1.ServiceExportList
	var imports mcsv1alpha1.ServiceImportList
	var pages v1alpha1.ExportedServicesList
	var local corev1.ServiceList
	var slices discoveryv1.EndpointSliceList
	var namespaces corev1.NamespaceList
	err := errors.Join(listIn(ctx, r, &exports, "", "ServiceExports"), listIn(ctx, r, &imports, "", "ServiceImports"),
		listOf(ctx, r, &pages, "exported Services"), listIn(ctx, r, &local, "", "Services"),
		listIn(ctx, r, &slices, "", "EndpointSlices", client.HasLabels{mcsv1alpha1.LabelServiceName}),
		listIn(ctx, r, &namespaces, "", "namespaces"))
	if err != nil {
		return err
	}
	s.Services = &Services{
		Exports: exports.Items, Imports: imports.Items, Pages: pages.Items, Services: local.Items,
		Slices: slices.Items, Namespaces: namespaces.Items,
	}
	if s.Nodes != nil {
		return nil
	}
	if err := ReadNodes(ctx, r, s); !apierrors.IsForbidden(err) { // their addresses are not endpoints
		return err
	}
	return nil
}
