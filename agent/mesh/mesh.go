// Package mesh plans what one node contributes to the network of clusters: which kernel objects it
// holds. A Snapshot goes in, and a Plan comes out. What the node's agent says of the plan, once it
// is known what became of it, is package report; the roles of the agents, which have both, are in
// package roles.
//
//	Snapshot → Membership → Offer → Accepted → Cables → Traffic → dataplane.State
//
// Each arrow is a function of the values to its left, and each value is a type in a file of
// its own. Membership lists the nodes of this cluster and the other clusters that exist. Offer
// is what this node offers other clusters as a gateway: drivers, their settings, and itself.
// Accepted lists the gateways of other clusters whose announcements are valid and do
// not conflict with others. Cables lists the driver that connects each of them. Traffic, of
// gateways only, lists the cables that the gateway holds while pairs change theirs, and which
// of them carry packets. A Mesh has these values; PlanGateway and PlanRoute make a Plan of them.
//
// What one plan hands to the next outlives the agent as reports: RecallGateway and RecallRoute read
// them back.
//
// The package has no clock, no API client, no socket and no access to a kernel: the
// Snapshot has everything that it needs from them. So "subctl show plan" computes on any
// machine what a node should hold.
package mesh

import (
	"subctl/agent/mesh/members"
	"subctl/agent/role"
	"subctl/cable"
)

// Mesh is a Snapshot and the stages that follow from it for every role.
type Mesh struct {
	Snapshot   role.Snapshot
	Membership members.Membership
	Offer      Offer
	Accepted   Accepted
	Cables     Cables
}

// Of computes all stages. On a node that is no gateway, Cables are those that any gateway of this
// cluster can have. The error is ErrNotJoined or a mistake in this cluster's own objects. Mistakes
// of other clusters are not errors: they are in Cables.Refused.
func Of(s role.Snapshot) (*Mesh, error) {
	m, err := ofGateway(s)
	if err == nil && !m.Membership.MayBeGateway(s) {
		m.addOtherGateways()
	}
	return m, err
}

// ofGateway computes all stages, as a gateway on this node needs them.
func ofGateway(s role.Snapshot) (*Mesh, error) {
	m := &Mesh{Snapshot: s}
	var err error
	if m.Membership, err = members.Read(s); err != nil {
		return nil, err
	}
	m.Offer = readOffer(s, m.Membership)
	m.Accepted = accept(s, m.Membership)
	m.Cables = connect(s, m.Membership, m.Offer, m.Accepted)
	return m, nil
}

// Plan is what the agent of a gateway, or a route agent, decides for its node.
type Plan struct {
	role.Plan
	// Traffic is the traffic of a gateway. Of it, the plan of a route agent has only Using.
	Traffic
	// Label is what a route agent knows of its node's label of gateway nodes.
	Label role.Label
	// FreshBoot is Memory.FreshBoot for the next plan of a gateway.
	FreshBoot bool
	// Mesh is the Mesh from which the plan was made; nil if the snapshot has a mistake.
	Mesh *Mesh

	// Links are the links of the cables that are kept up, in the order of the cables.
	Links []cable.Link
	// GroupMembers are the next hops that the groups of other clusters have.
	GroupMembers map[uint32]bool
}

// PlanOf returns what a role of gateways or route agents has decided; Mesh is nil if it has not, or
// for other roles.
func PlanOf(p role.Plan) Plan {
	if decided, is := p.Decisions.(*Plan); is {
		return *decided
	}
	return Plan{Plan: p}
}
