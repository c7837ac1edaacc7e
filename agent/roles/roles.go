// Package roles lists the roles of all agents.
package roles

import (
	"subctl/agent/mesh"
	"subctl/agent/role"
	"subctl/globalnet/allocator"
	"subctl/services/discoverer"
)

// All returns the roles that program the kernel of their node, and those whose agent runs once in a
// cluster.
func All() []role.Role {
	return append(mesh.Roles(), allocator.Role(), GatewayNodes(), discoverer.Role())
}
