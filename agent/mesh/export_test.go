package mesh

import (
	"subctl/agent/mesh/members"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
)

// The tests of this package also make reports, which import it. So they are in package mesh_test,
// and this file has what they use of the inside.

var (
	OfGateway    = ofGateway
	Accept       = accept
	Connect      = connect
	Direct       = directTraffic
	ReadOffer    = readOffer
	Recall       = recall
	IncumbentsIn = incumbentsIn
	UsingIn      = usingIn
)

const (
	IncumbentsAgain = incumbentsAgain
	KeysAgain       = keysAgain
	OldCableGrace   = oldCableGrace
	Decided         = peerDecisionUsual
	DecidedLate     = peerDecisionMax
)

func (a *Accepted) Try(e *submarinerv1.Endpoint, step func() error) { a.try(e, step) }

func (a Accepted) Clusters() []string { return a.clusters() }

func (c Cables) Or(other Cables) Cables { return c.merge(other) }

func (p Plan) ProbesOfCables() role.Probes { return p.probes() }

func (c Cables) PathProbes(m members.Membership, l Offer) role.Probes {
	return c.pathProbes(m, l.Local.PodIP)
}

// LastUsed returns what carries, or last carried, the traffic to a gateway.
func LastUsed(s role.Snapshot, g cable.Gateway) (role.Using, bool) {
	l := lastUsed{snapshot: s}
	return l.by(g)
}
