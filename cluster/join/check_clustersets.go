package join

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker"
	"subctl/internal/kube"
	"subctl/internal/words"
	"subctl/policy/catalog"
)

// checkClusterSets refuses clustersets that the broker does not have.
func checkClusterSets(r request) ([]string, error) {
	var errs []error
	for _, set := range r.Sets() {
		if slices.Contains(r.broker.Sets, set) {
			continue
		}
		if sub := r.member.Submariner; sub != nil && r.holdsID() && slices.Contains(sub.Spec.ClusterSets, set) {
			errs = append(
				errs,
				fmt.Errorf(
					"clusterset %q, in which this cluster is, is gone from the broker: there, subctl clusterset create %[1]s brings it back, or subctl clusterset delete %[1]s removes it from the grants of its former members",
					set),
			)
			continue
		}
		errs = append(
			errs,
			fmt.Errorf(
				"the broker has no clusterset %q, or the join file does not allow it: there is %s%s: "+
					"specify another one with --clusterset; the administrator of the broker creates clustersets, with subctl clusterset create or by joining with --create-clusterset",
				set,
				cmp.Or(words.List(r.broker.Sets), "none"),
				words.Meant(set, r.broker.Sets),
			),
		)
	}
	if r.member.Submariner == nil || !r.holdsID() {
		return nil, errors.Join(errs...)
	}
	if r.member.Alone && !r.specifies("clusterset") {
		errs = append(
			errs,
			errors.New(
				"the administrator of the broker has removed this cluster from all clustersets: specify --clusterset to enter one"),
		)
	}
	for _, set := range r.member.Submariner.Spec.ClusterSets {
		if !slices.Contains(r.Sets(), set) {
			errs = append(
				errs,
				fmt.Errorf(
					"this cluster is in clusterset %s: specify it, too, in --clusterset; only the administrator of the broker removes the cluster from it, with: subctl clusterset remove %[1]s %s",
					set, r.ClusterID),
			)
		}
	}
	return nil, errors.Join(errs...)
}

// holdsID reports whether this cluster is a member now.
func (r request) holdsID() bool { return r.isSelf(r.ClusterID) && r.broker.holds(r.member.UID) }

// entersNoSet reports whether this cluster has published its Cluster in all clustersets that it
// joins.
func (r request) entersNoSet() bool {
	in := map[string]bool{}
	for _, set := range r.broker.Members {
		for i := range set.Clusters {
			in[set.Name] = in[set.Name] || r.isSelf(set.Clusters[i].Spec.ClusterID)
		}
	}
	return !slices.ContainsFunc(r.Sets(), func(set string) bool { return !in[set] })
}

// clustersets returns the clustersets of a broker, sorted. If the user may not list
// namespaces, as with the credentials of a join file, it returns the clustersets of wanted
// and the clusterset default, that the user may read.
func clustersets(ctx context.Context, c client.Client, base string, wanted []string) ([]string, error) {
	sets, err := broker.SetNames(ctx, c, base)
	if err != nil && !kube.Unreadable(err) {
		return nil, err
	}
	if err != nil {
		for _, set := range append(slices.Clone(wanted), submarinerv1.DefaultClusterSet) {
			ok, err := kube.Allowed(ctx, c,
				kube.NewRight("list", submarinerv1.GroupVersion.Group, "clusters", broker.NamespaceIn(base, set)))
			if err != nil {
				return nil, err
			}
			if ok {
				sets = append(sets, set)
			}
		}
	}
	slices.Sort(sets)
	return slices.Compact(sets), nil
}

// othersInConflict returns, as an error, the pairs of other clusters that use the same addresses,
// which is no conflict until this cluster shares a clusterset with each; nil if there are none.
func (r request) othersInConflict() error {
	networks := map[string]catalog.Networks{}
	for _, c := range r.broker.clusters() {
		if id := c.Spec.ClusterID; r.isOther(id) {
			valid, _ := announced(c.Spec.Announced())
			networks[id] = catalog.Networks{Announced: valid}
		}
	}
	known := catalog.OfBroker(r.broker.Broker.Spec, r.broker.Members)
	var errs []error
	for _, c := range catalog.NewConflicts(known, known.InSets(r.ClusterID, r.Sets()), networks) {
		errs = append(errs, errors.New(c.String()))
	}
	return errors.Join(errs...)
}
