package cmd

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/look"
)

// A worker whose firewall drops packets of other clusters is trouble, although all connections are
// up.
func TestShowFirewalledNode(t *testing.T) {
	s := look.Site{Gateways: []submarinerv1.Gateway{{ObjectMeta: metav1.ObjectMeta{Name: "gw"}}}}
	s.RouteAgents = []submarinerv1.RouteAgent{
		{ObjectMeta: metav1.ObjectMeta{Name: "worker"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "other"}},
	}
	s.RouteAgents[0].Status.Conditions = []metav1.Condition{
		{Type: role.ConditionPacketsForwarded, Status: metav1.ConditionFalse, Message: "run this"},
	}
	require.Contains(t, gatewayTrouble(s, gatewayRows(s)), "node worker: run this")
	require.Contains(t, connectionTrouble(s, connectionRows(s)), "node worker: run this")
	s.RouteAgents[0].Status.Conditions[0].Status = metav1.ConditionTrue
	require.Empty(t, s.Firewalled())
}

// A worker that gets no packets of other clusters is trouble, although all connections are up.
func TestShowNodeThatIsCutOff(t *testing.T) {
	status := func(cluster string, status submarinerv1.ConnectionStatus) submarinerv1.RemoteEndpoint {
		return submarinerv1.RemoteEndpoint{Status: status, Spec: submarinerv1.EndpointSpec{ClusterID: cluster}}
	}
	connection := func(cluster string, status submarinerv1.ConnectionStatus) submarinerv1.Connection {
		return submarinerv1.Connection{Status: status, Endpoint: submarinerv1.EndpointSpec{ClusterID: cluster}}
	}
	now := time.Now()
	s := look.Site{Gateways: []submarinerv1.Gateway{{ObjectMeta: metav1.ObjectMeta{Name: "gw"}}}, Now: now}
	reported := strconv.FormatInt(now.Unix(), 10)
	s.Gateways[0].Annotations = map[string]string{submarinerv1.TimestampAnnotation: reported}
	s.Gateways[0].Status.Connections = []submarinerv1.Connection{
		connection("east", submarinerv1.Connected), connection("down", submarinerv1.ConnectionError),
	}
	s.RouteAgents = []submarinerv1.RouteAgent{{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}}
	paths := func(of ...submarinerv1.RemoteEndpoint) { s.RouteAgents[0].Status.RemoteEndpoints = of }

	paths(status("east", submarinerv1.ConnectionError), status("down", submarinerv1.ConnectionError))
	require.Len(t, s.Firewalled(), 1)
	require.Contains(t, s.Firewalled()[0], "no other cluster answers the pings of worker, although")
	require.Contains(t, s.Firewalled()[0], "--add-port=4800/udp")
	require.Subset(t, gatewayTrouble(s, gatewayRows(s)), s.Firewalled())
	require.Subset(t, connectionTrouble(s, connectionRows(s)), s.Firewalled())

	paths(status("down", submarinerv1.ConnectionError))
	require.Empty(t, s.Firewalled(), "no gateway is connected to that cluster either")
	paths(status("east", submarinerv1.ConnectionError), status("west", submarinerv1.Connected))
	require.Empty(t, s.Firewalled(), "packets of other clusters arrive")
	paths(status("east", submarinerv1.Connecting), status("down", submarinerv1.ConnectionNone))
	require.Empty(t, s.Firewalled(), "not known yet, or not probed")
}
