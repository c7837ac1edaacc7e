package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/trust"
)

// This file finds the newest grant of a member. Once the administrator has renewed it, the service account
// has it as a whole. Until then, there is only what the cluster publishes: in each of its clustersets, the
// same grant discloses that clusterset.

// newestGrant returns the newest grant of a member, whose service account is sa, with all its clustersets.
// sets are the clustersets of the broker.
func newestGrant(ctx context.Context, c client.Client, sa *corev1.ServiceAccount, sets []string, change SetChange, administrator trust.PublicKey) (trust.Grant, error) {
	tokens := []string{sa.Annotations[submarinerv1.GrantAnnotation]}
	for _, set := range sets {
		cluster := &submarinerv1.Cluster{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: NamespaceIn(sa.Namespace, set), Name: change.Cluster}, cluster); client.IgnoreNotFound(err) != nil {
			return trust.Grant{}, fmt.Errorf("reading the grant of cluster %s: %w", change.Cluster, err)
		}
		tokens = append(tokens, cluster.Annotations[submarinerv1.GrantAnnotation])
	}
	var newest trust.Grant
	var errs []error
	for _, token := range tokens {
		if token == "" {
			continue
		}
		g, err := administrator.Grant(token)
		switch later := g.Compare(newest); {
		case err != nil:
			errs = append(errs, err)
		case g.Cluster != change.Cluster || g.UID != "" && g.UID != sa.Annotations[ClusterUIDAnnotation]:
		case later > 0:
			newest = g
		case later == 0:
			newest.Sets, newest.Whole = slices.Concat(newest.Sets, g.Sets), newest.Whole || g.Whole
		}
	}
	if newest.Serial == 0 {
		return newest, errors.Join(append(errs, fmt.Errorf("cluster %s has published no valid grant yet: wait until it has joined (subctl show clusters), or check that the join file is of this broker", change.Cluster))...)
	}
	if newest.Whole {
		return newest, nil
	}
	return newest, checkPublished(ctx, c, sa.Namespace, sets, change, newest)
}

// checkPublished returns an error if a cluster has rights in a clusterset, and has not published its grant
// there: a new grant, without that clusterset, would take the cluster out of it.
func checkPublished(ctx context.Context, c client.Client, base string, sets []string, change SetChange, g trust.Grant) error {
	for _, set := range sets {
		if g.IsIn(set) || slices.Contains(change.Add, set) || slices.Contains(change.Remove, set) {
			continue
		}
		bindings, ns := &rbacv1.RoleBindingList{}, NamespaceIn(base, set)
		if err := c.List(ctx, bindings, client.InNamespace(ns), client.MatchingFields{"metadata.name": memberBindingName(change.Cluster)}); err != nil {
			return fmt.Errorf("reading the rights of cluster %s in clusterset %s: %w", change.Cluster, set, err)
		}
		if len(bindings.Items) > 0 {
			return fmt.Errorf("cluster %s has rights in clusterset %s, and has not published its grant there: wait until it has, or repeat what was interrupted: subctl clusterset add %[2]s %[1]s, or remove", change.Cluster, set)
		}
	}
	return nil
}
