package cnf

import (
	"math"

	"subctl/sdewan/rest"
)

// Share is the part of the connections of a policy that an interface gets, in percent.
type Share struct {
	Interface string `json:"interface"`
	Percent   int    `json:"percent"`
}

// Shares returns, for each policy, its interfaces that are used now. A policy without any is
// missing.
func Shares(c rest.Config, w World) map[string][]Share {
	p := &plan{config: c, world: w}
	p.safe()
	out := map[string][]Share{}
	ups := p.world.uplinks()
	for i := range ups {
		p.reach(&ups[i])
	}
	for _, policy := range c.Policies {
		chosen := best(p.members(policy, ups))
		sum := 0
		for _, m := range chosen {
			sum += m.weight
		}
		for _, m := range chosen {
			out[policy.Name] = append(out[policy.Name],
				Share{m.Name, int(math.Round(100 * float64(m.weight) / float64(sum)))})
		}
	}
	return out
}
