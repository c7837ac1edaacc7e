// Package catalog is what a member of a clusterset, or the broker, knows of cable
// policies and of the clusters that they are about. It says which cable every pair gets
// by them, and what other policies would change. All of it is pure: who makes a Catalog
// has read the objects.
//
// It knows less than the gateways do: what only they can find out, such as an address
// translation that nobody announces, is not in it.
package catalog

import (
	"cmp"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable/drivers"
	"subctl/policy"
)

// Catalog is the policies and clusters of one API server.
type Catalog struct {
	// Keeper is the ID of the cluster whose API server it is, or submarinerv1.BrokerID.
	Keeper string
	// Sets are the clustersets of the cluster, or of the broker, sorted.
	Sets []string
	// Policies are sorted by SharedName. Those made elsewhere say where, as copies do.
	Policies []*v1alpha1.CablePolicies
	// Clusters are sorted by ID.
	Clusters []policy.Cluster

	namespaces map[string]string    // of the clustersets, on a broker
	gateways   map[string][]gateway // by cluster
}

// Objects are those of one namespace.
type Objects struct {
	Policies  []v1alpha1.CablePolicies
	Clusters  []submarinerv1.Cluster
	Endpoints []submarinerv1.Endpoint
}

// Set is a clusterset on a broker.
type Set struct {
	Name, Namespace string
	Objects
}

// OfMember returns the catalog of a joined cluster, from what is in the namespace of its
// agents.
func OfMember(sub *v1alpha1.Submariner, o Objects) *Catalog {
	c := &Catalog{Keeper: sub.Spec.ClusterID, Sets: sub.Spec.Sets()}
	driver := drivers.Default
	if offered, err := drivers.Listed(sub.Spec); err == nil {
		driver = offered[0].Name()
	}
	found := map[string]*policy.Cluster{c.Keeper: {
		ID: c.Keeper, Sets: c.Sets, Labels: policy.ParseLabels(sub.Annotations[v1alpha1.ClusterLabelsAnnotation]),
		Driver: driver,
	}}
	for i := range o.Clusters {
		switch cluster := &o.Clusters[i]; {
		case c.Maker(cluster) != cluster.Spec.ClusterID: // the agents do not believe it either
		case cluster.Spec.ClusterID == c.Keeper:
			found[c.Keeper].Labels = cluster.Labels
		default:
			found[cluster.Spec.ClusterID] = known(cluster)
		}
	}
	for i := range o.Policies {
		c.Policies = append(c.Policies, &o.Policies[i])
	}
	c.gateways = c.gatewaysOf(o)
	c.arrange(found)
	return c
}

// OfBroker returns the catalog of a broker. Policies in it are labelled as members label
// their copies.
func OfBroker(sets []Set) *Catalog {
	c := &Catalog{Keeper: submarinerv1.BrokerID, namespaces: map[string]string{}, gateways: map[string][]gateway{}}
	found := map[string]*policy.Cluster{}
	for _, set := range sets {
		c.Sets = append(c.Sets, set.Name)
		c.namespaces[set.Name] = set.Namespace
		for i := range set.Clusters {
			cluster := &set.Clusters[i]
			id := cluster.Spec.ClusterID
			if c.Maker(cluster) != id {
				continue
			}
			if found[id] == nil {
				found[id] = known(cluster)
				found[id].Sets = nil
			}
			found[id].Sets = append(found[id].Sets, set.Name)
		}
		for i := range set.Policies {
			p := set.Policies[i].DeepCopy()
			p.Labels = map[string]string{submarinerv1.ClusterIDLabel: c.Maker(p), submarinerv1.ClusterSetLabel: set.Name}
			c.Policies = append(c.Policies, p)
		}
		maps.Copy(c.gateways, c.gatewaysOf(set.Objects))
	}
	slices.Sort(c.Sets)
	c.arrange(found)
	return c
}

// known is a cluster by its Cluster object. Its driver is the default until one of its
// gateways says otherwise.
func known(c *submarinerv1.Cluster) *policy.Cluster {
	out := policy.ClusterOf(c)
	out.Driver = drivers.Default
	return &out
}

func (c *Catalog) arrange(found map[string]*policy.Cluster) {
	for _, id := range slices.Sorted(maps.Keys(found)) {
		cluster := *found[id]
		if gateways := c.gateways[id]; len(gateways) > 0 && gateways[0].Default != "" {
			cluster.Driver = gateways[0].Default
		}
		c.Clusters = append(c.Clusters, cluster)
	}
	slices.SortStableFunc(c.Policies, func(a, b *v1alpha1.CablePolicies) int { return cmp.Compare(a.SharedName(), b.SharedName()) })
}

// Maker is the ID of the cluster that made an object, or submarinerv1.BrokerID.
func (c *Catalog) Maker(o metav1.Object) string {
	return cmp.Or(o.GetLabels()[submarinerv1.ClusterIDLabel], c.Keeper)
}

// MakerName is how messages call who makes policies.
func MakerName(id string) string {
	if id == submarinerv1.BrokerID {
		return "the broker"
	}
	return "cluster " + id
}

// OnBroker says whether the catalog is the broker's.
func (c *Catalog) OnBroker() bool { return c.Keeper == submarinerv1.BrokerID }

// ClusterIDs returns the IDs of the clusters, sorted.
func (c *Catalog) ClusterIDs() []string {
	var out []string
	for _, cluster := range c.Clusters {
		out = append(out, cluster.ID)
	}
	return out
}

// Cluster returns a cluster by its ID.
func (c *Catalog) Cluster(id string) (policy.Cluster, bool) {
	i, found := slices.BinarySearchFunc(c.Clusters, id, func(cluster policy.Cluster, id string) int { return cmp.Compare(cluster.ID, id) })
	if !found {
		return policy.Cluster{}, false
	}
	return c.Clusters[i], true
}

// Find returns the policies of a name: those made here, for a clusterset or, if that is
// empty, for any; and the makers of the others.
func (c *Catalog) Find(name, set string) (own []*v1alpha1.CablePolicies, makers []string) {
	for _, p := range c.Policies {
		switch maker := c.Maker(p); {
		case p.SharedName() != name:
		case maker != c.Keeper:
			makers = append(makers, maker)
		case set == "" || slices.Contains(c.SetsOf(p), set):
			own = append(own, p)
		}
	}
	return own, makers
}

// Names returns the names of the policies, sorted; own: of those made here.
func (c *Catalog) Names(own bool) []string {
	var out []string
	for _, p := range c.Policies {
		if !own || c.Maker(p) == c.Keeper {
			out = append(out, p.SharedName())
		}
	}
	return slices.Compact(out)
}
