package look

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
)

// GlobalAddresses are the objects of a cluster that have or request global addresses, in all
// namespaces.
type GlobalAddresses struct {
	ClusterEgress []submarinerv1.ClusterGlobalEgressIP
	Egress        []submarinerv1.GlobalEgressIP
	Ingress       []submarinerv1.GlobalIngressIP
}

// ReadGlobalAddresses reads the objects of a cluster that have or request global addresses.
func ReadGlobalAddresses(ctx context.Context, r client.Reader, s *Site) error {
	var shared submarinerv1.ClusterGlobalEgressIPList
	var egress submarinerv1.GlobalEgressIPList
	var ingress submarinerv1.GlobalIngressIPList
	err := errors.Join(listIn(ctx, r, &shared, "", "ClusterGlobalEgressIPs"),
		listIn(ctx, r, &egress, "", "GlobalEgressIPs"), listIn(ctx, r, &ingress, "", "GlobalIngressIPs"))
	if err == nil {
		s.Global = &GlobalAddresses{shared.Items, egress.Items, ingress.Items}
	}
	return err
}

// ReadGlobalAddressesIfAllowed is like ReadGlobalAddresses for a user who need not have the rights
// for it: without them it reads nothing.
func ReadGlobalAddressesIfAllowed(ctx context.Context, r client.Reader, s *Site) error {
	err := ReadGlobalAddresses(ctx, r, s)
	if apierrors.IsForbidden(err) {
		return nil
	}
	return err
}
