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

// Leave publishes the statement of clusterID that it has left, which is the result of
// trust.Key.SignLeaving, in the namespaces of its clustersets. The other clusters remember it, so that
// nobody can publish in the name of the cluster with what the cluster had. c is the member itself.
// RemoveMember does not remove the statement. It returns the namespaces that have no Cluster of the
// member, and so no statement.
func Leave(ctx context.Context, c client.Client, namespaces []string, clusterID, leaving string) (without []string, err error) {
	for _, ns := range namespaces {
		found, err := exchange.Leave(ctx, c, ns, clusterID, leaving)
		if apierrors.IsUnauthorized(err) {
			return nil, ErrNotMember
		}
		if err != nil {
			return nil, fmt.Errorf("publishing in namespace %s of the broker that cluster %s has left: %w", ns, clusterID, err)
		}
		if !found {
			without = append(without, ns)
		}
	}
	return without, nil
}

// RemoveMember deletes everything of clusterID from the broker except the result of Leave, the
// member's identity last. namespaces are the namespaces of the clustersets that the cluster is in, the base
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
