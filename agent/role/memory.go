package role

import (
	"time"

	"subctl/cable"
	"subctl/cable/keys"
	"subctl/cable/natdiscovery"
)

// Label is what a route agent knows of its node's label of gateway nodes. The zero Label has not
// seen it.
type Label struct {
	Seen  bool      // the node had it in the last plan
	Ruled bool      // the kernel has had the rule for the table of cables since the node has it
	Until time.Time // until when the node counts as a gateway node without it; the zero time: it does not
}

// Memory is the state that one plan hands to the next. An agent that has just started reads it
// from the reports of its cluster's gateways: see Role.Recall.
type Memory struct {
	// Incumbents are the gateways of other clusters whose announcements were accepted:
	// they keep what they announced if another cluster announces the same.
	Incumbents []cable.Gateway
	Claims     *PriorClaims // what they held in the last plan
	// Using has the cables that carry the traffic to remote gateways, by cable name.
	Using map[string]Using
	// Former has the cables that carried the traffic before the node has booted, by cable name, of
	// pairs that have used none since. A pair may get its cable again, but like its first one: it
	// carries nothing until it answers. When an agent starts, all idle cables that its predecessor
	// has reported are among them.
	Former map[string]Using
	// First are the changes from no cable to the first cable of a pair, by cable name.
	First map[string]CableChange
	// Down is what the agent's predecessor had found of cables that are down, by name of the probe.
	// The kernel sends nothing through them, and that stays so until this agent's own probes have a
	// result: see Probes.Known.
	Down Healths
	// Retiring is Traffic.Retiring of the last plan.
	Retiring map[string]Using
	// Label is Plan.Label of the last plan.
	Label Label
	// FreshBoot reports whether the gateway has carried nothing since its node has booted, as it
	// has been to be drained all the time: it is mesh.Plan.FreshBoot of the last plan. When an
	// agent starts, it reports whether the node holds nothing of what the gateway has reported.
	FreshBoot bool
	// Drain is how far the gateway of the node has got on its way out of service, and DrainingSince
	// is when it began to drain, whether that could be reported or not; the zero Time if it is in
	// service, or a standby. When an agent starts, they are what the gateway has reported.
	Drain         cable.Drain
	DrainingSince time.Time
	// Paths are the paths to remote gateways that the agent's predecessor reported, by cable name.
	Paths map[string]natdiscovery.Path
}

// CableChange is a change of a pair's cable, or of no cable to the first one, that is under way:
// the cable that policy decides on has not answered since.
type CableChange struct {
	Driver string
	Device string // empty if unknown: the agent has just started
	Since  time.Time
	// Proof is the time of the first ping that counts: earlier answers prove nothing.
	ProbeAfter time.Time
}

// LeadsTo reports whether t is a change to the cable u. t may be nil.
func (t *CableChange) LeadsTo(u Using) bool {
	return t != nil && t.Driver == u.Driver && (t.Device == "" || t.Device == u.Device)
}

// Using is the cable that carries the traffic to one remote gateway. One plan hands it to the
// next: a pair changes its cable only once the new one is known to work.
type Using struct {
	Cluster string // of the remote gateway
	Driver  string
	Device  string
	Config  cable.Config
	Shared  cable.Config
	Policy  string
	Rule    int // of the policy, counted from 1
	// PublicKey is the public key of the other cluster; the zero PublicKey if it has none.
	PublicKey keys.PublicKey
	// Since is the time when the cable took over from Before; zero if there was none.
	Since time.Time
	// Before is kept up for a while, for packets that the other end still sends
	// through it.
	Before *Using
	// Change is the change of the cable that is under way; nil if there is none.
	Change *CableChange
	// Silent reports whether the cable has stopped answering: see silent.
	Silent bool
}
