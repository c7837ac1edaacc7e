package agent

import (
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/agent/role"
	"subctl/agent/roles"
	submarinerv1 "subctl/api/submariner/v1"
)

// A gateway node has booted, and has its Endpoint. Until its gateway agent has run, its pods reach
// the other cluster through the other gateway, and workers do not use it. No packet is lost when it
// becomes a gateway again, and it stays one when its agents have ended.
func TestBootedGateway(t *testing.T) {
	fabric := newFabric(t)
	east := twoGateways(t, fabric, 1, "east")
	west := twoGateways(t, fabric, 2, "west")
	down := role.Health{Status: submarinerv1.ConnectionError}
	east.booted = map[string]bool{"gw": true}
	east.health["worker"] = map[string]role.Health{"gateway/gw": down}
	east.health["gw2"] = map[string]role.Health{"gateway/gw": down}
	for _, gw := range west.names[:west.gateways] {
		west.health[gw] = map[string]role.Health{east.cableOf(0) + " over vxlan-tunnel": down}
	}
	west.sync(t, east)
	east.syncOne(t, "gw2", roles.Gateway(), west)
	for _, node := range east.names {
		east.syncOne(t, node, roles.Route(), west)
	}
	for _, node := range east.names {
		reach(t, east, node, west, "worker")
		reach(t, west, "worker", east, node)
	}
	ping := func() error {
		_, err := east.nodes["worker"].Try("ping -c1 -W1 240.18.1.11")
		return err
	}
	require.Error(t, ping(), "it answers no probes")

	backend := west.podIP("worker") + ":8080"
	answerAll(t, west.pods["worker"], backend)
	end := stream(t, east.pods["gw"], backend)
	east.syncOne(t, "gw", roles.Gateway(), west)
	reach(t, east, "gw", west, "worker")
	for range 2 {
		east.syncOne(t, "gw", roles.Route(), west)
		require.NoError(t, ping())
		reach(t, east, "gw", west, "worker")
	}
	n, lost := end()
	require.Empty(t, lost, "packets of a stream of %d", n)
	require.NotEqual(t, "0", sent(east.nodes["gw"]))

	east.health = map[string]map[string]role.Health{}
	west.health = map[string]map[string]role.Health{}
	west.sync(t, east)
	for _, node := range east.names {
		east.syncOne(t, node, roles.Route(), west)
	}
	reach(t, east, "worker", west, "worker")
	reach(t, west, "worker", east, "gw")
}
