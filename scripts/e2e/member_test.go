//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A fourth cluster joins while the others work. Its kube-proxy is in nftables mode.
func TestFourthCluster(t *testing.T) {
	takesLong(t)
	newCluster(t, "cluster4")
	for _, n := range nodes("cluster4") {
		pristine[n] = holdings(t, n)
	}
	clusters = append(clusters, "cluster4")
	start := time.Now()
	join(t, "cluster4")
	connected(t)
	t.Logf("a fourth cluster is connected to all after %.1f s", time.Since(start).Seconds())
	flows(t, "cluster4", "cluster1")
	flows(t, "cluster3", "cluster4")
}

// room reports whether the machine lets that many clusters of two nodes run: they need 18 inotify
// instances each, and what else runs needs some.
func room(t *testing.T, clusters int) bool {
	t.Helper()
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_user_instances")
	require.NoError(t, err)
	most, err := strconv.Atoi(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	return most >= 20*clusters
}

// newCluster brings another cluster up, with pods. It does not join.
func newCluster(t *testing.T, cluster string) {
	t.Helper()
	number := strings.TrimPrefix(cluster, "cluster")
	must(t, "lab", "up", "--first", number, "--clusters", "1", "--nodes", "2", "--proxy-mode", "nftables", "--timeout",
		"10m")
	must(t, "lab", "load-image", filepath.Join(root, "dist/subctl.tar"), "--clusters", number)
	deploy(t, cluster)
}

// What a node held before joining is what it holds after uninstalling, and what
// others put beside ours stays.
func TestUninstall(t *testing.T) {
	takesLong(t)
	foreign := `ip link add foreign type vxlan id 77 dstport 4999 local 127.0.0.1; ip link set foreign up
		ip route add 203.0.113.0/24 dev foreign table 160; ip rule add pref 160 lookup 160
		ip nexthop add id 77 dev foreign
		iptables -N SUBMARINE-SANDWICH; iptables -A SUBMARINE-SANDWICH -s 203.0.113.1 -j DROP; iptables -I FORWARD 1 -j SUBMARINE-SANDWICH
		ipset create sub hash:net; ipset add sub 203.0.113.0/24`
	node := worker(t, "cluster4")
	on(t, node, foreign)
	with := holdings(t, node)
	gateway := gateways(t, "cluster4")[0]
	kubectl(t, "cluster4", "label", "node", gateway, "example.com/rack=7")
	kubectl(t, "cluster4", "annotate", "node", gateway, "example.com/rack=7", "gateway.submariner.io/drain=5m")
	must(t, "subctl", "uninstall", "--context", "cluster4", "--yes")
	meta := kubectl(t, "cluster4", "get", "node", gateway, "-o", "jsonpath={.metadata.labels}{.metadata.annotations}")
	require.Equal(t, 2, strings.Count(meta, `"example.com/rack":"7"`), meta)
	require.NotContains(t, meta, "submariner.io", "neither the label of gateways nor the drain is left")
	for _, n := range nodes("cluster4") {
		if n == node {
			after := holdings(t, n)
			for _, want := range []string{"foreign", "203.0.113.0/24", "SUBMARINE-SANDWICH", "160:", "id 77"} {
				require.Contains(t, with, want)
				require.Contains(t, after, want)
			}
			on(
				t,
				node,
				`iptables -D FORWARD -j SUBMARINE-SANDWICH; iptables -F SUBMARINE-SANDWICH; iptables -X SUBMARINE-SANDWICH
				ip rule del pref 160; ip link del foreign; ipset destroy sub`,
			)
		}
		require.Equal(t, pristine[n], holdings(t, n), n)
	}
	out, err := sh("kubectl", "--context", "cluster4", "get", "namespace", "submariner-operator")
	require.Error(t, err, out)
	left := kubectl(t, "cluster1", "-n", "submariner-k8s-broker", "get",
		"clusters.submariner.io,endpoints.submariner.io,serviceaccounts,rolebindings,secrets", "-o", "name")
	require.Equal(t, 1, strings.Count(left, "cluster4"), left)
	require.Contains(t, left, "cluster.submariner.io/cluster4\n", "it states that the cluster has left")
	require.Contains(t, must(t, "subctl", "show", "trust", "--context", "cluster1"), "cluster4")
	clusters = clusters[:3]
	connected(t)
	// and it can come back
	clusters = append(clusters, "cluster4")
	join(t, "cluster4")
	connected(t)
	must(t, "subctl", "unjoin", "--context", "cluster4", "--yes")
	clusters = clusters[:3]
	must(t, "subctl", "uninstall", "--context", "cluster4", "--yes") // there is nothing left to do
	connected(t)
}
