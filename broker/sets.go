package broker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker/trust"
	"subctl/internal/kube"
	"subctl/internal/words"
)

// ClusterSet is a clusterset of a broker.
type ClusterSet struct {
	Name      string
	Namespace string
	// Members are the clusters that have the rights of a member in the namespace, sorted. A cluster
	// that has just been added has not published anything yet.
	Members []string
}

// ClusterSets returns the clustersets of the broker whose base namespace is base, sorted by name.
func ClusterSets(ctx context.Context, c client.Reader, base string) ([]ClusterSet, error) {
	names, err := SetNames(ctx, c, base)
	if err != nil {
		return nil, err
	}
	out := make([]ClusterSet, len(names))
	err = kube.ForEach(names, func(i int, name string) error {
		members, err := membersOf(ctx, c, NamespaceIn(base, name))
		if err != nil {
			return fmt.Errorf("reading the members of clusterset %s: %w", name, err)
		}
		slices.Sort(members)
		out[i] = ClusterSet{Name: name, Namespace: NamespaceIn(base, name), Members: members}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b ClusterSet) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// Grants returns the grants of the members that the administrator of a broker has renewed, by
// cluster ID. Those of members that were never added to a clusterset nor removed from one are in
// their Cluster objects only.
func Grants(ctx context.Context, c client.Client, b *v1alpha1.Broker) (map[string]trust.Grant, error) {
	out := map[string]trust.Grant{}
	administrator, err := trust.ParsePublic(b.Annotations[AdministratorAnnotation])
	if err != nil {
		return out, nil // a broker without a key has no grants
	}
	accounts := &corev1.ServiceAccountList{}
	if err := c.List(ctx, accounts, client.InNamespace(b.Namespace)); err != nil {
		return nil, fmt.Errorf("reading the grants of the members: %w", err)
	}
	for _, sa := range accounts.Items {
		id, member := strings.CutPrefix(sa.Name, memberPrefix)
		if g, err := administrator.Grant(sa.Annotations[submarinerv1.GrantAnnotation]); member && err == nil &&
			g.Cluster == id {
			out[id] = g
		}
	}
	return out, nil
}

// Granted returns the members of a broker whose Grants name a clusterset, sorted, by clusterset. A
// clusterset that was deleted by hand, or whose deletion was interrupted, may still have
// grants of clusters that are not its members.
func Granted(ctx context.Context, c client.Client, b *v1alpha1.Broker) (map[string][]string, error) {
	grants, err := Grants(ctx, c, b)
	if err != nil {
		return nil, err
	}
	out := map[string][]string{}
	for id, g := range grants {
		for _, set := range g.Sets {
			out[set] = append(out[set], id)
		}
	}
	for _, ids := range out {
		slices.Sort(ids)
	}
	return out, nil
}

// SetNames returns the names of the clustersets of the broker whose base namespace is base, in the
// order of their namespaces.
func SetNames(ctx context.Context, c client.Reader, base string) (sets []string, err error) {
	namespaces := &corev1.NamespaceList{}
	if err := c.List(ctx, namespaces, client.HasLabels{submarinerv1.ClusterSetLabel}); err != nil {
		return nil, fmt.Errorf("reading the clustersets of the broker: %w", err)
	}
	for _, n := range namespaces.Items {
		// else it is another broker's
		if set := n.Labels[submarinerv1.ClusterSetLabel]; n.Name == NamespaceIn(base, set) {
			sets = append(sets, set)
		}
	}
	return sets, nil
}

// NoSuchSet returns the error that a broker with the clustersets sets does not have a clusterset.
func NoSuchSet(set string, sets []string) error {
	return fmt.Errorf("the broker has no clusterset %q: the clustersets are %s%s", set, words.List(sets),
		words.Meant(set, sets))
}

// membersOf returns the clusters that have the rights of a member in a namespace.
func membersOf(ctx context.Context, c client.Reader, ns string) (ids []string, err error) {
	bindings := &rbacv1.RoleBindingList{}
	if err := c.List(ctx, bindings, client.InNamespace(ns)); err != nil {
		return nil, err
	}
	for _, b := range bindings.Items {
		account, member := strings.CutSuffix(b.Name, memberBindingSuffix)
		if id, ok := strings.CutPrefix(account, memberPrefix); ok && member && b.RoleRef.Name == MemberRoleName {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
