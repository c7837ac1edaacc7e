package mesh

import (
	"net/netip"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
)

// OwnEndpoints returns the Endpoints of this cluster; none if it has not joined. The label of
// copies alone does not tell them: admission policies let each gateway write Endpoints of other
// clusters, with any host name, and without the label.
func (s Snapshot) OwnEndpoints() (out []*submarinerv1.Endpoint) {
	sub := s.submariner()
	if sub == nil {
		return nil
	}
	for _, e := range List[*submarinerv1.Endpoint](s) {
		if ofCluster(sub.Spec.ClusterID, e) {
			out = append(out, e)
		}
	}
	return out
}

// ofCluster reports whether an Endpoint was made in the cluster with an ID, where it was found.
func ofCluster(id string, e *submarinerv1.Endpoint) bool {
	return e.Spec.ClusterID == id && !submarinerv1.IsCopy(e)
}

// PublishedIP returns the public address in the Endpoint of the snapshot's node; the
// zero Addr if there is none.
func (s Snapshot) PublishedIP() netip.Addr {
	for _, e := range s.OwnEndpoints() {
		if e.Spec.Hostname == s.Node {
			ip, _ := cable.ParseHost(e.Spec.PublicIP) // the zero Addr: none
			return ip
		}
	}
	return netip.Addr{}
}
