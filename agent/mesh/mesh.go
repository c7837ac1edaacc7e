// Package mesh computes what one node contributes to the network of clusters: which
// kernel objects it holds, and what its agent reports. It is the pure half of an
// agent: a Snapshot goes in, a Plan and a Report come out.
//
//	Snapshot → Membership → Offer → Accepted → Cables → Traffic → dataplane.State and report
//
// Each arrow is a function of the values to its left, and each value is a type in a file of
// its own. Membership lists the nodes of this cluster and the other clusters that exist. Offer
// is what this node offers other clusters as a gateway: drivers, their settings, and itself.
// Accepted lists the gateways of other clusters whose announcements are valid and do
// not conflict with others. Cables lists the driver that connects each of them. Traffic, of
// gateways only, lists the cables that the gateway holds while pairs change theirs, and which
// of them carry packets. A Mesh has these values for the roles (gateway.go, route.go),
// which make a Plan of them and, from its Outcome, a Report.
//
// The package has no clock, no API client, no socket and no access to a kernel: the
// Snapshot has everything that it needs from them. So "subctl show plan" computes on any
// machine what a node should hold.
package mesh

import (
	"errors"

	"subctl/cable"
)

// Mesh is a Snapshot and the stages that follow from it for every role.
type Mesh struct {
	Snapshot   Snapshot
	Membership Membership
	Offer      Offer
	Accepted   Accepted
	Cables     Cables
}

// ErrNotJoined is the error of a cluster without a Submariner object: its agents have
// nothing to do.
var ErrNotJoined = errors.New("there is no Submariner object in this cluster: run subctl join")

// Of computes all stages. On a node that is no gateway, Cables are those that any gateway of this
// cluster can have. The error is ErrNotJoined or a mistake in this cluster's own objects. Mistakes
// of other clusters are not errors: they are in Cables.Refused.
func Of(s Snapshot) (*Mesh, error) {
	m, err := ofGateway(s)
	if err == nil && !m.Membership.mayBeGateway(s) {
		m.throughAny()
	}
	return m, err
}

// ofGateway computes all stages, as a gateway on this node needs them.
func ofGateway(s Snapshot) (*Mesh, error) {
	m := &Mesh{Snapshot: s}
	var err error
	if m.Membership, err = readMembership(s); err != nil {
		return nil, err
	}
	m.Offer = readOffer(s, m.Membership)
	m.Accepted = accept(s, m.Membership)
	m.Cables = connect(s, m.Membership, m.Offer, m.Accepted)
	return m, nil
}

// NodePlan is what the agent of a gateway, or a route agent, decides for its node.
type NodePlan struct {
	Plan
	// Traffic is the traffic of a gateway. Of it, the plan of a route agent has only Using.
	Traffic
	// Label is what a route agent knows of its node's label of gateway nodes.
	Label Label
	// Bare is Memory.Bare for the next plan of a gateway.
	Bare bool
	// Mesh is the Mesh from which the plan was made; nil if the snapshot has a mistake.
	Mesh *Mesh

	links   []cable.Link    // of the cables that are held, in their order
	members map[uint32]bool // next hops that the groups of remote clusters have
}

// PlanOf returns what a role of gateways or route agents has decided; Mesh is nil if it has not, or
// for other roles.
func PlanOf(p Plan) NodePlan {
	if decided, is := p.Decisions.(*NodePlan); is {
		return *decided
	}
	return NodePlan{Plan: p}
}

// deciding returns a plan function as a Role has it.
func deciding(plan func(Snapshot) (NodePlan, error)) func(Snapshot) (Plan, error) {
	return func(s Snapshot) (Plan, error) {
		p, err := plan(s)
		if err != nil {
			return Plan{}, err
		}
		p.Decisions = &p
		return p.Plan, nil
	}
}
