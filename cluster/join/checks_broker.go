package join

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker"
	"subctl/broker/trust"
	"subctl/internal/kube"
	"subctl/internal/prefix"
	"subctl/internal/words"
	"subctl/policy/catalog"
	"subctl/policy/impact"
)

// checkBroker refuses an API server without a broker.
func checkBroker(r request) ([]string, error) {
	if len(r.broker.Denied) == 0 && r.broker.Broker == nil {
		return nil, fmt.Errorf("there is no broker in namespace %s at %s: create one with subctl deploy-broker",
			r.broker.Namespace, r.broker.URL)
	}
	return nil, nil
}

// checkAddress warns of an address of the broker that gateways probably cannot use.
func checkAddress(r request) ([]string, error) {
	return broker.AddressWarnings(r.file.BrokerURL), nil
}

// checkTrust refuses a join file of another administrator than the one whose key this cluster
// has pinned, and of another administrator than the broker's.
func checkTrust(r request) ([]string, error) {
	var errs []error
	has := r.file.Administrator.String()
	if t := r.member.Trust; t != nil && t.Administrator != r.file.Administrator {
		errs = append(
			errs,
			fmt.Errorf(
				"this cluster trusts the administrator's key %s, which it pinned when it joined, and the key of the join file is %s: "+
					"use a join file of that administrator, or run subctl uninstall first to trust another one",
				t.Administrator,
				has,
			),
		)
	}
	if want := r.broker.Broker.Annotations[broker.AdministratorAnnotation]; want != "" && want != has {
		errs = append(
			errs,
			fmt.Errorf(
				"the administrator's key in the join file, %s, is not the key with which the broker was deployed, %.64s: "+
					"the other clusters would refuse this cluster; get a new file from subctl deploy-broker or subctl invite",
				has,
				want,
			),
		)
	}
	return nil, errors.Join(errs...)
}

const anotherFile = "ask the administrator of the broker for another file (subctl invite)"

// Invited returns an error if a join file is for another cluster: its credentials have no rights
// for this one, so the broker need not be asked.
func (o Options) Invited(file *broker.JoinFile) error {
	i, err := file.Invited()
	if err != nil {
		return fmt.Errorf("the join file %w", err)
	}
	if i != nil && i.Cluster != o.ClusterID {
		return fmt.Errorf("the join file is for cluster %q, not %q: join with --clusterid %[1]s, or %[3]s", i.Cluster,
			o.ClusterID, anotherFile)
	}
	return nil
}

// checkInvitation refuses what the invitation in a join file for one cluster does not cover. That
// it has not expired was checked when the file was read.
func checkInvitation(r request) ([]string, error) {
	i, err := r.file.Invited()
	if err != nil {
		return nil, fmt.Errorf("the join file %w", err)
	}
	if i == nil {
		return nil, nil
	}
	errs := []error{r.Invited(r.file)}
	g := r.grant()
	for _, n := range g.Networks {
		if !i.Allows(n) {
			errs = append(
				errs,
				fmt.Errorf(
					"the join file allows the networks %s, and %s is not within them: specify the right networks with "+
						"--clustercidr and --servicecidr, or %s",
					prefix.Format(i.Networks),
					n,
					anotherFile,
				),
			)
		}
	}
	if n := r.gatewayCount(); n > i.Gateways {
		errs = append(
			errs,
			fmt.Errorf(
				"the join file allows %d gateway nodes, and this cluster would have %d: specify fewer with --gateways or --gateway-nodes, "+
					"remove labels from nodes, or %s",
				i.Gateways,
				n,
				anotherFile,
			),
		)
	}
	if err := i.CoversExports(g.ExportNamespaces); err != nil {
		errs = append(errs, fmt.Errorf("%w: specify others with --export-namespaces, or %s", err, anotherFile))
	}
	for _, set := range g.Sets {
		if !i.IsFor(set) {
			errs = append(
				errs,
				fmt.Errorf("the join file is for clusterset %s, not %s: specify it with --clusterset, or %s",
					strings.Join(i.Sets, ", "), set, anotherFile),
			)
		}
	}
	for _, set := range g.Sets {
		if at := r.lastRevocation(set); at > 0 && at >= i.Serial {
			errs = append(
				errs,
				fmt.Errorf(
					"the administrator of the broker has removed cluster %s from clusterset %s at %s, after the join file was written: %s",
					r.ClusterID, set, trust.Stamp(at), anotherFile),
			)
		}
	}
	if t := r.member.Trust; t != nil && len(r.grantChanges(g)) > 0 {
		errs = append(errs, notOlder(trust.Grant{Serial: i.Expires, Invited: i.Serial}, r.lastGrant()))
	}
	return nil, errors.Join(errs...)
}

// notOlder returns an error if a grant would not be newer than the grant that the cluster has,
// which may be zero: the other clusters would refuse it.
func notOlder(g, before trust.Grant) error {
	if g.Compare(before) > 0 {
		return nil
	}
	return fmt.Errorf(
		"the join file is of %s, and this cluster has a later grant, of %s, so that the other clusters would refuse a grant of the file: "+
			anotherFile,
		trust.Stamp(g.Authority()),
		trust.Stamp(before.Authority()),
	)
}

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
	networks := map[string]impact.Networks{}
	for _, c := range r.broker.clusters() {
		if id := c.Spec.ClusterID; r.isOther(id) {
			valid, _ := announced(c.Spec.Announced())
			networks[id] = impact.Networks{Announced: valid}
		}
	}
	known := catalog.OfBroker(r.broker.Broker.Spec, r.broker.Members)
	var errs []error
	for _, c := range impact.NewConflicts(known, known.InSets(r.ClusterID, r.Sets()), networks) {
		errs = append(errs, errors.New(c.String()))
	}
	return errors.Join(errs...)
}
