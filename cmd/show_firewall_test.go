package cmd

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/mesh"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/look"
)

// A worker whose firewall drops packets of other clusters is trouble, although all connections are up.
func TestShowFirewalledNode(t *testing.T) {
	s := look.Site{Gateways: []submarinerv1.Gateway{{ObjectMeta: metav1.ObjectMeta{Name: "gw"}}}}
	s.RouteAgents = []submarinerv1.RouteAgent{
		{ObjectMeta: metav1.ObjectMeta{Name: "worker"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "other"}},
	}
	s.RouteAgents[0].Status.Conditions = []metav1.Condition{
		{Type: mesh.ConditionPacketsForwarded, Status: metav1.ConditionFalse, Message: "run this"},
	}
	require.Contains(t, gatewayTrouble(s, gatewayRows(s)), "node worker: run this")
	require.Contains(t, connectionTrouble(s, connectionRows(s)), "node worker: run this")
	s.RouteAgents[0].Status.Conditions[0].Status = metav1.ConditionTrue
	require.Empty(t, s.Firewalled())
}
