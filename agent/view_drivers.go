package agent

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/cable/keys"
	"subctl/cable/natdiscovery"
	"subctl/policy"
)

// This file finds out which driver joins this cluster's gateway and another's: what
// both offer, and what policy says.

// connect makes a cable to another cluster's gateway, or says why there is none.
func (v *view) connect(p cable.Peer) (cable.Cable, error) {
	d, err := v.resolve(&p)
	if err != nil {
		return cable.Cable{}, err
	}
	if err := d.Refuses(v.local(), p); err != nil {
		return cable.Cable{}, err
	}
	return cable.Cable{Peer: p, Driver: d}, nil
}

// peer is a remote gateway with what is known of the way to it.
func (v *view) peer(g cable.Gateway) cable.Peer {
	path := v.snap.Paths[g.Name]
	p := cable.Peer{Gateway: g, Address: path.Address, NATed: path.NAT, Unreachable: path.Unreachable, MTU: path.MTU}
	if !p.Address.IsValid() {
		p.Address, p.NATed = natdiscovery.Unasked(g)
	}
	if c := v.clusters[g.Cluster]; c != nil {
		p.PublicKey, _ = keys.ParsePublic(c.Spec.PublicKey) // drivers that need one refuse the zero key
	}
	return p
}

// resolve finds the driver for a peer, and fills in what its policy says.
func (v *view) resolve(p *cable.Peer) (cable.Driver, error) {
	own := policy.Cluster{ID: v.sub.Spec.ClusterID, Labels: v.ownLabels(), Sets: v.sub.Spec.Sets(), Driver: v.driver.Name()}
	other := policy.Cluster{ID: p.Cluster, Driver: p.Default, Sets: []string{submarinerv1.DefaultClusterSet}}
	if c := v.clusters[p.Cluster]; c != nil {
		other.Labels, other.Sets = c.Labels, setsOf(c)
	}
	dec := v.book.Decide(own, other)
	if dec.Err != nil {
		return nil, dec.Err
	}
	p.Policy = dec.Policy
	d := drivers.Find(dec.Driver)
	switch {
	case d == nil:
		return nil, fmt.Errorf("cable policy %s wants the driver %.63q, which is unknown here: use one of %s", dec.Policy, dec.Driver, drivers.Names())
	case !v.offers(d.Name()):
		return nil, fmt.Errorf("%sthis cluster does not offer %s%s", wants(dec), d.Name(), v.whyNot(d))
	case !p.Offers(d.Name()):
		return nil, fmt.Errorf("%scluster %s does not offer %s", wants(dec), p.Cluster, d.Name())
	}
	if dec.ConfigErr != nil {
		return nil, fmt.Errorf("cable policy %s, settings of %s: %w", dec.Policy, d.Name(), dec.ConfigErr)
	}
	p.Shared = dec.Config
	p.Config = v.settings[d.Name()].With(p.Shared)
	return d, nil
}

// setsOf are the clustersets that another cluster is in: those it was heard of in,
// which is the broker's word and not its own.
func setsOf(c *submarinerv1.Cluster) []string {
	if sets := c.Annotations[broker.ClusterSetsAnnotation]; sets != "" {
		return strings.Split(sets, ",")
	}
	return []string{submarinerv1.DefaultClusterSet}
}

// wants begins a complaint about a policy's choice.
func wants(d policy.Decision) string {
	if d.Policy == "" {
		return ""
	}
	return fmt.Sprintf("cable policy %s wants %s: ", d.Policy, d.Driver)
}

// whyNot says what the node lacks for a driver; nothing if the user did not list it.
func (v *view) whyNot(d cable.Driver) string {
	if err := cmp.Or(d.Lacks(v.local()), v.listedErr); err != nil {
		return ": " + err.Error()
	}
	return ": it is not in Submariner.spec.cableDrivers"
}

// offers says whether this cluster offers a driver.
func (v *view) offers(name string) bool {
	return slices.ContainsFunc(v.offer, func(d cable.Driver) bool { return d.Name() == name })
}

// readOffer fills in what this cluster offers: of what it may offer, everything that the
// node has the means for.
func (v *view) readOffer() {
	for _, d := range v.listed {
		if d.Lacks(v.local()) == nil {
			v.offer = append(v.offer, d)
		}
	}
}

// readClusters fills in policies and the other clusters.
func (v *view) readClusters() {
	v.book = policy.Compile(List[*v1alpha1.CablePolicies](v.snap))
	v.clusters = map[string]*submarinerv1.Cluster{}
	for _, c := range List[*submarinerv1.Cluster](v.snap) {
		if c.Labels[submarinerv1.ClusterIDLabel] == c.Spec.ClusterID {
			v.clusters[c.Spec.ClusterID] = c
		}
	}
}

// ownLabels are the labels of this cluster: those on its Cluster object, and until
// there is one those it was joined with.
func (v *view) ownLabels() map[string]string {
	labels := v.cluster().Labels
	if c := find[*submarinerv1.Cluster](v.snap, v.sub.Spec.ClusterID); c != nil {
		maps.Copy(labels, c.Labels)
	}
	return labels
}
