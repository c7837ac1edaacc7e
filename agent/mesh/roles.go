package mesh

import (
	"fmt"

	"subctl/agent/role"
	"subctl/dataplane"
)

// Roles returns the roles that program the kernel of their node.
func Roles() []role.Role { return []role.Role{Gateway(), Route()} }

// PlanNode returns what a node's kernel should hold, for all roles.
func PlanNode(s role.Snapshot) (dataplane.State, error) {
	all := dataplane.State{}
	for _, r := range Roles() {
		p, err := r.Plan(s)
		if err != nil {
			return nil, err
		}
		if err := all.Merge(p.State); err != nil {
			return nil, fmt.Errorf("merging the plan of role %s: %w", r.Name, err)
		}
	}
	return all, nil
}
