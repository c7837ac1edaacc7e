package look

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/api/submariner/v1alpha1"
)

// NodeNames returns the names of the nodes of a cluster, sorted.
func NodeNames(ctx context.Context, c client.Client) ([]string, error) {
	var list corev1.NodeList
	if err := c.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("reading the nodes: %w", err)
	}
	names := make([]string, len(list.Items))
	for i, n := range list.Items {
		names[i] = n.Name
	}
	slices.Sort(names)
	return names, nil
}

// SettingsNames returns the names of the ConfigMaps with settings of cable drivers in a
// namespace, sorted.
func SettingsNames(ctx context.Context, c client.Client, namespace string) ([]string, error) {
	var list corev1.ConfigMapList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("reading the ConfigMaps: %w", err)
	}
	var names []string
	for _, cm := range list.Items {
		if _, ok := cm.Data[v1alpha1.CableCustomConfig]; ok {
			names = append(names, cm.Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// completionTime is the time that clusters have to answer while the user waits for a completion.
const completionTime = 3 * time.Second

// Known reads the clusters of targets that answer in time, and the clusters that each of them
// knows.
func Known(ctx context.Context, targets []*Target) []Site {
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	sites, errs := ReadAll(ctx, targets, ReadMembers)
	var out []Site
	for i, s := range sites {
		if errs[i] == nil && s.Members != nil {
			out = append(out, s)
		}
	}
	return out
}

// SetNames returns the clustersets that the clusters of targets know, sorted.
func SetNames(ctx context.Context, targets []*Target) []string {
	var out []string
	for _, s := range Known(ctx, targets) {
		out = append(out, s.Members.Sets...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
