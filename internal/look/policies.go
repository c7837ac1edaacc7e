package look

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/exchange"
	"subctl/cable"
	"subctl/internal/kube"
	"subctl/internal/words"
	"subctl/policy"
	"subctl/policy/catalog"
)

// ReadPolicies reads the cable policies of a member or a broker, and the clusters that they
// select. If the cluster is both, it reads them from the broker if onBroker is set.
func ReadPolicies(ctx context.Context, c client.Client, onBroker bool) (*catalog.Catalog, error) {
	var members v1alpha1.SubmarinerList
	var brokers v1alpha1.BrokerList
	if err := errors.Join(listOf(ctx, c, &members, "Submariner"), listIn(ctx, c, &brokers, "", "brokers")); err != nil {
		return nil, err
	}
	switch {
	case len(members.Items) > 0 && !onBroker:
		o, err := readPolicyObjects(ctx, c, submarinerv1.OperatorNamespace)
		if err != nil {
			return nil, err
		}
		return catalog.OfMember(&members.Items[0], o), nil
	case len(brokers.Items) > 0:
		return ReadBrokerPolicies(ctx, c, &brokers.Items[0])
	case onBroker:
		return nil, errors.New("this cluster hosts no broker: omit --broker, or choose another cluster with --context")
	}
	return nil, ErrNoPolicies
}

// ReadBrokerPolicies is like ReadPolicies, for the broker that b describes. It reads the
// namespaces of all clustersets.
func ReadBrokerPolicies(ctx context.Context, c client.Reader, b *v1alpha1.Broker) (*catalog.Catalog, error) {
	sets, err := readSets(ctx, c, b.Namespace, readPolicyObjects)
	if err != nil {
		return nil, err
	}
	for i := range sets {
		sets[i].Refused = exchange.RefusedPolicies(sets[i].Policies, sets[i].Clusters, sets[i].Name,
			b.Annotations[broker.AdministratorAnnotation])
	}
	return catalog.OfBroker(b.Spec, sets), nil
}

// readSets reads the objects of each clusterset of a broker, of some at a time.
func readSets(
	ctx context.Context,
	c client.Reader,
	base string,
	read func(context.Context, client.Reader, string) (catalog.Objects, error),
) ([]catalog.Set, error) {
	names, err := broker.SetNames(ctx, c, base)
	if err != nil {
		return nil, err
	}
	var sets []catalog.Set
	for _, set := range names {
		sets = append(sets, catalog.Set{Name: set, Namespace: broker.NamespaceIn(base, set)})
	}
	err = kube.ForEach(sets, func(i int, set catalog.Set) error {
		o, err := read(ctx, c, set.Namespace)
		o.Policies, o.Clusters, o.Endpoints = exchange.InClusters(
			o.Policies), exchange.InClusters(o.Clusters), exchange.InClusters(o.Endpoints)
		sets[i].Objects = o
		return err
	})
	if err != nil {
		return nil, err
	}
	return sets, nil
}

func readPolicyObjects(ctx context.Context, c client.Reader, namespace string) (catalog.Objects, error) {
	var policies v1alpha1.CablePoliciesList
	out, err := readClusterObjects(ctx, c, namespace)
	err = errors.Join(listIn(ctx, c, &policies, namespace, "cable policies"), err)
	out.Policies = policies.Items
	return out, err
}

// ErrNoPolicies reports that a cluster is neither a member nor a broker.
var ErrNoPolicies = errors.New("this cluster is neither a member nor a broker, so it has no cable policies: join it " +
	"(subctl join), deploy a broker (subctl deploy-broker), or choose another cluster with --context")

// WithSettings returns a policy with the settings of the ConfigMaps that it names, or all
// mistakes in it.
func WithSettings(ctx context.Context, c client.Client, p *v1alpha1.CablePolicies) (*v1alpha1.CablePolicies, error) {
	fresh, err := policy.CopySettings(p, p.Namespace, func(name string) (*corev1.ConfigMap, error) {
		var cm corev1.ConfigMap
		if err := c.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: name}, &cm); err != nil {
			return nil, client.IgnoreNotFound(err)
		}
		return &cm, nil
	})
	if err == nil {
		err = policy.Check(fresh)
	}
	for i := range fresh.ConnectionPolicies {
		r := &fresh.ConnectionPolicies[i]
		r.CableDriver = cable.Canonical(r.CableDriver)
		if o := r.CableOptions; o != nil && o.Metadata.Name != "" {
			o.Metadata.Namespace = p.Namespace
		}
	}
	return fresh, words.Prefix("policy "+p.Name+": ", err)
}
