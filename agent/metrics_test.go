package agent

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	submarinerv1 "subctl/api/submariner/v1"
)

// What is not known has no value, and a connection that is gone leaves none.
func TestMetricsOfConnections(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := newMeters("gateway", reg)
	shook := metav1.Unix(1700000000, 0)
	known := submarinerv1.Connection{
		Status:        submarinerv1.Connecting,
		Driver:        "ipsec",
		DesiredDriver: "wireguard",
		Device:        "ipsec-tunnel",
		UsingIP:       "192.0.2.9",
		Endpoint:      submarinerv1.EndpointSpec{ClusterID: "west", Hostname: "gw-w", CableName: "w"},
		MTU:           1400,
		PathMTU:       1500,
		ReceivedBytes: new(int64(7)),
		SentBytes:     new(int64(0)),
		LastHandshake: &shook,
	}
	refused := submarinerv1.Connection{
		Status: submarinerv1.ConnectionError, Driver: "ipsec", DesiredDriver: "ipsec",
		Endpoint: submarinerv1.EndpointSpec{ClusterID: "south", Hostname: "gw-s", CableName: "s"},
	}
	status := submarinerv1.GatewayStatus{
		LocalEndpoint: submarinerv1.EndpointSpec{ClusterID: "east", Hostname: "gw", PrivateIP: "192.0.2.1"},
		Connections:   []submarinerv1.Connection{known, refused}, ConnectionsOmitted: 5, ConnectionsOmittedDown: 2,
	}
	m.setConnected(status, nil, time.Unix(0, 0))
	const (
		local = `local_cluster="east" local_endpoint_ip="192.0.2.1" local_hostname="gw"`
		west  = `remote_cluster="west" remote_endpoint_ip="192.0.2.9" remote_hostname="gw-w"`
		south = `remote_cluster="south" remote_endpoint_ip="" remote_hostname="gw-s"`
		ipsec = `cable_driver="ipsec" ` + local + ` ` + west
	)
	require.Subset(t, gathered(t, reg), []string{
		`submariner_omitted_connections role="gateway" 2`,
		`submariner_gateway_rx_bytes ` + ipsec + ` 7`,
		`submariner_gateway_tx_bytes ` + ipsec + ` 0`,
		`submariner_connection_handshake_timestamp ` + ipsec + ` 1.7e+09`,
		`submariner_connection_mtu_bytes ` + ipsec + ` 1400`,
		`submariner_connection_path_mtu_bytes ` + ipsec + ` 1500`,
		`submariner_connection_desired_driver cable_driver="" desired_cable_driver="ipsec" ` + local + ` ` + south +
			` 1`,
		`submariner_connection_desired_driver cable_driver="ipsec" desired_cable_driver="wireguard" ` + local + ` ` +
			west + ` 1`,
	})
	for _, name := range []string{
		"submariner_gateway_rx_bytes", "submariner_connection_mtu_bytes", "submariner_connection_path_mtu_bytes",
	} {
		require.NotContains(t, strings.Join(gathered(t, reg), "\n"), name+" "+`cable_driver="ipsec" `+local+" "+south,
			"not known")
	}

	m.setConnected(submarinerv1.GatewayStatus{}, nil, time.Unix(0, 0))
	require.NotContains(t, strings.Join(gathered(t, reg), "\n"), "remote_cluster")
}

// Drops are added up by cluster, and none remain of a cluster that has left.
func TestMetricsOfDrops(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := newMeters("gateway", reg)
	m.addDropped(map[string]uint64{"west": 2, "north": 0}, nil)
	m.addDropped(map[string]uint64{"west": 3, "north": 0}, nil)
	require.Subset(t, gathered(t, reg), []string{
		`submariner_isolation_drops_total remote_cluster="west" 5`,
		`submariner_isolation_drops_total remote_cluster="north" 0`,
	})
	m.addDropped(map[string]uint64{"north": 1}, nil)
	require.Contains(t, gathered(t, reg), `submariner_isolation_drops_total remote_cluster="north" 1`)
	require.NotContains(t, strings.Join(gathered(t, reg), "\n"), "west")
}

// gathered returns the values of gauges and counters, one per line, with their labels sorted by
// name.
func gathered(t *testing.T, reg *prometheus.Registry) []string {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	var out []string
	for _, f := range families {
		for _, v := range f.GetMetric() {
			line := f.GetName()
			for _, l := range v.GetLabel() {
				line += fmt.Sprintf(" %s=%q", l.GetName(), l.GetValue())
			}
			out = append(out, fmt.Sprintf("%s %v", line, v.GetGauge().GetValue()+v.GetCounter().GetValue()))
		}
	}
	return out
}
