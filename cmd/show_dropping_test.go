package cmd

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/look"
)

// Nodes that drop packets now are named with the reason, those with the same one together. Workers
// are among them.
func TestDroppingNodes(t *testing.T) {
	status := func(message string) []metav1.Condition {
		return []metav1.Condition{{Type: role.ConditionPacketsDropped, Status: metav1.ConditionTrue, Message: message}}
	}
	agent := func(name, message string) submarinerv1.RouteAgent {
		return submarinerv1.RouteAgent{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: submarinerv1.RouteAgentStatus{
			Conditions: status(message),
		}}
	}
	s := look.Site{RouteAgents: []submarinerv1.RouteAgent{
		agent("w2", "beside-cable: x\nfrom or to west"), agent("w1", "beside-cable: x\nfrom or to west"),
		agent("gw", "agent-port: y"),
		{},
	}}
	require.Equal(t, []string{"gw drops packets: agent-port: y", "w1, w2 drop packets: beside-cable: x, from or to " +
		"west"}, droppingNodes(s))
	require.Empty(t, droppingNodes(look.Site{}))
}
