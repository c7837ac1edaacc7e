package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/policy"
)

// policyDesk is what policies are about, as a member or the broker knows it.
type policyDesk struct {
	client client.Client
	// id is the cluster's, or submarinerv1.BrokerID.
	id   string
	base string   // namespace of the clusterset default, on a broker
	sets []string // the clustersets of the cluster, or of the broker; sorted
	// policies are as a member has them: those made elsewhere say where.
	policies []*v1alpha1.CablePolicies
	clusters []policy.Cluster // by ID
	// offers lists the cable drivers of the clusters that have gateways.
	offers map[string][]string
}

// openPolicyDesk finds out what a cluster is, and reads its policies.
func openPolicyDesk(ctx context.Context, c client.Client, onBroker bool) (*policyDesk, error) {
	var subs v1alpha1.SubmarinerList
	var hubs v1alpha1.BrokerList
	if err := errors.Join(listOf(ctx, c, &subs, "Submariner"), listIn(ctx, c, &hubs, "", "brokers")); err != nil {
		return nil, err
	}
	d := &policyDesk{client: c, offers: map[string][]string{}}
	switch {
	case len(subs.Items) > 0 && !onBroker:
		return d, d.readMember(ctx, &subs.Items[0])
	case len(hubs.Items) > 0:
		d.base = hubs.Items[0].Namespace
		return d, d.readBroker(ctx)
	case onBroker:
		return nil, errors.New("this cluster is no broker: leave out --broker, or choose another with --context")
	}
	return nil, errNoPolicies
}

// readMember reads what a joined cluster has.
func (d *policyDesk) readMember(ctx context.Context, sub *v1alpha1.Submariner) error {
	d.id, d.sets = sub.Spec.ClusterID, slices.Sorted(slices.Values(sub.Spec.ClusterSets))
	if len(d.sets) == 0 {
		d.sets = []string{submarinerv1.DefaultClusterSet}
	}
	found := map[string]*policy.Cluster{d.id: {ID: d.id, Sets: d.sets, Driver: cmp.Or(sub.Spec.CableDriver, drivers.Default), Labels: map[string]string{}}}
	for pair := range strings.SplitSeq(sub.Annotations[v1alpha1.ClusterLabelsAnnotation], ",") {
		if k, v, ok := strings.Cut(pair, "="); ok {
			found[d.id].Labels[strings.TrimSpace(k)] = strings.TrimSpace(v)
		}
	}
	err := d.readNamespace(ctx, submarinerv1.OperatorNamespace, func(c *submarinerv1.Cluster) {
		switch maker := d.maker(c); {
		case maker != c.Spec.ClusterID: // the agents do not believe it either
		case maker == d.id:
			found[d.id].Labels = c.Labels
		default:
			sets := c.Spec.ClusterSets
			if from := c.Annotations[broker.ClusterSetsAnnotation]; from != "" {
				sets = strings.Split(from, ",")
			}
			if len(sets) == 0 {
				sets = d.sets
			}
			found[maker] = &policy.Cluster{ID: maker, Labels: c.Labels, Sets: sets, Driver: drivers.Default}
		}
	}, found)
	d.arrange(found)
	return err
}

// readBroker reads the namespaces of all clustersets, and labels what is in them as
// members do that copy it.
func (d *policyDesk) readBroker(ctx context.Context) error {
	var namespaces corev1.NamespaceList
	if err := d.client.List(ctx, &namespaces, client.HasLabels{submarinerv1.ClusterSetLabel}); err != nil {
		return fmt.Errorf("reading the broker's clustersets: %w", err)
	}
	d.id = submarinerv1.BrokerID
	found := map[string]*policy.Cluster{}
	for _, ns := range namespaces.Items {
		set := ns.Labels[submarinerv1.ClusterSetLabel]
		if ns.Name != broker.NamespaceIn(d.base, set) {
			continue
		}
		d.sets = append(d.sets, set)
		before := len(d.policies)
		err := d.readNamespace(ctx, ns.Name, func(c *submarinerv1.Cluster) {
			id := c.Spec.ClusterID
			if d.maker(c) != id {
				return
			}
			if found[id] == nil {
				found[id] = &policy.Cluster{ID: id, Labels: c.Labels, Driver: drivers.Default}
			}
			found[id].Sets = append(found[id].Sets, set)
		}, found)
		if err != nil {
			return err
		}
		for _, p := range d.policies[before:] {
			p.Labels = map[string]string{submarinerv1.ClusterIDLabel: d.maker(p), submarinerv1.ClusterSetLabel: set}
		}
	}
	slices.Sort(d.sets)
	d.arrange(found)
	return nil
}

// readNamespace reads policies, and the clusters and what they offer into found.
func (d *policyDesk) readNamespace(ctx context.Context, ns string, cluster func(*submarinerv1.Cluster), found map[string]*policy.Cluster) error {
	var policies v1alpha1.CablePoliciesList
	var clusters submarinerv1.ClusterList
	var endpoints submarinerv1.EndpointList
	if err := errors.Join(
		listIn(ctx, d.client, &policies, ns, "cable policies"),
		listIn(ctx, d.client, &clusters, ns, "clusters"),
		listIn(ctx, d.client, &endpoints, ns, "endpoints"),
	); err != nil {
		return err
	}
	for i := range policies.Items {
		d.policies = append(d.policies, &policies.Items[i])
	}
	for i := range clusters.Items {
		cluster(&clusters.Items[i])
	}
	for _, e := range endpoints.Items {
		g, _ := cable.Parse(e.Spec) // its drivers are read whatever else is wrong with it
		if c := found[g.Cluster]; c != nil && d.maker(&e) == g.Cluster && g.Default != "" {
			c.Driver = g.Default
			if offered, again := d.offers[g.Cluster]; again { // what all its gateways offer
				g.Drivers = slices.DeleteFunc(g.Drivers, func(n string) bool { return !slices.Contains(offered, n) })
			}
			d.offers[g.Cluster] = g.Drivers
		}
	}
	return nil
}

func (d *policyDesk) arrange(found map[string]*policy.Cluster) {
	for _, id := range slices.Sorted(maps.Keys(found)) {
		d.clusters = append(d.clusters, *found[id])
	}
	slices.SortStableFunc(d.policies, func(a, b *v1alpha1.CablePolicies) int { return cmp.Compare(a.SharedName(), b.SharedName()) })
}

// maker is the ID of the cluster that made an object.
func (d *policyDesk) maker(o client.Object) string {
	return cmp.Or(o.GetLabels()[submarinerv1.ClusterIDLabel], d.id)
}

// makerName is how messages call a cluster that makes policies.
func makerName(id string) string {
	if id == submarinerv1.BrokerID {
		return "the broker"
	}
	return "cluster " + id
}

func (d *policyDesk) onBroker() bool { return d.id == submarinerv1.BrokerID }

func (d *policyDesk) clusterIDs() []string {
	var out []string
	for _, c := range d.clusters {
		out = append(out, c.ID)
	}
	return out
}

// namespace is where a policy is written that is for a clusterset; empty is for all
// of a member's, and for default on a broker.
func (d *policyDesk) namespace(set string) string {
	if d.onBroker() {
		return broker.NamespaceIn(d.base, cmp.Or(set, submarinerv1.DefaultClusterSet))
	}
	return submarinerv1.OperatorNamespace
}

// cable says which cable a pair has by a decision, or why it has none.
func (d *policyDesk) cable(pair policy.Pair, dec policy.Decision) (string, error) {
	if dec.Err != nil {
		return "", dec.Err
	}
	var lacking []string
	for _, c := range []policy.Cluster{pair.X, pair.Y} {
		if offered, known := d.offers[c.ID]; known && !slices.Contains(offered, dec.Driver) {
			lacking = append(lacking, fmt.Sprintf("cluster %s does not offer %s", c.ID, dec.Driver))
		}
	}
	switch {
	case len(lacking) > 0:
		return "", errors.New(strings.Join(lacking, ", "))
	case dec.ConfigErr != nil:
		return "", fmt.Errorf("settings of cable policy %s: %w", dec.Policy, dec.ConfigErr)
	}
	return dec.Driver, nil
}
