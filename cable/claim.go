package cable

import "fmt"

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

// Claims is what was claimed, and by the cable of which name.
type Claims map[string]string

// Take claims all for a cable that any of the drivers claims, or nothing: then the error
// says what another cable took before.
func (held Claims) Take(c Cable, drivers []Driver) error {
	var all []Claim
	for _, d := range drivers {
		claimer, ok := d.(Claimer)
		if !ok {
			continue
		}
		for _, claim := range claimer.Claims(c.Peer) {
			if !claim.Announced && d.Name() != c.Driver.Name() {
				continue
			}
			if by, taken := held[claim.What]; taken && by != c.Name {
				return fmt.Errorf("%s: %.80s has it: %s", claim.What, by, claim.Why)
			}
			all = append(all, claim)
		}
	}
	for _, claim := range all {
		held[claim.What] = c.Name
	}
	return nil
}
