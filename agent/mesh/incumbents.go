package mesh

import (
	"time"

	"subctl/agent/role"
)

// incumbentsAgain is the time after which to plan again if the incumbents have changed, and
// something of a node does not count.
const incumbentsAgain = time.Second

// acceptAgain has the next plan made soon if what does not count of nodes may count then, as
// its incumbents differ from those of this one.
func (p *Plan) acceptAgain() {
	m := p.Mesh.Membership
	changed := len(m.Collisions)+len(m.Contested) > 0 &&
		!role.SameClaims(p.Mesh.Snapshot.Memory.Incumbents, p.Mesh.Accepted.Incumbents)
	if changed && (p.Again == 0 || p.Again > incumbentsAgain) {
		p.Again = incumbentsAgain
	}
}
