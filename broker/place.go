package broker

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
