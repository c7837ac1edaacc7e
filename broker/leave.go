package broker

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/exchange"
	"subctl/broker/trust"
)

// ErrNotMember means that the broker does not accept a cluster's credentials: the cluster
// was removed from the broker, or the broker was removed.
var ErrNotMember = errors.New("the broker does not know this cluster any more")

// Leave publishes the statement of clusterID that it has left, which is the result of
// trust.Key.SignLeaving, in its clustersets sets of the broker whose base namespace is base. The
// other clusters remember it, so that nobody can publish in the name of the cluster with what the
// cluster had. c is the member itself. RemoveMember does not remove the statement. Leave returns
// the namespaces that have no Cluster of the member, and so no statement, and the clustersets in
// which the member has no rights: it has been removed from them, or they are gone.
func Leave(
	ctx context.Context,
	c client.Client,
	base string,
	sets []string,
	clusterID, leaving string,
) (without, closed []string, err error) {
	for _, set := range sets {
		ns := NamespaceIn(base, set)
		found, err := exchange.Leave(ctx, c, ns, clusterID, leaving)
		switch {
		case apierrors.IsUnauthorized(err):
			return nil, nil, ErrNotMember
		case apierrors.IsForbidden(err):
			closed = append(closed, set)
		case err != nil:
			return nil, nil, fmt.Errorf("publishing in namespace %s of the broker that cluster %s has left: %w", ns,
				clusterID, err)
		case !found:
			without = append(without, ns)
		}
	}
	return without, closed, nil
}

// RemoveMember deletes everything of clusterID from the broker whose base namespace is base, except
// the result of Leave, the member's identity last. sets are the clustersets that the cluster is in.
// administrator verifies the result of Leave; it may be zero. c may be the member itself. It is no
// error if objects are gone already.
func RemoveMember(
	ctx context.Context,
	c client.Client,
	base string,
	sets []string,
	clusterID string,
	administrator trust.PublicKey,
) error {
	if err := submarinerv1.CheckClusterID(clusterID); err != nil {
		return err
	}
	var errs []error
	for _, set := range sets {
		err := exchange.Kinds().Withdraw(ctx, c, setIn(base, set), clusterID, administrator)
		if apierrors.IsUnauthorized(err) {
			return ErrNotMember
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("removing cluster %s from the broker: %w", clusterID, err)
	}
	for _, set := range sets {
		if set == submarinerv1.DefaultClusterSet {
			continue
		}
		if err := leavePlace(ctx, c, NamespaceIn(base, set), clusterID); err != nil {
			return err
		}
	}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: MemberName(clusterID), Namespace: base}}
	if err := client.IgnoreNotFound(c.Delete(ctx, sa)); err != nil {
		return fmt.Errorf("removing the identity of cluster %s from the broker: %w", clusterID, err)
	}
	return nil
}

// leavePlace deletes what a member has in the namespace of a clusterset, other than the base
// namespace. It deletes the Role that owns everything else, with which the member's rights end.
func leavePlace(ctx context.Context, c client.Client, ns, clusterID string) error {
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: MemberName(clusterID), Namespace: ns}}
	if err := client.IgnoreNotFound(c.Delete(ctx, role)); err != nil {
		return fmt.Errorf("removing the rights of cluster %s in namespace %s: %w", clusterID, ns, err)
	}
	return nil
}
