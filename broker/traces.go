package broker

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/trust"
	"subctl/internal/kube"
)

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
