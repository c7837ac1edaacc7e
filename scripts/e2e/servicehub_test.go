//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Cluster1 is the hub of two spokes, each in a clusterset with it, and alone in a third one. It
// merges what they export; they see its exports and their own, and nothing of each other.
func TestServicesHubAndSpokes(t *testing.T) {
	if !serviceDiscovery {
		t.Skip("E2E_SERVICES is not set: make e2e-services runs this test in a lab of its own")
	}
	const hub = "cluster1"
	spokes := []string{"cluster2", "cluster3"}
	other := map[string]string{"cluster2": "cluster3", "cluster3": "cluster2"}
	evidence(t, slices.Concat(nodes("cluster1"), nodes("cluster2"), nodes("cluster3")), clusters)
	servicesJoined(t)
	sets := map[string]string{"cluster2": "hub-a", "cluster3": "hub-b"}
	t.Cleanup(func() {
		for _, c := range clusters {
			_, _ = sh("subctl", "unexport", "service", "web", "-n", "shop", "--context", c)
			_, _ = sh("subctl", "unexport", "service", "db", "-n", "shop", "--context", c)
			_, _ = sh(clustersetCommand("add", "default", c)...)
		}
		for _, set := range sets {
			_, _ = sh(clustersetCommand("delete", set, "--force")...)
		}
		scale(t, hub, "deployment/web", 0)
		connected(t)
	})
	for spoke, set := range sets {
		clusterset(t, "create", set)
		clusterset(t, "add", set, hub, spoke)
	}
	clusterset(t, append([]string{"remove", "default", "--force"}, spokes...)...)

	for _, spoke := range spokes {
		exportService(t, spoke, "web")
		exportService(t, spoke, "db")
	}
	eventually(t, discovered, func() error { return answersOf(clientIn(t, hub), spokes...) })
	pods := map[string][]string{}
	for _, spoke := range spokes {
		pods[spoke] = strings.Fields(
			inShop(t, spoke, "get", "pods", "-l", "app=db", "-o", "jsonpath={.items[*].status.podIP}"))
	}
	all := slices.Concat(pods["cluster2"], pods["cluster3"])
	eventually(t, discovered, func() error { return resolves(clientIn(t, hub), dbName, "NOERROR", all...) })
	for _, spoke := range spokes {
		from := clientIn(t, spoke)
		require.NoError(t, answersOf(from, spoke), "the hub passes nothing on")
		require.NoError(t, resolves(from, dbName, "NOERROR", pods[spoke]...), "the hub passes nothing on")
		require.NoError(t, resolves(from, "db-0."+other[spoke]+"."+dbName, "NXDOMAIN"))
	}

	// The hub exports the Service, too: both spokes see that, and use it when they have no pods.
	scale(t, hub, "deployment/web", 1)
	exportService(t, hub, "web")
	for _, spoke := range spokes {
		require.NoError(t, answersOf(clientIn(t, spoke), spoke))
		scale(t, spoke, "deployment/web", 0)
		eventually(t, discovered, func() error { return answersOf(clientIn(t, spoke), hub) })
	}
	for _, spoke := range spokes {
		scale(t, spoke, "deployment/web", 2)
		eventually(t, discovered, func() error { return answersOf(clientIn(t, spoke), spoke) })
		objects := kubectl(
			t,
			spoke,
			"get",
			"exportedservices.submariner.io,serviceexports,serviceimports,services,endpointslices,"+
				"clusters.submariner.io,endpoints.submariner.io",
			"-A",
			"-o",
			"json",
		)
		for _, mark := range append([]string{other[spoke], sets[other[spoke]]}, pods[other[spoke]]...) {
			require.NotContains(t, objects, fmt.Sprintf("%q", mark), "%s has anything of %s", spoke, other[spoke])
		}
		require.Contains(t, objects, fmt.Sprintf("%q", hub), "the search would see it")
		shown, _ := stdout(t, "subctl", "show", "services", "--context", spoke, "-o", "json")
		require.Contains(t, shown, hub)
		require.NotContains(t, shown, other[spoke])
	}
	shown, code := stdout(t, "subctl", "show", "services", "--context", hub, "-o", "json")
	require.Zero(t, code, shown)
	for _, c := range clusters {
		require.Contains(t, shown, c)
	}
}
