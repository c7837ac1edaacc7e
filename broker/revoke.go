package broker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/exchange"
	"subctl/broker/trust"
	"subctl/internal/kube"
)

// Revoke removes a member from the broker, and publishes a revocation that makes its grants and
// invitations void: the other clusters remember it, so that nobody can publish in the name of
// the cluster with what the cluster had. sets are all clustersets of the broker whose base
// namespace is ns; administrator signs the revocation.
//
// The rights of the member are removed first, so that it cannot undo any of this. The revocation is published where the
// members may know the cluster: see knownIn. If the cluster has no account, as when Revoke is repeated, nothing
// shows where that is, and the revocation is published in all clustersets.
func Revoke(ctx context.Context, c client.Client, ns string, sets []string, clusterID string, administrator trust.Key, now time.Time) error {
	if err := submarinerv1.CheckClusterID(clusterID); err != nil {
		return err
	}
	clusters, err := clustersOf(ctx, c, ns, sets, clusterID)
	if err != nil {
		return err
	}
	annotations, isMember, err := accountAnnotations(ctx, c, ns, clusterID)
	if err != nil {
		return err
	}
	last := lastWord(clusterID, administrator.Public(), append(annotationsOf(clusters), annotations)...)
	token, err := administrator.SignRevocation(trust.Revocation{Cluster: clusterID, Serial: max(now.UnixMilli(), last)})
	if err != nil {
		return err
	}
	public := sets
	if isMember {
		if public, err = knownIn(ctx, c, ns, sets, clusters, clusterID, annotations, administrator.Public()); err != nil {
			return err
		}
	}
	if err := voidInvitation(ctx, c, ns, sets, clusterID); err != nil {
		return err
	}
	if err := removeRights(ctx, c, ns, sets, clusterID); err != nil {
		return err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: MemberName(clusterID), Namespace: ns}}
	if err := client.IgnoreNotFound(c.Delete(ctx, account)); err != nil {
		return fmt.Errorf("removing the identity of cluster %s: %w", clusterID, err)
	}
	err = kube.ForEach(sets, func(_ int, set string) error {
		in := setIn(ns, set)
		if err := exchange.Kinds().Withdraw(ctx, c, in, clusterID, administrator.Public()); err != nil {
			return fmt.Errorf("removing the objects of cluster %s: %w", clusterID, err)
		}
		if !slices.Contains(public, set) {
			return nil
		}
		if err := replace(ctx, c, exchange.Revoked(in.Namespace, clusterID, token)); err != nil {
			return fmt.Errorf("publishing the revocation of cluster %s: %w", clusterID, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	var was []string
	for i := range clusters {
		if clusters[i].UID != "" && !exchange.IsRemoved(&clusters[i]) {
			was = append(was, sets[i])
		}
	}
	announce(ctx, c, ns, was, administrator.Public(), now)
	return nil
}

// knownIn returns the clustersets in which others may know a member: those in which it has published something, or has rights,
// or is invited to, and those of its renewed grant. The members of the others do not learn that the cluster exists. clusters
// are what it has published, by the index of sets, and annotations are the annotations of its account.
func knownIn(ctx context.Context, c client.Client, ns string, sets []string, clusters []submarinerv1.Cluster, clusterID string, annotations map[string]string, administrator trust.PublicKey) ([]string, error) {
	grant, err := administrator.Grant(annotations[submarinerv1.GrantAnnotation])
	if err != nil { // there is none, or somebody else has written it
		grant = trust.Grant{}
	}
	isIn := make([]bool, len(sets))
	err = kube.ForEach(sets, func(i int, set string) error {
		bindings := &rbacv1.RoleBindingList{}
		if err := c.List(ctx, bindings, client.InNamespace(NamespaceIn(ns, set))); err != nil {
			return fmt.Errorf("reading the rights of cluster %s in clusterset %s: %w", clusterID, set, err)
		}
		isIn[i] = clusters[i].UID != "" || grant.IsIn(set) || slices.ContainsFunc(bindings.Items, func(b rbacv1.RoleBinding) bool {
			return b.Name == memberBindingName(clusterID) || b.Name == InviteeName(clusterID)
		})
		return nil
	})
	var out []string
	for i, set := range sets {
		if isIn[i] {
			out = append(out, set)
		}
	}
	return out, err
}

// accountAnnotations returns the annotations of the service account of a cluster, and whether there is one.
func accountAnnotations(ctx context.Context, c client.Client, ns, clusterID string) (annotations map[string]string, is bool, err error) {
	account := &corev1.ServiceAccount{}
	err = c.Get(ctx, client.ObjectKey{Namespace: ns, Name: MemberName(clusterID)}, account)
	switch {
	case apierrors.IsNotFound(err):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("reading the identity of cluster %s: %w", clusterID, err)
	}
	return account.Annotations, true, nil
}

// removeRights removes the rights of a member, except for tokens whose names are random.
func removeRights(ctx context.Context, c client.Client, ns string, sets []string, clusterID string) error {
	return kube.ForEach(rightsOf(ns, sets, clusterID), func(_ int, right client.Object) error {
		if err := client.IgnoreNotFound(c.Delete(ctx, right)); err != nil {
			return fmt.Errorf("removing the rights of cluster %s: %w", clusterID, err)
		}
		return nil
	})
}

// rightsOf returns the Roles and RoleBindings of a member, except for tokens whose names are random.
// They are deleted with the account that owns them, unless somebody has deleted it and left them: nobody
// could join with this ID any more.
func rightsOf(ns string, sets []string, clusterID string) []client.Object {
	account, token := MemberName(clusterID), MemberName(clusterID)+invitedTokenSuffix
	var out []client.Object
	for _, set := range sets {
		for _, name := range []string{memberBindingName(clusterID), account} {
			out = append(out, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: NamespaceIn(ns, set)}})
		}
		if set != submarinerv1.DefaultClusterSet {
			out = append(out, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: account, Namespace: NamespaceIn(ns, set)}})
		}
	}
	out = append(out, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: token, Namespace: ns}})
	for _, name := range []string{account, token} {
		out = append(out, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}})
	}
	return out
}

// RevokeCommand returns the command with which an administrator of the broker whose base namespace
// is ns revokes a cluster.
func RevokeCommand(ns, clusterID string, flags ...string) string {
	if ns != submarinerv1.BrokerNamespace {
		flags = append([]string{"--namespace " + ns}, flags...)
	}
	return strings.Join(append([]string{"subctl revoke " + clusterID}, flags...), " ")
}

// replace creates an object in place of any other of its name. Applying it would keep the owner of one
// that the holder of a join file has made in the meantime, with which the broker would delete it.
func replace(ctx context.Context, c client.Client, obj client.Object) error {
	for {
		created := obj.DeepCopyObject().(client.Object)
		err := kube.Settled(func() error { return c.Create(ctx, created, client.FieldOwner(kube.FieldOwner)) })
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		if err := client.IgnoreNotFound(c.Delete(ctx, created)); err != nil {
			return err
		}
	}
}
