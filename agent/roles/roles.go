// Package roles lists the roles of all agents.
package roles

import (
	"subctl/agent/role"
	"subctl/globalnet/allocator"
	"subctl/services/discoverer"
)

// All returns the roles that program the kernel of their node, and those whose agent runs once in a
// cluster.
func All() []role.Role {
	return append(OfNodes(), allocator.Role(), GatewayNodes(), discoverer.Role())
}
