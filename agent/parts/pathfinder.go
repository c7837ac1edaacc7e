package parts

import (
	"net/netip"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	"subctl/agent/discovery"
	"subctl/agent/mesh"
	"subctl/agent/mesh/members"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/cable/natdiscovery"
)

// finder finds the paths to other gateways: a discovery.Finder.
type finder interface {
	manager.Runnable
	Set(discovery.Search)
	Again(name string)
	Paths() map[string]natdiscovery.Path
	PublicIP(published netip.Addr) netip.Addr
}

// pathFinder finds the paths to other gateways while this one is active.
type pathFinder struct{ finder }

func newPathFinder(o Options) pathFinder {
	return pathFinder{discovery.New(o.ListenUDP, o.Log, o.Trigger)}
}

// Observe implements Observer.
func (f pathFinder) Observe(s *role.Snapshot) error {
	s.Paths, s.PublicIP = f.Paths(), f.PublicIP(members.PublishedIP(*s))
	return nil
}

// Act implements Actor: it searches for the accepted gateways, and again for those whose
// cables are broken.
func (f pathFinder) Act(s role.Snapshot, p role.Plan, out *role.Outcome) {
	switch m := mesh.PlanOf(p).Mesh; {
	case !s.Standing.Active || m != nil && m.Membership.Leaving():
		f.Set(discovery.Search{})
	case m != nil:
		search := discovery.Search{
			Local:  m.Offer.Local,
			Own:    m.Membership.Own,
			Cables: m.Cables.Wanted,
			Peers:  make([]cable.Peer, 0, len(m.Accepted.Peers)),
		}
		for _, p := range m.Accepted.Peers {
			search.Peers = append(search.Peers, p.Peer)
		}
		f.Set(search)
	}
	for name, h := range out.Health {
		if h.Status == submarinerv1.ConnectionError {
			f.Again(name)
		}
	}
}
