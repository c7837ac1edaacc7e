package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/exchange"
	"subctl/broker/trust"
	"subctl/internal/kube"
	"subctl/internal/wake"
)

// This file gives a member its identity and, in each of its clustersets, its place: the rights of a
// member in the namespace, and empty objects (see broker/exchange/reserve.go).
//
// One object owns everything that a member has in a namespace, so that deleting the owner deletes
// everything. In the base namespace it is the service account, in the others the Role of placeRole.

// identify gives a service account the rights to itself.
func identify(ctx context.Context, c client.Client, sa *corev1.ServiceAccount, clusterID string) error {
	role := selfRole(sa.Namespace, clusterID)
	role.ObjectMeta = ownedMeta(sa, role.Name)
	for _, obj := range []client.Object{role, bindingOf(ownedMeta(sa, role.Name), role.Name, sa.Name, sa.Namespace)} {
		if err := createOwned(ctx, c, obj, sa.UID); err != nil {
			return err
		}
	}
	return nil
}

// enter gives a member its place in a clusterset.
func (r Reservation) enter(
	ctx context.Context,
	c client.Client,
	sa *corev1.ServiceAccount,
	set, clusterID, clusterUID string,
) error {
	owner, err := placeOwner(ctx, c, sa, NamespaceIn(sa.Namespace, set), clusterID, clusterUID)
	if err != nil {
		return err
	}
	bindings := []*rbacv1.RoleBinding{
		bindingOf(ownedMeta(owner, memberBindingName(clusterID)), MemberRoleName, sa.Name, sa.Namespace),
	}
	if owner != client.Object(sa) {
		bindings = append(bindings,
			bindingOf(ownedMeta(owner, owner.GetName()), owner.GetName(), sa.Name, sa.Namespace))
	}
	for _, b := range bindings {
		if err := createOwned(ctx, c, b, owner.GetUID()); err != nil {
			return err
		}
	}
	return r.reserve(ctx, c, owner, clusterID)
}

// placeOwner returns the owner of what a member has in a namespace. It makes the Role, unless the
// cluster has it. The Role of an earlier cluster with the same ID may be left if somebody has
// deleted that cluster's service account by hand.
func placeOwner(
	ctx context.Context,
	c client.Client,
	sa *corev1.ServiceAccount,
	ns, clusterID, clusterUID string,
) (client.Object, error) {
	if ns == sa.Namespace {
		return sa, nil
	}
	role := placeRole(ns, clusterID, clusterUID)
	err := kube.Settled(func() error { return c.Create(ctx, role, client.FieldOwner(kube.FieldOwner)) })
	if apierrors.IsAlreadyExists(err) {
		err = c.Get(ctx, client.ObjectKeyFromObject(role), role)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("creating Role %s on the broker: %w", role.Name, err)
	case role.Annotations[ClusterUIDAnnotation] != clusterUID:
		return nil, fmt.Errorf(
			"an earlier cluster with the ID %q has left its rights in namespace %s: let the administrator of the broker remove them with: subctl revoke %s --force",
			clusterID, ns, clusterID)
	}
	return role, nil
}

// ownedMeta returns the metadata of an object that the service account or the Role of a member
// owns.
func ownedMeta(owner client.Object, name string) metav1.ObjectMeta {
	by := metav1.OwnerReference{APIVersion: "v1", Kind: "ServiceAccount", Name: owner.GetName(), UID: owner.GetUID()}
	if _, ok := owner.(*rbacv1.Role); ok {
		by.APIVersion = rbacv1.SchemeGroupVersion.String()
		by.Kind = "Role"
	}
	return metav1.ObjectMeta{Name: name, Namespace: owner.GetNamespace(), OwnerReferences: []metav1.OwnerReference{by}}
}

// createOwned creates obj unless it exists. If an earlier owner of the same name
// owns an object of that name, createOwned waits until that object is collected.
func createOwned(ctx context.Context, c client.Client, obj client.Object, owner types.UID) error {
	there := obj.DeepCopyObject().(client.Object)
	for {
		err := kube.Settled(func() error { return c.Create(ctx, obj, client.FieldOwner(kube.FieldOwner)) })
		if err == nil {
			return nil
		}
		if apierrors.IsAlreadyExists(err) {
			err = c.Get(ctx, client.ObjectKeyFromObject(obj), there)
		}
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return fmt.Errorf("creating %s on the broker: %w", obj.GetName(), err)
		case ownedBy(there, owner):
			return nil
		}
		if err := wake.After(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("waiting for the broker to remove %s, left by an earlier member: %w", obj.GetName(), err)
		}
	}
}

func ownedBy(obj client.Object, owner types.UID) bool {
	for _, o := range obj.GetOwnerReferences() {
		if o.UID == owner {
			return true
		}
	}
	return false
}

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
