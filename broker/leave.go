package broker

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
)

// ErrNotMember says that the broker does not accept a cluster's credentials: the
// cluster was removed there, or the broker was.
var ErrNotMember = errors.New("the broker does not know this cluster any more")

// RemoveMember deletes everything of clusterID from the broker, the member's
// identity last. namespaces are those of the clustersets it is in, the base
// namespace first. c may be the member itself. What is gone already is fine.
func RemoveMember(ctx context.Context, c client.Client, namespaces []string, clusterID string) error {
	if err := submarinerv1.CheckClusterID(clusterID); err != nil {
		return err
	}
	var objects []error
	for _, ns := range namespaces {
		for _, kind := range []client.Object{&v1alpha1.CablePolicies{}, &submarinerv1.Endpoint{}} {
			err := c.DeleteAllOf(ctx, kind, client.InNamespace(ns), client.MatchingLabels{submarinerv1.ClusterIDLabel: clusterID})
			if apierrors.IsUnauthorized(err) {
				return ErrNotMember
			}
			objects = append(objects, client.IgnoreNotFound(err))
		}
		objects = append(objects,
			client.IgnoreNotFound(c.Delete(ctx, &submarinerv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: clusterID, Namespace: ns}})))
	}
	if err := errors.Join(objects...); err != nil {
		return fmt.Errorf("removing cluster %s from the broker: %w", clusterID, err)
	}
	if len(namespaces) == 0 {
		return nil
	}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: MemberName(clusterID), Namespace: namespaces[0]}}
	if err := client.IgnoreNotFound(c.Delete(ctx, sa)); err != nil {
		return fmt.Errorf("removing the identity of cluster %s from the broker: %w", clusterID, err)
	}
	return nil
}
