//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/internal/measure"
)

// clusterset runs a command of the broker's administrator.
func clusterset(t *testing.T, args ...string) string {
	t.Helper()
	return must(t, clustersetCommand(args...)...)
}

func clustersetCommand(args ...string) []string {
	command := slices.Concat([]string{"subctl", "clusterset"}, args, []string{"--context", "cluster1"})
	if slices.Contains([]string{"add", "remove", "delete"}, args[0]) {
		command = append(command, "--broker-info", brokerFile)
	}
	return command
}

// knows returns the other clusters that a cluster has any object of.
func knows(t *testing.T, cluster string) []string {
	t.Helper()
	var list struct {
		Items []struct {
			Metadata struct{ Labels map[string]string }
		}
	}
	text := kubectl(t, cluster, "-n", "submariner-operator", "get",
		"clusters.submariner.io,endpoints.submariner.io,cablepolicies.submariner.io", "-o", "json")
	require.NoError(t, json.Unmarshal([]byte(text), &list))
	found := map[string]bool{}
	for _, o := range list.Items {
		if id := o.Metadata.Labels["submariner-io/clusterID"]; id != "" && id != cluster && id != "BROKER" {
			found[id] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// The administrator makes cluster1 the hub of two spokes, without access to them: the spokes lose
// each other, and nothing else. If all tests are to run, what new agents know is looked at, too.
func TestClusterSets(t *testing.T) {
	clusterset(t, "create", "hub-a", "hub-b")
	t.Cleanup(func() {
		for _, c := range clusters {
			_, _ = sh(clustersetCommand("add", "default", c)...)
		}
		for _, set := range []string{"hub-a", "hub-b"} {
			_, _ = sh(clustersetCommand("delete", set, "--force")...)
		}
		connected(t)
	})
	for set, members := range map[string][]string{
		"hub-a": {"cluster1", "cluster2"},
		"hub-b": {"cluster1", "cluster3"},
	} {
		clusterset(t, append([]string{"add", set}, members...)...)
	}
	out, err := sh(clustersetCommand("remove", "default", "cluster2")...)
	require.Error(t, err)
	require.Contains(t, out, "1 pair of clusters would have no cable:\n  cluster2 - cluster3: ")
	from, to := workersOf(t, "cluster2 cluster3")
	apart := startStream(t, from, to)
	lossless(t, 1, func() map[string]lost {
		all := startStreams(t, "cluster1 cluster2", "cluster1 cluster3")
		clusterset(t, "remove", "default", "cluster2", "--force")
		stopped := eventually(t, 30*time.Second, func() error {
			if out, err := reach(from, to); err == nil {
				return fmt.Errorf("cluster2 still reaches cluster3: %s", out)
			}
			return nil
		})
		measure.Record(
			t,
			measure.AtMost("removed from a clusterset: other clusters unreachable after",
				measure.Values{stopped.Seconds()}, 3, "s"),
		)
		clusterset(t, "remove", "default", "cluster1", "cluster3", "--force")
		time.Sleep(5 * time.Second)
		return all.stop(t)
	})
	require.Greater(t, apart.stop(t).MostLostInARow, 90,
		"an established flow ends, too: of 100 packets a second nothing comes back for its last second")
	require.Equal(t, []string{"cluster2", "cluster3"}, knows(t, "cluster1"))
	require.Equal(t, []string{"cluster1"}, knows(t, "cluster2"), "nothing else exists for a spoke")
	require.Equal(t, []string{"cluster1"}, knows(t, "cluster3"))
	for _, node := range nodes("cluster2") {
		require.NotContains(t, holdings(t, node), nodeIP(t, gateway(t, "cluster3")), "%s has anything of cluster3",
			node)
	}
	flows(t, "cluster1", "cluster2")
	flows(t, "cluster1", "cluster3")
	if long {
		strangers(t, "cluster2", "cluster3")
	}
	out, _ = stdout(t, "subctl", "clusterset", "can", "cluster2", "cluster3", "--context", "cluster1")
	require.Contains(t, out, "no clusterset in common")

	clusterset(t, "add", "hub-b", "cluster2")
	took := eventually(t, 30*time.Second, func() error {
		_, err := reach(from, to)
		return err
	})
	measure.Record(t,
		measure.AtMost("added to a clusterset: other clusters reachable after", measure.Values{took.Seconds()}, 5, "s"))
}

// A hub has two spokes in two clustersets, and is in a third one with a pair of clusters, which
// join it. Pods reach what they share a clusterset with, and nothing else. A pair that shares two
// clustersets loses nothing when it leaves one of them. Where the machine has no room for five
// clusters, the second spoke is one of the pair.
func TestThirdClusterSet(t *testing.T) {
	takesLong(t)
	pair := []string{"cluster4", "cluster5"}
	if !room(t, 5) {
		pair[1] = "cluster3"
	}
	sets := map[string][]string{
		"hub-a": {"cluster1", "cluster2"},
		"hub-b": {"cluster1", "cluster3"},
		"pair":  append([]string{"cluster1"}, pair...),
	}
	t.Cleanup(func() {
		for _, c := range pair {
			if slices.Contains(clusters, c) {
				continue
			}
			_, _ = sh("subctl", "uninstall", "--context", c, "--yes")
			for _, name := range append(nodes(c), c+"-api") { // makes room for other clusters
				_, _ = sh("lab", "kill", name)
			}
		}
		for _, c := range clusters {
			_, _ = sh(clustersetCommand("add", "default", c)...)
		}
		for set := range sets {
			_, _ = sh(clustersetCommand("delete", set, "--force")...)
		}
		connected(t)
	})
	for set, members := range sets {
		clusterset(t, "create", set)
		joined := slices.DeleteFunc(slices.Clone(members), func(c string) bool { return !slices.Contains(clusters, c) })
		clusterset(t, append([]string{"add", set}, joined...)...)
	}
	clusterset(t, "remove", "default", "cluster1", "cluster2", "cluster3", "--force")
	for _, c := range pair {
		if !slices.Contains(clusters, c) {
			newCluster(t, c)
			must(t, "subctl", "join", brokerFile, "--context", c, "--image", image, "--clusterset", "pair")
		}
	}
	reachOnly(t, sets)

	out, err := sh(clustersetCommand("remove", "pair", "cluster1")...)
	require.Error(t, err)
	require.Contains(t, out, "would have no cable:\n  cluster1 - cluster4: ")
	require.NotContains(t, out, "cluster1 - cluster3", "they share another clusterset")
	from, to := workersOf(t, "cluster1 cluster4")
	lossless(t, 1, func() map[string]lost {
		clusterset(t, "add", "pair", "cluster1")
		eventually(t, 5*time.Second, func() error {
			_, err := reach(from, to)
			return err
		})
		apart := startStream(t, from, to)
		all := startStreams(t, "cluster1 cluster2", "cluster1 cluster3", strings.Join(pair, " "))
		clusterset(t, "remove", "pair", "cluster1", "--force")
		eventually(t, 3*time.Second, func() error {
			if out, err := reach(from, to); err == nil {
				return fmt.Errorf("cluster1 still reaches cluster4: %s", out)
			}
			return nil
		})
		require.Greater(t, apart.stop(t).MostLostInARow, 90,
			"an established flow ends, too: of 100 packets a second nothing comes back for its last second")
		return all.stop(t)
	})
	reachOnly(t, map[string][]string{"hub-a": sets["hub-a"], "hub-b": sets["hub-b"], "pair": pair})
	clusterset(t, "add", "pair", "cluster1", "cluster3")
	reachOnly(t,
		map[string][]string{"hub-a": sets["hub-a"], "hub-b": sets["hub-b"], "pair": append(sets["pair"], "cluster3")})

	lossless(t, 1, func() map[string]lost {
		all := startStreams(t, "cluster1 cluster2", "cluster1 cluster3", "cluster1 cluster4")
		clusterset(t, "remove", "pair", "cluster3", "--force")
		time.Sleep(3 * time.Second)
		return all.stop(t)
	})
	sets["pair"] = slices.DeleteFunc(sets["pair"], func(c string) bool { return c == "cluster3" })
	reachOnly(t, sets)
}

// reachOnly requires that each cluster knows and reaches exactly the clusters with which it shares
// one of the clustersets, that the administrator is told so, and that nothing is reported to be
// wrong.
func reachOnly(t *testing.T, sets map[string][]string) {
	t.Helper()
	reached := map[string][]string{}
	for _, members := range sets {
		for _, a := range members {
			for _, b := range members {
				if a != b && !slices.Contains(reached[a], b) {
					reached[a] = append(reached[a], b)
				}
			}
		}
	}
	for a, want := range reached {
		slices.Sort(want)
		eventually(t, 5*time.Second, func() error {
			if got := knows(t, a); !slices.Equal(got, want) {
				return fmt.Errorf("%s knows %v, not %v", a, got, want)
			}
			return nil
		})
		for b := range reached {
			if a == b {
				continue
			}
			_, code := stdout(t, "subctl", "clusterset", "can", a, b, "--context", "cluster1")
			if slices.Contains(want, b) {
				require.Zero(t, code, "%s and %s", a, b)
				flows(t, a, b)
				continue
			}
			require.Equal(t, 3, code, "%s and %s", a, b)
			for _, node := range nodes(a) {
				require.NotContains(t, holdings(t, node), nodeIP(t, gateway(t, b)), "%s has anything of %s", node, b)
				from := podOn(t, a, "web", node)
				to := podOn(t, b, "web", worker(t, b))
				out, err := reach(from, to)
				require.Error(t, err, "%s reaches %s: %s", from.node, to.node, out)
			}
		}
	}
	eventually(t, 5*time.Second, func() error {
		out, err := sh("subctl", "show", "connections", "--contexts",
			strings.Join(slices.Sorted(maps.Keys(reached)), ","))
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// strangers requires that new agents of two clusters print and report nothing of the other one, in
// plans, metrics, logs and objects. The memory of grants, from before the clusters were separated,
// is kept.
func strangers(t *testing.T, a, b string) {
	t.Helper()
	for _, c := range []string{a, b} {
		kubectl(t, c, "-n", "submariner-operator", "delete", "pods", "--all", "--wait")
	}
	for _, c := range []string{a, b} {
		for _, name := range []string{"submariner-gateway", "submariner-routeagent"} {
			kubectl(t, c, "-n", "submariner-operator", "rollout", "status", "daemonset/"+name, "--timeout=300s")
		}
		eventually(t, 20*time.Second, func() error {
			for _, n := range nodes(c) {
				if !strings.Contains(metrics(t, n), "submariner_sync_duration_seconds_count") {
					return fmt.Errorf("the agents of %s do not serve metrics", n)
				}
			}
			return nil
		})
	}
	flows(t, "cluster1", a)
	flows(t, "cluster1", b)
	for _, pair := range [][2]string{{a, b}, {b, a}} {
		c := pair[0]
		other := pair[1]
		texts := map[string]string{
			"objects": kubectl(t, c, "-n", "submariner-operator", "get",
				"clusters.submariner.io,endpoints.submariner.io,gateways.submariner.io,routeagents.submariner.io,cablepolicies.submariner.io,submariners.submariner.io",
				"-o", "json"),
			"logs": kubectl(t, c, "-n", "submariner-operator", "logs", "-l", "app", "--all-containers", "--tail=-1"),
		}
		for _, n := range nodes(c) {
			texts["plan of "+n] = must(t, "subctl", "show", "plan", n, "--context", c)
			texts["metrics of "+n] = metrics(t, n)
		}
		for what, text := range texts {
			require.NotEmpty(t, text, what)
			for _, mark := range append([]string{other}, nodeIPs(t, other)...) {
				require.NotContains(t, text, mark, "%s of %s", what, c)
			}
		}
		require.Contains(t, strings.Join(slices.Collect(maps.Values(texts)), ""), "cluster1", "the search would see it")
	}
}

// nodeIPs returns the addresses of the nodes of a cluster.
func nodeIPs(t *testing.T, cluster string) (out []string) {
	t.Helper()
	for _, n := range nodes(cluster) {
		out = append(out, nodeIP(t, n))
	}
	return out
}

// metrics returns the metrics of all agents of a node.
func metrics(t *testing.T, node string) string {
	t.Helper()
	return on(t, node, "for p in 32780 32782; do curl -sS --max-time 5 http://127.0.0.1:$p/metrics || true; done 2>&1")
}

// reach gets an answer of a pod, within a second.
func reach(from, to pod) (string, error) {
	return from.try("get", "http://"+to.ip+":8080/", "--timeout", "1s")
}
