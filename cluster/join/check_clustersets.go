package join

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker"
	"subctl/internal/kube"
)

// checkClusterSets refuses clustersets that the broker does not have.
func checkClusterSets(r request) ([]string, error) {
	var errs []error
	for _, set := range r.Sets() {
		if !slices.Contains(r.broker.Sets, set) {
			errs = append(errs, fmt.Errorf("the broker has no clusterset %q, or the join file does not allow it: the clustersets are %s",
				set, strings.Join(r.broker.Sets, ", ")))
		} else if set != submarinerv1.DefaultClusterSet {
			errs = append(errs, fmt.Errorf("clusterset %q: in this version clusters can only join clusterset %q", set, submarinerv1.DefaultClusterSet))
		}
	}
	return nil, errors.Join(errs...)
}

// clustersets returns the clustersets of a broker, sorted. If the user may not list
// namespaces, as with the credentials of a join file, it returns the clustersets of wanted
// that the user may read.
func clustersets(ctx context.Context, c client.Client, base string, wanted []string) ([]string, error) {
	list := &corev1.NamespaceList{}
	err := c.List(ctx, list, client.HasLabels{submarinerv1.ClusterSetLabel})
	if err != nil && !kube.Unreadable(err) {
		return nil, err
	}
	sets := []string{submarinerv1.DefaultClusterSet}
	for _, ns := range list.Items {
		if set := ns.Labels[submarinerv1.ClusterSetLabel]; ns.Name == broker.NamespaceIn(base, set) {
			sets = append(sets, set)
		}
	}
	if err != nil {
		for _, set := range wanted {
			ok, err := kube.Allowed(ctx, c, kube.NewRight("list", submarinerv1.GroupVersion.Group, "clusters", broker.NamespaceIn(base, set)))
			if err != nil {
				return nil, err
			}
			if ok {
				sets = append(sets, set)
			}
		}
	}
	slices.SortFunc(sets, strings.Compare)
	return slices.Compact(sets), nil
}
