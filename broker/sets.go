package broker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ClusterSet is a clusterset of a broker.
type ClusterSet struct {
	Name      string
	Namespace string
	// Members are the clusters that have the rights of a member in the namespace, sorted. A cluster that has just
	// been added has not published anything yet.
	Members []string
}

// ClusterSets returns the clustersets of the broker whose base namespace is base, sorted by name.
func ClusterSets(ctx context.Context, c client.Client, base string) ([]ClusterSet, error) {
	names, err := setsOf(ctx, c, base)
	if err != nil {
		return nil, err
	}
	var out []ClusterSet
	for _, name := range names {
		set := ClusterSet{Name: name, Namespace: NamespaceIn(base, name)}
		if set.Members, err = membersOf(ctx, c, set.Namespace); err != nil {
			return nil, fmt.Errorf("reading the members of clusterset %s: %w", name, err)
		}
		slices.Sort(set.Members)
		out = append(out, set)
	}
	slices.SortFunc(out, func(a, b ClusterSet) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// membersOf returns the clusters that have the rights of a member in a namespace.
func membersOf(ctx context.Context, c client.Client, ns string) (ids []string, err error) {
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
