package cmd

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/internal/printer"
)

// longWorld is a cluster of a cloud, with the long names of such clusters, and a broker.
func longWorld() world {
	const node, far = "ip-10-128-12-34.eu-central-1.compute.internal", "production-eu-central-1-blue"
	const reason = "no reply to pings since 2026-03-01T11:58:00Z: check the firewalls between the two gateways"
	c := connection(submarinerv1.ConnectionError,
		endpoint(far, "gke-production-default-pool-0a1b2c3d-x7k2", "203.0.113.109"))
	c.LatencyRTT = &submarinerv1.LatencyRTT{Average: "110.910759ms"}
	c.Driver = "vxlan+wireguard"
	c.Policy = "encrypt-production"
	c.StatusMessage = reason
	c.MemberReason = "down since 2026-03-01T11:58:00Z"
	c.Member = new(false)
	c.Attempts = []string{"203.0.113.109:4490 public: no answer", "10.128.12.34:4490 private: no answer"}
	sub := submariner("production-eu-west-1-green")
	objs := []client.Object{
		sub, gateway(sub.Spec.ClusterID, node, time.Second, c),
		gateway(sub.Spec.ClusterID, strings.Replace(node, "34", "35", 1), time.Second, c),
	}
	for _, id := range []string{sub.Spec.ClusterID, far} {
		all := clusterObjects(submarinerv1.OperatorNamespace, id, id, "environment=production,region=eu-central-1",
			"vxlan,wireguard,ipsec,vxlan+wireguard,vxlan+ipsec", "default,production-blue,production-green")
		objs = append(objs, all...)
	}
	broker := &v1alpha1.Broker{
		ObjectMeta: metav1.ObjectMeta{Name: "submariner-broker", Namespace: submarinerv1.BrokerNamespace},
		Spec: v1alpha1.BrokerSpec{
			Components: []string{"connectivity", "service-discovery"}, GlobalnetEnabled: true,
			GlobalnetCIDRRange: "242.0.0.0/8", DefaultGlobalnetClusterSize: 65536,
			DefaultCustomDomains: []string{"supercluster.local", "clusterset.example.com"},
		},
	}
	policy := cablePolicy("encrypt-production",
		"environment=production,region=eu-central-1 | environment in (production,staging) | vxlan+wireguard")
	return world{"west": append(objs,
		append(workloads("registry.eu-central-1.example.com/platform/networking/subctl:v1.12.0-rc.3"), broker,
			policy)...)}
}

// TestTablesFit prints all tables with long names: no line is longer than a terminal.
func TestTablesFit(t *testing.T) {
	commands := []string{"cable-policy list", "show all"}
	for _, table := range tables() {
		commands = append(commands, "show "+table.Noun)
	}
	for _, command := range commands {
		got := runIn(t, longWorld(), []string{"west"}, strings.Fields(command)...)
		require.NotEqual(t, 2, got.code, got.stderr)
		for line := range strings.SplitSeq(got.stdout, "\n") {
			require.LessOrEqual(t, utf8.RuneCountInString(line), printer.Width, "%s:\n%s", command, got.stdout)
		}
	}
	wide := runIn(t, longWorld(), []string{"west"}, "show", "connections", "-o", "wide").stdout
	require.Equal(t, 2, strings.Count(wide, "\nGATEWAY:        gke-production-default-pool-0a1b2c3d-x7k2\n"), wide)
	require.Contains(t, wide, "RTT avg.:       111 ms\n")
	require.Contains(t, wide, "\n\nLOCAL GATEWAY:  ip-10-128-12-35.eu-central-1.compute.internal\n")
}

// A round-trip time has three digits.
func TestRoundTrip(t *testing.T) {
	for text, want := range map[string]string{
		"923.497µs": "923 µs", "10.910759ms": "10.9 ms", "1.5ms": "1.50 ms", "110.9ms": "111 ms", "1.25s": "1250 ms",
		"": "", "fast": "fast",
	} {
		require.Equal(t, want, roundTrip(text))
	}
}
