package look

import (
	"context"
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker/exchange"
	"subctl/policy/catalog"
)

// Members are the clusters that a member or a broker knows.
type Members struct {
	*catalog.Catalog
	Clusters  map[string]submarinerv1.Cluster        // by ID; the own cluster may have none yet
	Endpoints map[string][]submarinerv1.EndpointSpec // by ID, in the order of the API server
}

// Shared returns the clustersets that the cluster of the catalog shares with the cluster with the
// given ID, sorted. For its own ID, it returns all its clustersets. It is never nil.
func (m *Members) Shared(id string) []string {
	out := []string{}
	if m == nil {
		return out
	}
	c, _ := m.Cluster(id)
	for _, set := range slices.Sorted(slices.Values(c.Sets)) {
		if slices.Contains(m.Sets, set) {
			out = append(out, set)
		}
	}
	return out
}

// ReadMembers reads the clusters that a member knows, or, on a cluster that has not joined
// and hosts a broker, the members of the broker.
func ReadMembers(ctx context.Context, r client.Reader, s *Site) error {
	if s.Submariner != nil {
		o, err := readClusterObjects(ctx, r, submarinerv1.OperatorNamespace)
		s.Members = membersOf(catalog.OfMember(s.Submariner, o), o)
		return err
	}
	if err := ReadBrokers(ctx, r, s); err != nil || len(s.Brokers) == 0 {
		return err
	}
	sets, err := readSets(ctx, r, s.Brokers[0].Namespace, readClusterObjects)
	var objects []catalog.Objects
	for _, set := range sets {
		objects = append(objects, set.Objects)
	}
	s.Members = membersOf(catalog.OfBroker(s.Brokers[0].Spec, sets), objects...)
	return err
}

// ReadMembersIfAllowed is like ReadMembers for a user who need not have the rights for it: without
// them it reads nothing.
func ReadMembersIfAllowed(ctx context.Context, r client.Reader, s *Site) error {
	seen := *s
	err := ReadMembers(ctx, r, &seen)
	if apierrors.IsForbidden(err) {
		return nil
	}
	*s = seen
	return err
}

func readClusterObjects(ctx context.Context, r client.Reader, namespace string) (catalog.Objects, error) {
	var clusters submarinerv1.ClusterList
	var endpoints submarinerv1.EndpointList
	err := errors.Join(listIn(ctx, r, &clusters, namespace, "clusters"),
		listIn(ctx, r, &endpoints, namespace, "endpoints"))
	members := slices.DeleteFunc(clusters.Items, func(c submarinerv1.Cluster) bool { return exchange.IsRemoved(&c) })
	return catalog.Objects{Clusters: members, Endpoints: endpoints.Items}, err
}

// membersOf indexes objects. What does not belong to the cluster that it names is left out,
// as the agents do. A broker has the objects of a cluster in each of its clustersets.
func membersOf(c *catalog.Catalog, all ...catalog.Objects) *Members {
	m := &Members{
		Catalog:   c,
		Clusters:  map[string]submarinerv1.Cluster{},
		Endpoints: map[string][]submarinerv1.EndpointSpec{},
	}
	seen := map[string]bool{}
	for _, o := range all {
		for i := range o.Clusters {
			if id := o.Clusters[i].Spec.ClusterID; c.Maker(&o.Clusters[i]) == id {
				m.Clusters[id] = o.Clusters[i]
			}
		}
		for i := range o.Endpoints {
			e := &o.Endpoints[i]
			if id := e.Spec.ClusterID; c.Maker(e) == id && !seen[e.Name] {
				seen[e.Name] = true
				m.Endpoints[id] = append(m.Endpoints[id], e.Spec)
			}
		}
	}
	return m
}
