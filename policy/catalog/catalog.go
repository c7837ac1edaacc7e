// Package catalog combines all cable policies and clusters that a member of a clusterset,
// or the broker, holds. It computes which cable every pair gets; package impact compares two
// catalogs. It does no I/O: the caller reads the objects.
//
// It computes what should be from the objects. Information that only gateways have, such as
// NAT that no Endpoint announces, is in what they report: Catalog.Uses.
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
	// Keeper is the ID of the cluster with the API server, or submarinerv1.BrokerID.
	Keeper string
	// Sets are the clustersets of the cluster or of the broker, sorted.
	Sets []string
	// BrokerOnly reports whether only policies of the broker apply.
	BrokerOnly bool
	// Policies are sorted by SharedName. Policies created elsewhere have the labels of copies.
	Policies []*v1alpha1.CablePolicies
	// Clusters are sorted by ID.
	Clusters []policy.Cluster
	// Uses are the reports of the gateways of the cluster; empty where they were not read.
	Uses []Use

	namespaces map[string]string                  // by clusterset, on a broker
	refused    map[*v1alpha1.CablePolicies]string // why members refuse policies, on a broker
	gateways   map[string][]gateway               // by cluster
	joining    map[string]func(driver string) error
}

// Objects are the objects of one namespace.
type Objects struct {
	Policies  []v1alpha1.CablePolicies
	Clusters  []submarinerv1.Cluster
	Endpoints []submarinerv1.Endpoint
}

// Set is a clusterset on a broker.
type Set struct {
	Name, Namespace string
	Objects
	// Refused has the reasons why members refuse policies of the clusterset, by the index of
	// Policies. Two clusters may have policies of one name.
	Refused map[int]string
}

// OfMember returns the catalog of a joined cluster, from the objects in the namespace of
// its agents.
func OfMember(sub *v1alpha1.Submariner, o Objects) *Catalog {
	c := &Catalog{Keeper: sub.Spec.ClusterID, BrokerOnly: sub.Spec.PoliciesFrom.BrokerOnly()}
	own := slices.IndexFunc(o.Clusters, func(cluster submarinerv1.Cluster) bool {
		return cluster.Name == c.Keeper && !submarinerv1.IsCopy(&cluster)
	})
	if c.Sets = sub.Spec.Sets(); own >= 0 {
		c.Sets = v1alpha1.ClusterSets(sub.Spec, &o.Clusters[own])
	}
	driver := drivers.Default
	if offered, err := drivers.Listed(sub.Spec); err == nil {
		driver = offered[0].Name()
	}
	found := map[string]*policy.Cluster{c.Keeper: {
		ID: c.Keeper, Sets: c.Sets, Labels: sub.ClusterLabels(),
		Driver: driver, MustEncrypt: sub.Spec.Encryption.Required(),
	}}
	for i := range o.Clusters {
		switch cluster := &o.Clusters[i]; {
		case c.Maker(cluster) != cluster.Spec.ClusterID: // the agents ignore it too
		case cluster.Spec.ClusterID == c.Keeper:
			found[c.Keeper].Labels = submarinerv1.SharedLabels(cluster.Labels)
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

// OfBroker returns the catalog of a broker with the given spec. Its policies have the labels of
// copies in a member.
func OfBroker(spec v1alpha1.BrokerSpec, sets []Set) *Catalog {
	c := &Catalog{
		Keeper:     submarinerv1.BrokerID,
		BrokerOnly: spec.PoliciesFrom.BrokerOnly(),
		namespaces: map[string]string{},
		refused:    map[*v1alpha1.CablePolicies]string{},
		gateways:   map[string][]gateway{},
	}
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
			p.Labels = map[string]string{
				submarinerv1.ClusterIDLabel:  c.Maker(p),
				submarinerv1.ClusterSetLabel: set.Name,
			}
			c.Policies = append(c.Policies, p)
			if why := set.Refused[i]; why != "" {
				c.refused[p] = why
			}
		}
		maps.Copy(c.gateways, c.gatewaysOf(set.Objects))
	}
	slices.Sort(c.Sets)
	c.arrange(found)
	return c
}

// known returns a cluster from its Cluster object, with the default driver; arrange
// replaces the driver if a gateway announces one.
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
	slices.SortStableFunc(c.Policies,
		func(a, b *v1alpha1.CablePolicies) int { return cmp.Compare(a.SharedName(), b.SharedName()) })
}

// Maker returns the ID of the cluster on which o was created, or submarinerv1.BrokerID.
func (c *Catalog) Maker(o metav1.Object) string { return submarinerv1.MakerOf(o, c.Keeper) }

// Book returns the compiled policies. It omits policies that members refuse.
func (c *Catalog) Book() *policy.Book { return policy.Compile(c.Accepted(), c.Makers()) }

// Accepted returns the policies that members do not refuse.
func (c *Catalog) Accepted() []*v1alpha1.CablePolicies {
	return slices.DeleteFunc(slices.Clone(c.Policies),
		func(p *v1alpha1.CablePolicies) bool { return c.Refused(p) != "" })
}

// Refused returns why members refuse a policy of the catalog of a broker; empty if they accept it.
func (c *Catalog) Refused(p *v1alpha1.CablePolicies) string { return c.refused[p] }

// Makers returns whose policies apply.
func (c *Catalog) Makers() policy.Makers {
	return policy.Makers{Here: c.Keeper, BrokerOnly: c.BrokerOnly}
}

// MakerName returns the name of a Maker in messages.
func MakerName(id string) string {
	switch id {
	case submarinerv1.BrokerID:
		return "the broker"
	case "":
		return "an unknown cluster"
	}
	return "cluster " + id
}

// OnBroker reports whether the catalog belongs to the broker.
func (c *Catalog) OnBroker() bool { return c.Keeper == submarinerv1.BrokerID }

// ClusterIDs returns the IDs of the clusters, sorted.
func (c *Catalog) ClusterIDs() []string {
	var out []string
	for _, cluster := range c.Clusters {
		out = append(out, cluster.ID)
	}
	return out
}

// Cluster returns the cluster with the given ID, if it exists.
func (c *Catalog) Cluster(id string) (policy.Cluster, bool) {
	i, found := c.index(id)
	if !found {
		return policy.Cluster{}, false
	}
	return c.Clusters[i], true
}

// index returns where the cluster with the given ID is in c.Clusters, or would be.
func (c *Catalog) index(id string) (i int, found bool) {
	return slices.BinarySearchFunc(c.Clusters, id,
		func(cluster policy.Cluster, id string) int { return cmp.Compare(cluster.ID, id) })
}

// Find returns the policies of a name that were created here, and the makers of the others.
// If set is not empty, own contains only policies for that clusterset.
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

// OfOthers returns the names of the policies that were not created here, with their makers.
func (c *Catalog) OfOthers() []string {
	var out []string
	for _, p := range c.Policies {
		if maker := c.Maker(p); maker != c.Keeper {
			out = append(out, p.SharedName()+" of "+MakerName(maker))
		}
	}
	return slices.Compact(out)
}

// Names returns the names of the policies, sorted. If own is true, it returns only policies created
// here.
func (c *Catalog) Names(own bool) []string {
	var out []string
	for _, p := range c.Policies {
		if !own || c.Maker(p) == c.Keeper {
			out = append(out, p.SharedName())
		}
	}
	return slices.Compact(out)
}
