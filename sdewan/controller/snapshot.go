package controller

import (
	"cmp"
	"context"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/sdewan"
)

// snapshot reads what the API server has about a CNF.
func snapshot(ctx context.Context, reader client.Reader, key types.NamespacedName) (cnf, error) {
	c := cnf{key: key}
	in := client.InNamespace(key.Namespace)
	labelled := client.MatchingLabels{sdewan.PurposeLabel: key.Name}
	for _, k := range sdewan.Kinds() {
		list := k.NewList().(client.ObjectList)
		options := []client.ListOption{in, labelled}
		if key.Name == "" {
			options = options[:1] // those without the label, too
		}
		if err := reader.List(ctx, list, options...); err != nil {
			return c, err
		}
		if err := meta.EachListItem(list, func(o runtime.Object) error {
			if x, ok := o.(sdewan.Rule); ok && x.GetLabels()[sdewan.PurposeLabel] == key.Name {
				c.rules = append(c.rules, rule{x, k})
			}
			return nil
		}); err != nil {
			return c, err
		}
	}
	slices.SortStableFunc(c.rules, func(a, b rule) int { return sdewan.Order(a.Rule, b.Rule) })
	if key.Name == "" {
		return c, nil
	}
	var deployments appsv1.DeploymentList
	if err := reader.List(ctx, &deployments, in, labelled); err != nil {
		return c, err
	}
	for i := range deployments.Items {
		c.deployments = append(c.deployments, &deployments.Items[i])
	}
	slices.SortFunc(c.deployments, func(a, b *appsv1.Deployment) int { return cmp.Compare(a.Name, b.Name) })
	if len(c.deployments) != 1 {
		return c, nil
	}
	var pods corev1.PodList
	if err := reader.List(ctx, &pods, in, labelled); err != nil {
		return c, err
	}
	c.pods = live(c.deployments[0], pods.Items)
	return c, nil
}
