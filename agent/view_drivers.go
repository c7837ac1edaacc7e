package agent

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
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
		return cable.Cable{}, noCable{d.Name(), p.Policy, err}
	}
	return cable.Cable{Peer: p, Driver: d}, nil
}

// noCable says why a pair has not the cable that it should have.
type noCable struct {
	driver, policy string // as wanted; empty if nobody knows, or none decides
	why            error
}

func (e noCable) Error() string { return e.why.Error() }
func (e noCable) Unwrap() error { return e.why }

// peer is a remote gateway with what is known of the path to it.
func (v *view) peer(g cable.Gateway) cable.Peer {
	path := v.snap.Paths[g.Name]
	p := cable.Peer{Gateway: g, Address: path.Address, NATed: path.NAT, InboundOnly: path.InboundOnly, MTU: path.MTU}
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
	own, other := v.us, policy.Cluster{ID: p.Cluster, Sets: []string{submarinerv1.DefaultClusterSet}}
	if c := v.clusters[p.Cluster]; c != nil {
		other = policy.ClusterOf(c)
	}
	other.Driver = p.Default
	dec := v.book.Decide(own, other)
	if dec.ConfigErr != nil {
		dec.Err = fmt.Errorf("cable policy %s, settings of %s: %w", dec.Policy, dec.Driver, dec.ConfigErr)
	}
	no := noCable{driver: dec.Driver, policy: dec.Policy, why: dec.Err}
	if dec.Err != nil {
		return v.keep(p, no)
	}
	d, err := drivers.Parse(dec.Driver)
	switch {
	case err != nil:
		no.why = err
	case !v.offers(d.Name()):
		no.why = fmt.Errorf("%scluster %s does not offer %s%s", wants(dec), own.ID, d.Name(), v.whyNot(d))
	case !p.Offers(d.Name()):
		no.why = fmt.Errorf("%scluster %s does not offer %s", wants(dec), other.ID, d.Name())
	default:
		p.Policy, p.Shared, p.Config = dec.Policy, dec.Config, v.settings[d.Name()].With(dec.Config)
		return d, nil
	}
	return nil, no
}

// keep has a pair go on with the cable that it uses where a policy has a mistake: any
// member can write one, and must not be able to cut others off, nor to weaken what they
// have. Where there is no such cable, or no policy decides, there is none.
func (v *view) keep(p *cable.Peer, no noCable) (cable.Driver, error) {
	u, ok := v.inUse(p.Gateway)
	if !ok || no.policy == "" || !v.offers(u.Driver) || !p.Offers(u.Driver) {
		return nil, no
	}
	p.Policy, p.Shared, p.Config = u.Policy, u.Shared, v.settings[u.Driver].With(u.Shared)
	v.kept[p.Name] = fmt.Sprintf("the cable to cluster %s stays %s: %v", p.Cluster, u.Driver, no)
	return drivers.Find(u.Driver), nil
}

// inUse is what carries the traffic to a gateway. If it is new, or this one is, it is
// what carries, or carried, the traffic between other gateways of the two clusters.
func (v *view) inUse(g cable.Gateway) (Using, bool) {
	if u, ok := v.snap.Using[g.Name]; ok {
		return u, true
	}
	if v.before == nil {
		v.before = map[string]Using{}
		for _, report := range List[*submarinerv1.Gateway](v.snap) {
			for _, u := range usingFromReport(report, v.snap.Now) {
				v.before[u.Cluster] = u
			}
		}
		for _, u := range v.snap.Using {
			v.before[u.Cluster] = u
		}
	}
	u, ok := v.before[g.Cluster]
	return u, ok
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
	if v.book = v.snap.Book; v.book == nil {
		v.book = policy.Compile(List[*v1alpha1.CablePolicies](v.snap))
	}
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
