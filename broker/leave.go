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
	"subctl/broker/exchange"
)

// ErrNotMember means that the broker does not accept a cluster's credentials: the cluster
// was removed from the broker, or the broker was removed.
var ErrNotMember = errors.New("the broker does not know this cluster any more")

// RemoveMember deletes everything of clusterID from the broker, the member's identity
// last. namespaces are the namespaces of the clustersets that the cluster is in, the base
// namespace first. c may be the member itself. It is no error if objects are gone already.
func RemoveMember(ctx context.Context, c client.Client, namespaces []string, clusterID string) error {
	if err := submarinerv1.CheckClusterID(clusterID); err != nil {
		return err
	}
	var errs []error
	for _, ns := range namespaces {
		err := exchange.Kinds().Withdraw(ctx, c, ns, clusterID)
		if apierrors.IsUnauthorized(err) {
			return ErrNotMember
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
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
