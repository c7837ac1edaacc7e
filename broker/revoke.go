package broker

import (
	"context"
	"fmt"
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
// The revocation is published where the members may know the cluster: see RevokedIn. It is published before anything is
// taken from the cluster, so that it is a trace of the cluster there if Revoke is interrupted, and repeated.
func Revoke(ctx context.Context, c client.Client, ns string, sets []string, clusterID string, administrator trust.Key, now time.Time) error {
	if err := submarinerv1.CheckClusterID(clusterID); err != nil {
		return err
	}
	was, err := tracesOf(ctx, c, ns, sets, clusterID, administrator.Public())
	if err != nil {
		return err
	}
	last := lastWord(clusterID, administrator.Public(), append(annotationsOf(was.clusters), was.annotations)...)
	token, err := administrator.SignRevocation(trust.Revocation{Cluster: clusterID, Serial: max(now.UnixMilli(), last)})
	if err != nil {
		return err
	}
	var revoked []*submarinerv1.Cluster
	for _, set := range was.revokedIn(sets) {
		revoked = append(revoked, exchange.Revoked(NamespaceIn(ns, set), clusterID, token))
	}
	err = publishAround(ctx, c, revoked, func() error { return takeAll(ctx, c, ns, sets, clusterID, administrator.Public()) })
	if err != nil {
		return err
	}
	var membersSaw []string
	for i := range was.clusters {
		if was.clusters[i].Name != "" && !exchange.IsRemoved(&was.clusters[i]) {
			membersSaw = append(membersSaw, sets[i])
		}
	}
	announce(ctx, c, ns, membersSaw, administrator.Public(), now)
	return nil
}

// takeAll removes everything that a cluster has on the broker, its rights first, except the proof that it was removed.
func takeAll(ctx context.Context, c client.Client, ns string, sets []string, clusterID string, administrator trust.PublicKey) error {
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
	return kube.ForEach(sets, func(_ int, set string) error {
		if err := exchange.Kinds().Withdraw(ctx, c, setIn(ns, set), clusterID, administrator); err != nil {
			return fmt.Errorf("removing the objects of cluster %s: %w", clusterID, err)
		}
		return nil
	})
}

// publishAround publishes the proofs that a cluster was removed, calls take, which ends the rights of the cluster, and
// publishes the proofs again that are not as they were: the cluster may have changed them until its rights ended. If
// take is interrupted, the proofs show where the cluster was.
func publishAround(ctx context.Context, c client.Client, proofs []*submarinerv1.Cluster, take func() error) error {
	published := make([]client.Object, len(proofs))
	publish := func(i int, proof *submarinerv1.Cluster) (err error) {
		if published[i], err = replace(ctx, c, proof); err != nil {
			return fmt.Errorf("publishing in namespace %s that cluster %s was removed: %w", proof.Namespace, proof.Name, err)
		}
		return nil
	}
	if err := kube.ForEach(proofs, publish); err != nil {
		return err
	}
	if err := take(); err != nil {
		return err
	}
	return kube.ForEach(proofs, func(i int, proof *submarinerv1.Cluster) error {
		have := &submarinerv1.Cluster{}
		err := c.Get(ctx, client.ObjectKeyFromObject(proof), have)
		switch {
		case err == nil && have.ResourceVersion == published[i].GetResourceVersion():
			return nil
		case client.IgnoreNotFound(err) != nil:
			return fmt.Errorf("reading in namespace %s that cluster %s was removed: %w", proof.Namespace, proof.Name, err)
		}
		return publish(i, proof)
	})
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

// replace creates an object in place of any other of its name, and returns it. Applying it would keep the owner of one
// that the holder of a join file has made in the meantime, with which the broker would delete it.
// A clusterset that is being deleted, or was, has no members, and needs no object.
func replace(ctx context.Context, c client.Client, obj client.Object) (client.Object, error) {
	for {
		created := obj.DeepCopyObject().(client.Object)
		err := kube.Settled(func() error { return c.Create(ctx, created, client.FieldOwner(kube.FieldOwner)) })
		if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return obj, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return created, err
		}
		if err := client.IgnoreNotFound(c.Delete(ctx, created)); err != nil {
			return nil, err
		}
	}
}
