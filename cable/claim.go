package cable

import (
	"fmt"
	"net/netip"
	"slices"

	"subctl/dataplane"
)

// Claimer is a Driver whose cables take what only one peer can have.
type Claimer interface {
	// Claims lists what the peer takes.
	Claims(Peer) []Claim
}

// Claim is something that only one peer can have.
type Claim struct {
	What string // the same for all who claim it
	// Announced has it taken by every peer that announces it, whatever cable it has now:
	// another one may be about to take over, or have been before.
	Announced bool
	Why       string // one cannot have it that is not the first
}

// VTEPClaim is the claim to the address that a gateway has on VXLAN devices between
// gateways.
func VTEPClaim(privateIP netip.Addr) Claim {
	return Claim{
		What: "address " + VTEPOf(dataplane.VXLANNet, privateIP).String() + " between the gateways", Announced: true,
		Why: "the last three octets of their private IPs are the same, so make another node the gateway",
	}
}

// Announced lists what a gateway takes whatever cable it has.
func Announced(g Gateway, drivers []Driver) []Claim {
	claims := []Claim{
		{What: "cable name " + g.Name, Announced: true, Why: "every gateway has one of its own"},
		VTEPClaim(g.PrivateIP),
	}
	for _, d := range drivers {
		if claimer, ok := d.(Claimer); ok {
			claims = append(claims, slices.DeleteFunc(claimer.Claims(Peer{Gateway: g}), func(c Claim) bool { return !c.Announced })...)
		}
	}
	return claims
}

// Holder is who has claimed something.
type Holder struct {
	Cluster string
	Cable   string // empty: it is kept for whichever gateway of the cluster claims it
}

func (h Holder) String() string {
	if h.Cable == "" {
		return "cluster " + h.Cluster
	}
	return fmt.Sprintf("%.80s", h.Cable)
}

// Claims is what was claimed, and by whom.
type Claims map[string]Holder

// Keep sets aside for the peer's cluster what the peer announces and is among what the
// cluster had before, unless somebody else has it.
func (held Claims) Keep(p Peer, before []Claim, drivers []Driver) {
	for _, claim := range Announced(p.Gateway, drivers) {
		if _, taken := held[claim.What]; !taken && slices.Contains(before, claim) {
			held[claim.What] = Holder{Cluster: p.Cluster}
		}
	}
}

// Announce claims all that a peer takes whatever cable it has, or nothing: then the error
// says what another took before, or another endpoint that calls itself the same.
func (held Claims) Announce(p Peer, drivers []Driver) error {
	return held.take(p, Announced(p.Gateway, drivers), Holder{})
}

// Take claims all that a cable takes besides what its peer announces, or nothing: then the
// error says what another took before.
func (held Claims) Take(c Cable) error {
	claimer, ok := c.Driver.(Claimer)
	if !ok {
		return nil
	}
	own := slices.DeleteFunc(claimer.Claims(c.Peer), func(c Claim) bool { return c.Announced })
	return held.take(c.Peer, own, Holder{Cluster: c.Cluster, Cable: c.Name})
}

// take claims all or nothing. What mine has is the peer's already.
func (held Claims) take(p Peer, all []Claim, mine Holder) error {
	for _, claim := range all {
		if by, taken := held[claim.What]; taken && by != mine && by != (Holder{Cluster: p.Cluster}) {
			return fmt.Errorf("%s: %v has it: %s", claim.What, by, claim.Why)
		}
	}
	for _, claim := range all {
		held[claim.What] = Holder{Cluster: p.Cluster, Cable: p.Name}
	}
	return nil
}
