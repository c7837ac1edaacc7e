package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable/drivers"
	"subctl/internal/words"
	"subctl/policy"
)

// Place sets the namespace of a new policy for a clusterset, and on a member its clusterset
// label. An empty set means all clustersets of a member, or on a broker the clusterset
// "default". Place returns an error if the clusterset does not exist here, or if the policy
// specifies another namespace.
func (c *Catalog) Place(p *v1alpha1.CablePolicies, set string) error {
	set = cmp.Or(set, p.Labels[submarinerv1.ClusterSetLabel])
	was := p.Namespace
	ns := c.namespace(set)
	p.Namespace = ns
	if err := c.CheckSet(set); err != nil {
		return err
	}
	if was != "" && was != ns {
		return fmt.Errorf("policy %s specifies namespace %s, but cable policies of %s are in %s: omit the namespace",
			p.Name, was, MakerName(c.Keeper), ns)
	}
	if set != "" && !c.OnBroker() {
		metav1.SetMetaDataLabel(&p.ObjectMeta, submarinerv1.ClusterSetLabel, set)
	}
	return nil
}

// CheckSet returns an error if a clusterset does not exist here. The empty name is none.
func (c *Catalog) CheckSet(set string) error {
	switch {
	case set == "" || slices.Contains(c.Sets, set):
		return nil
	case c.OnBroker():
		return fmt.Errorf("the broker has no clusterset %q: the clustersets are %s%s", set, words.List(c.Sets),
			words.Meant(set, c.Sets))
	}
	return fmt.Errorf("%s is not in clusterset %q: it is in %s%s", MakerName(c.Keeper), set,
		cmp.Or(words.List(c.Sets), "none"), words.Meant(set, c.Sets))
}

// CheckMakers returns an error if policies that are created here have no effect.
func (c *Catalog) CheckMakers() error {
	if c.BrokerOnly && !c.OnBroker() {
		return errors.New(
			"the broker accepts only its own cable policies (deploy-broker --policies-from broker): create the policy there, with --context CONTEXT or, if this cluster hosts the broker, with --broker")
	}
	return nil
}

// namespace returns the namespace of policies for a clusterset; on a broker the namespace of
// "default" if there is no such clusterset.
func (c *Catalog) namespace(set string) string {
	if c.OnBroker() {
		return cmp.Or(c.namespaces[set], c.namespaces[submarinerv1.DefaultClusterSet])
	}
	return submarinerv1.OperatorNamespace
}

// SetsOf returns the clustersets in which a policy that was created here applies.
func (c *Catalog) SetsOf(p *v1alpha1.CablePolicies) []string {
	if c.OnBroker() {
		return slices.DeleteFunc(slices.Clone(c.Sets), func(s string) bool { return c.namespaces[s] != p.Namespace })
	}
	if set := p.Labels[submarinerv1.ClusterSetLabel]; set != "" {
		return []string{set}
	}
	return c.Sets
}

// Replaces returns the policy created here that a new one replaces; nil if there is none.
func (c *Catalog) Replaces(p *v1alpha1.CablePolicies) *v1alpha1.CablePolicies {
	for _, was := range c.Policies {
		if c.Maker(was) == c.Keeper && was.SharedName() == p.Name && was.Namespace == p.Namespace {
			return was
		}
	}
	return nil
}

// CheckTaken returns an error if the name of a new policy is taken: by a policy created here, by
// one of the broker or, on the broker, by one of a cluster. With replace, it accepts the name of a
// policy created here.
func (c *Catalog) CheckTaken(p *v1alpha1.CablePolicies, replace bool) error {
	for _, was := range c.Policies {
		maker := c.Maker(was)
		if was.SharedName() != p.Name || !c.overlap(was, p) || maker == c.Keeper && replace {
			continue
		}
		if maker != c.Keeper && maker != submarinerv1.BrokerID && !c.OnBroker() {
			continue // each cluster has its own names
		}
		if maker == c.Keeper {
			return fmt.Errorf("cable policy %s already exists: change it with --replace, or choose another name",
				p.Name)
		}
		where := "there"
		if maker == submarinerv1.BrokerID {
			where = "there with --broker"
		}
		return fmt.Errorf("cable policy %s already exists, created by %s: change it %s, or choose another name",
			p.Name, MakerName(maker), where)
	}
	return nil
}

// overlap reports whether an existing policy and a new one have a clusterset in common.
func (c *Catalog) overlap(was, p *v1alpha1.CablePolicies) bool {
	if c.Maker(was) == c.Keeper && !c.OnBroker() {
		return true // the same object, whatever its clustersets
	}
	return slices.ContainsFunc(c.SetsOf(p), func(s string) bool { return slices.Contains(was.ClusterSets(), s) })
}

// With returns the catalog as it will be once new policies are shared. Place must have been called
// on these.
func (c *Catalog) With(policies []*v1alpha1.CablePolicies) *Catalog {
	then := slices.DeleteFunc(slices.Clone(c.Policies), func(was *v1alpha1.CablePolicies) bool {
		return slices.ContainsFunc(policies, func(p *v1alpha1.CablePolicies) bool {
			return c.Maker(was) == c.Keeper && was.SharedName() == p.Name && c.overlap(was, p)
		})
	})
	for _, p := range policies {
		then = append(then, c.shared(p))
	}
	out := *c
	out.Policies = then
	return &out
}

// shared returns a copy of a new policy as it will be once the broker has it.
func (c *Catalog) shared(p *v1alpha1.CablePolicies) *v1alpha1.CablePolicies {
	p = p.DeepCopy()
	p.Status = v1alpha1.CablePoliciesStatus{ClusterSets: c.SetsOf(p)}
	return p
}

// Adopted returns the catalog of a broker as it will be once the broker has adopted policies.
func (c *Catalog) Adopted(policies []*v1alpha1.CablePolicies) *Catalog {
	out := *c
	out.Policies = slices.Clone(c.Policies)
	for i, p := range out.Policies {
		if slices.Contains(policies, p) {
			out.Policies[i] = p.DeepCopy()
			metav1.SetMetaDataLabel(&out.Policies[i].ObjectMeta, submarinerv1.ClusterIDLabel, submarinerv1.BrokerID)
		}
	}
	return &out
}

// Without returns the catalog without p.
func (c *Catalog) Without(p *v1alpha1.CablePolicies) *Catalog {
	out := *c
	out.Policies = slices.DeleteFunc(slices.Clone(c.Policies),
		func(other *v1alpha1.CablePolicies) bool { return other == p })
	return &out
}

// Labelled returns the catalog with other labels of a cluster.
func (c *Catalog) Labelled(id string, labels map[string]string) *Catalog {
	out := *c
	out.Clusters = slices.Clone(c.Clusters)
	for i := range out.Clusters {
		if out.Clusters[i].ID == id {
			out.Clusters[i].Labels = labels
		}
	}
	return &out
}

// WithoutCluster returns the catalog without a cluster and the policies that were created on it.
func (c *Catalog) WithoutCluster(id string) *Catalog {
	out := *c
	out.Clusters = slices.DeleteFunc(slices.Clone(c.Clusters),
		func(other policy.Cluster) bool { return other.ID == id })
	out.Policies = slices.DeleteFunc(slices.Clone(c.Policies),
		func(p *v1alpha1.CablePolicies) bool { return c.Maker(p) == id })
	return &out
}

// InSets returns the catalog with a cluster in other clustersets. A cluster that is not known has
// no other properties.
func (c *Catalog) InSets(id string, sets []string) *Catalog {
	cluster, found := c.Cluster(id)
	if !found {
		cluster = policy.Cluster{ID: id, Driver: drivers.Default}
	}
	cluster.Sets = sets
	return c.with(cluster)
}

// Joining returns the catalog with a cluster as it is when it joins with other settings. lacks
// returns why the cluster will not offer a driver; nil if it will. Its gateways are left out: they
// announce the settings that they have now.
func (c *Catalog) Joining(cluster policy.Cluster, lacks func(driver string) error) *Catalog {
	out := c.with(cluster)
	out.gateways = maps.Clone(c.gateways)
	delete(out.gateways, cluster.ID)
	out.joining = map[string]func(string) error{cluster.ID: lacks}
	return out
}

// with returns the catalog with a cluster in place of the one with its ID, or added.
func (c *Catalog) with(cluster policy.Cluster) *Catalog {
	out := *c
	out.Clusters = slices.Clone(c.Clusters)
	i, found := out.index(cluster.ID)
	if !found {
		out.Clusters = slices.Insert(out.Clusters, i, cluster)
	}
	out.Clusters[i] = cluster
	return &out
}
