package report

import (
	"fmt"
	"time"

	"subctl/agent/mesh"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
)

// stuckChange describes the change of the cable to a peer, and the likely reason why the new cable
// does not answer; empty if there is no change, or if it has not lasted for long. The cable is
// the one that the pair uses, or its first one.
func (r cableResult) stuckChange() string {
	c := r.cable
	t := r.plan.ChangeOf(c)
	if t == nil || r.outcome.Now.Sub(t.Since) < submarinerv1.StuckAfter {
		return ""
	}
	next := r.plan.Next(c)
	traffic := "traffic stays with " + c.Driver.Name()
	switch status, _, _ := r.status(); {
	case c.Idle:
		next = r.number
		traffic = "no traffic is sent until it does, as the other end may use another one"
	case c.Silent:
		traffic = c.Driver.Name() + " does not answer either, so there is no traffic"
	case next < 0 && status == submarinerv1.Connected:
		return ""
	case next < 0:
		traffic = "the cable before it could not stay, so there is no traffic"
	}
	if next < 0 {
		next = r.number
	}
	result := result(r.plan, r.outcome, next)
	to := result.cable
	by := ""
	if to.Policy != "" {
		by = fmt.Sprintf(", which cable policy %s specifies,", to.Policy)
	}
	return fmt.Sprintf(
		"the cable to gateway %s of cluster %s should be %s%s since %s, but that cable does not answer: %s. Likely cause: %s",
		c.Host, c.Cluster, to.Driver.Name(), by, t.Since.UTC().Format(time.RFC3339), traffic, result.likelyCause())
}

// stuckChanges returns the changes of cables that have lasted for too long, and the first cables
// that have not answered for so long, as text.
func stuckChanges(p mesh.Plan, o role.Outcome) []string {
	var out []string
	for i, c := range p.Installed {
		if _, used := p.Using[c.Name]; c.Idle && used || p.IsRetiring(c) {
			continue
		}
		if text := result(p, o, i).stuckChange(); text != "" {
			out = append(out, text)
		}
	}
	return out
}
