// Package members reads who is in the network, from a snapshot: this cluster with its nodes and
// gateways, and the other clusters with what they announce.
package members

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/internal/prefix"
)

// Guarded calls step, and turns a panic into an error. An object of another cluster must never stop
// this cluster, even if it triggers a bug in subctl.
func Guarded(step func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("internal error in subctl while processing it; please report it: %v", r)
		}
	}()
	return step()
}

// Membership holds the members: this cluster with its nodes, and the other clusters.
type Membership struct {
	Submariner *v1alpha1.Submariner // how this cluster is joined
	Own        cable.Networks
	Self       cable.Node
	Nodes      []cable.Node // of this cluster, sorted by name
	// the nodes among them that have the label of gateway nodes, oldest first: see
	// cable.Intra.Ranked
	Labelled []cable.Node
	Gateways []cable.Node // the nodes among these that have an Endpoint
	// messages about nodes whose addresses collide with those of other nodes or clusters: see
	// distinct and held
	Collisions []string
	Contested  []string  // messages about podCIDRs that are left out: see removeContestedPods
	Engines    Engines   // see readEngines
	Others     []Engines // of gateways of this cluster: those that differ from Engines, and from each other
	// Cluster is the Cluster object of this cluster; nil if there is none yet.
	Cluster *submarinerv1.Cluster
	// Sets are the clustersets of this cluster, sorted. The broker's administrator may have changed
	// them since the cluster has joined.
	Sets []string
	// Clusters are the Cluster objects of other clusters, by ID.
	Clusters map[string]*submarinerv1.Cluster
	// Endpoints are the Endpoints of this cluster, with the standbys last; Remote are the Endpoints
	// that other clusters announce.
	Endpoints, Remote []Announced
	// Octets are those of this node as a gateway.
	Octets cable.Octets

	Held *role.PriorClaims // by other clusters
}

// Siblings returns the other gateways of this cluster that have an Endpoint: active ones and
// standbys.
func (m Membership) Siblings() []cable.Node {
	return slices.DeleteFunc(slices.Clone(m.Gateways), func(g cable.Node) bool { return g.Name == m.Self.Name })
}

// Carried reports whether the CNI brings packets to the pods of another node, and replies of pods
// may reach several gateways: active ones, or a standby that has become active.
func (m Membership) Carried() bool {
	return len(m.Labelled) > 1 && slices.ContainsFunc(m.Nodes, func(n cable.Node) bool {
		return n.Name != m.Self.Name && !n.Pods.IsValid()
	})
}

// Leaving reports whether the cluster is being uninstalled.
func (m Membership) Leaving() bool { return !m.Submariner.DeletionTimestamp.IsZero() }

// Read reads a Snapshot. The error is ErrNotJoined or a mistake in this
// cluster's own objects.
func Read(s role.Snapshot) (Membership, error) {
	subs := role.List[*v1alpha1.Submariner](s)
	if len(subs) == 0 {
		return Membership{}, role.ErrNotJoined
	}
	m := Membership{Submariner: subs[0], Held: s.Memory.PriorClaims()}
	var err error
	if m.Own, err = role.OwnNetworks(m.Submariner.Spec); err != nil {
		return m, err
	}
	if err = checkOwnNetworks(m.Own); err != nil {
		return m, err
	}
	// A name is looked up by a part of the agent.
	if ip, err := netip.ParseAddr(m.Submariner.Spec.BrokerHost()); err == nil && ip.Is4() {
		m.Own.Needed = append(m.Own.Needed, prefix.Host(ip))
	}
	m.ReadClusters(s)
	if m.Sets = s.ClusterSets; m.Sets == nil {
		m.Sets = v1alpha1.ClusterSets(m.Submariner.Spec, m.Cluster)
	}
	if err := m.readNodes(s); err != nil {
		return m, err
	}
	m.Octets = m.chooseOctets(s)
	return m, nil
}

// ReadClusters fills in the Clusters and Endpoints of this cluster and of the others.
func (m *Membership) ReadClusters(s role.Snapshot) {
	id := m.Submariner.Spec.ClusterID
	m.Clusters = map[string]*submarinerv1.Cluster{}
	for _, c := range role.List[*submarinerv1.Cluster](s) {
		switch {
		case c.Name == id && !submarinerv1.IsCopy(c):
			m.Cluster = c
		case c.Labels[submarinerv1.ClusterIDLabel] == c.Spec.ClusterID:
			m.Clusters[c.Spec.ClusterID] = c
		}
	}
	for _, e := range role.List[*submarinerv1.Endpoint](s) {
		if OfCluster(id, e) {
			m.Endpoints = append(m.Endpoints, ofThisCluster(e))
		} else {
			m.Remote = append(m.Remote, ofAnother(e, id))
		}
	}
	slices.SortStableFunc(m.Endpoints,
		func(a, b Announced) int { return cmp.Compare(a.Gateway.Drain, b.Gateway.Drain) })
}

// checkOwnNetworks returns an error for each network of this cluster that overlaps one of another
// field.
func checkOwnNetworks(own cable.Networks) error {
	var errs []error
	check := func(field string, nets []netip.Prefix, other string, others []netip.Prefix, remedy string) {
		for _, n := range nets {
			for _, o := range others {
				if n.Overlaps(o) {
					errs = append(
						errs,
						fmt.Errorf("Submariner.spec.%s %s overlaps %s %s: run subctl join with %s", field, n, other, o,
							remedy),
					)
				}
			}
		}
	}
	check("serviceCIDR", own.Services, "clusterCIDR", own.Pods, "the right --clustercidr and --servicecidr")
	check("globalCIDR", own.Global, "clusterCIDR", own.Pods, "another --globalnet-cidr")
	check("globalCIDR", own.Global, "serviceCIDR", own.Services, "another --globalnet-cidr")
	return errors.Join(errs...)
}

// OwnEndpoints returns the Endpoints of this cluster; none if it has not joined. The label of
// copies alone does not tell them: admission policies let each gateway write Endpoints of other
// clusters, with any host name, and without the label.
func OwnEndpoints(s role.Snapshot) (out []*submarinerv1.Endpoint) {
	sub := s.Submariner()
	if sub == nil {
		return nil
	}
	for _, e := range role.List[*submarinerv1.Endpoint](s) {
		if OfCluster(sub.Spec.ClusterID, e) {
			out = append(out, e)
		}
	}
	return out
}

// OfCluster reports whether an Endpoint was made in the cluster with an ID, where it was found.
func OfCluster(id string, e *submarinerv1.Endpoint) bool {
	return e.Spec.ClusterID == id && !submarinerv1.IsCopy(e)
}

// PublishedIP returns the public address in the Endpoint of the snapshot's node; the
// zero Addr if there is none.
func PublishedIP(s role.Snapshot) netip.Addr {
	for _, e := range OwnEndpoints(s) {
		if e.Spec.Hostname == s.Node {
			ip, _ := cable.ParseHost(e.Spec.PublicIP) // the zero Addr: none
			return ip
		}
	}
	return netip.Addr{}
}
