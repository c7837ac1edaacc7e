package broker

import (
	"context"
	"errors"
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
// The revocation is published where the members may know the cluster: see RevokedIn. It is
// published before anything is taken from the cluster, so that it is a trace of the cluster there
// if Revoke is interrupted, and repeated: see publishAround. The cluster loses its rights and its
// identity also where the revocation cannot be published.
func Revoke(
	ctx context.Context,
	c client.Client,
	ns string,
	sets []string,
	clusterID string,
	administrator trust.Key,
	now time.Time,
) error {
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
	err = errors.Join(
		publishAround(ctx, c, revoked, administrator.Public(),
			func() error { return endRights(ctx, c, ns, sets, clusterID) }),
		removeIdentity(ctx, c, ns, clusterID),
	)
	if err != nil {
		return err
	}
	if err := withdrawAll(ctx, c, ns, sets, clusterID, administrator.Public()); err != nil {
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

// endRights ends the rights of a cluster, and its invitation, with which it could get rights again.
func endRights(ctx context.Context, c client.Client, ns string, sets []string, clusterID string) error {
	return errors.Join(voidInvitation(ctx, c, ns, sets, clusterID), removeRights(ctx, c, ns, sets, clusterID))
}

// removeIdentity deletes the service account of a cluster, and with it the tokens.
func removeIdentity(ctx context.Context, c client.Client, ns, clusterID string) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: MemberName(clusterID), Namespace: ns}}
	if err := client.IgnoreNotFound(c.Delete(ctx, account)); err != nil {
		return fmt.Errorf("removing the identity of cluster %s: %w", clusterID, err)
	}
	return nil
}

// withdrawAll deletes the objects of a cluster, except the proofs that it was removed.
func withdrawAll(
	ctx context.Context,
	c client.Client,
	ns string,
	sets []string,
	clusterID string,
	administrator trust.PublicKey,
) error {
	return kube.ForEach(sets, func(_ int, set string) error {
		if err := exchange.Kinds().Withdraw(ctx, c, setIn(ns, set), clusterID, administrator); err != nil {
			return fmt.Errorf("removing the objects of cluster %s: %w", clusterID, err)
		}
		return nil
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

// rightsOf returns the Roles and RoleBindings of a member, except for tokens whose names are
// random. They are deleted with the account that owns them, unless somebody has deleted it and left
// them: nobody could join with this ID any more.
func rightsOf(ns string, sets []string, clusterID string) []client.Object {
	account := MemberName(clusterID)
	token := MemberName(clusterID) + invitedTokenSuffix
	var out []client.Object
	for _, set := range sets {
		for _, name := range []string{memberBindingName(clusterID), account} {
			out = append(out,
				&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: NamespaceIn(ns, set)}})
		}
		if set != submarinerv1.DefaultClusterSet {
			out = append(out,
				&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: account, Namespace: NamespaceIn(ns, set)}})
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

// traces are what a broker shows of a cluster, which may be no member.
type traces struct {
	// its Cluster in each clusterset, by the index of the clustersets; a zero one where there is
	// none
	clusters    []submarinerv1.Cluster
	annotations map[string]string // of its service account
	sets        []string          // the clustersets in which others may know it, in the order of all clustersets
}

// tracesOf reads the traces of a cluster in the clustersets sets. The members of a clusterset may
// know the cluster if the clusterset has its Cluster, or the proof that it has left or was removed;
// if the cluster has rights there, or is invited; and if its renewed grant covers the clusterset.
func tracesOf(
	ctx context.Context,
	c client.Client,
	ns string,
	sets []string,
	clusterID string,
	administrator trust.PublicKey,
) (t traces, err error) {
	if t.clusters, err = clustersOf(ctx, c, ns, sets, clusterID); err != nil {
		return t, err
	}
	if t.annotations, _, err = accountAnnotations(ctx, c, ns, clusterID); err != nil {
		return t, err
	}
	grant, err := administrator.Grant(t.annotations[submarinerv1.GrantAnnotation])
	if err != nil { // there is none, or somebody else has written it
		grant = trust.Grant{}
	}
	isIn := make([]bool, len(sets))
	err = kube.ForEach(sets, func(i int, set string) error {
		bindings := &rbacv1.RoleBindingList{}
		if err := c.List(ctx, bindings, client.InNamespace(NamespaceIn(ns, set))); err != nil {
			return fmt.Errorf("reading the rights of cluster %s in clusterset %s: %w", clusterID, set, err)
		}
		isIn[i] = t.clusters[i].Name != "" || grant.IsIn(set) ||
			slices.ContainsFunc(bindings.Items, func(b rbacv1.RoleBinding) bool {
				return b.Name == memberBindingName(clusterID) || b.Name == InviteeName(clusterID)
			})
		return nil
	})
	for i, set := range sets {
		if isIn[i] {
			t.sets = append(t.sets, set)
		}
	}
	return t, err
}

// RevokedIn returns the clustersets, among sets, in which Revoke publishes the revocation of a
// cluster. If the broker shows no trace of the cluster, isKnown is false, and the clustersets are
// all of sets: the members of each learn its ID.
func RevokedIn(
	ctx context.Context,
	c client.Client,
	ns string,
	sets []string,
	clusterID string,
	administrator trust.PublicKey,
) (in []string, isKnown bool, err error) {
	t, err := tracesOf(ctx, c, ns, sets, clusterID, administrator)
	return t.revokedIn(sets), len(t.sets) > 0, err
}

// revokedIn returns the clustersets, among sets, in which the revocation of the cluster is
// published.
func (t traces) revokedIn(sets []string) []string {
	if len(t.sets) == 0 {
		return sets
	}
	return t.sets
}

// accountAnnotations returns the annotations of the service account of a cluster, and whether there
// is one.
func accountAnnotations(
	ctx context.Context,
	c client.Client,
	ns, clusterID string,
) (annotations map[string]string, exists bool, err error) {
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
