package look

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"

	"subctl/agent/mesh"
)

// Firewalled returns a line for each node that does not forward packets of other clusters to its pods, with the reason.
func (s Site) Firewalled() (lines []string) {
	for _, ra := range s.RouteAgents {
		c := meta.FindStatusCondition(ra.Status.Conditions, mesh.ConditionPacketsForwarded)
		if c != nil && mesh.Wrong(*c) {
			lines = append(lines, fmt.Sprintf("node %s: %s", ra.Name, c.Message))
		}
	}
	return lines
}
