//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// cnis are the CNIs of cluster1 and cluster2 in a lab of its own, each as the value of lab's --cni
// and the mode of kube-proxy and of the CNI: "flannel-vxlan/iptables flannel-host-gw/nftables". If
// there are none, the lab has three clusters with the CNI ptp, and TestCNI is skipped.
var cnis = strings.Fields(os.Getenv("E2E_CNI"))

// labUp returns the commands that bring up the clusters of the lab.
func labUp() (steps [][]string) {
	if failoverRuns > 0 {
		fewest, _ := strconv.Atoi(failoverGateways[0])
		clusters = clusters[:2]
		nodesEach = fewest + 1
	}
	if globalnet {
		modes := []string{"iptables", "nftables"}
		if globalnetWide {
			clusters = append(clusters, plainCluster)
			modes = append(modes, "nftables", "iptables")
		} else {
			clusters = clusters[:2]
		}
		for i, mode := range modes {
			steps = append(steps, []string{
				"lab", "up", "--first", fmt.Sprint(i + 1), "--clusters", "1", "--nodes", fmt.Sprint(nodesEach),
				fmt.Sprintf("--overlapping=%v", clusters[i] != plainCluster), "--proxy-mode", mode, "--timeout", "10m",
			})
		}
		return steps
	}
	if sdewan {
		return sdewanLab()
	}
	if serviceDiscovery || serviceRuns > 0 {
		return servicesLab()
	}
	if len(cnis) == 0 {
		return [][]string{
			{
				"lab",
				"up",
				"--clusters",
				fmt.Sprint(len(clusters)),
				"--nodes",
				fmt.Sprint(nodesEach),
				"--timeout",
				"10m",
			},
		}
	}
	clusters = clusters[:len(cnis)]
	for i, cni := range cnis {
		name, mode, _ := strings.Cut(cni, "/")
		steps = append(
			steps,
			[]string{
				"lab",
				"up",
				"--first",
				fmt.Sprint(i + 1),
				"--clusters",
				"1",
				"--nodes",
				"2",
				"--cni",
				name,
				"--proxy-mode",
				mode,
				"--timeout",
				"10m",
			},
		)
	}
	return steps
}

// Two clusters with another CNI than ptp: traffic with its own source address, agents and
// a CNI that are killed, failover, and nodes that are as before after uninstalling.
func TestCNI(t *testing.T) {
	if len(cnis) == 0 {
		t.Skip("E2E_CNI names no CNI: make e2e-cni runs this test in a lab of its own")
	}
	t.Log(cnis)
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"pods of a cluster", cniWorks},
		{"traffic", TestDemo},
		{"every size of packet", TestEverySizeOfPacket},
		{"the plugin is known", pluginKnown},
		{"by name", cniNames},
		{"agents killed", TestAgentsKilled},
		{"CNI killed", cniKilled},
		{"failover", TestTakeover},
		{"uninstall", uninstallAll},
	} {
		if !t.Run(step.name, step.run) {
			t.FailNow()
		}
	}
}

// cniWorks deploys the workload and checks that pods reach each other and the Service
// before anything is joined. From then on each node has the devices that its CNI makes
// with the first pod.
func cniWorks(t *testing.T) {
	for _, c := range clusters {
		deploy(t, c)
		within(t, c)
		for _, n := range nodes(c) {
			pristine[n] = holdings(t, n)
		}
	}
}

// within checks that every pod of a cluster reaches every other, and the Service.
func within(t *testing.T, cluster string) {
	t.Helper()
	all := pods(t, cluster, "web")
	svc := serviceIP(t, cluster, "web")
	for _, from := range all {
		for _, to := range all {
			if from != to {
				require.Contains(t, from.exec(t, "get", "http://"+to.ip+":8080/", "--timeout", "15s"),
					"from="+from.ip+":")
			}
		}
		eventually(t, time.Minute, func() error { // kube-proxy may not have the pods yet
			out, err := from.try("get", "http://"+svc+"/", "-n", "4", "--timeout", "15s")
			if err != nil {
				return fmt.Errorf("the Service from %s: %w: %s", from.name, err, out)
			}
			return nil
		})
	}
}

// pluginKnown checks that join has recognized the CNI and its network.
func pluginKnown(t *testing.T) {
	for _, c := range clusters {
		out := must(t, "subctl", "show", "networks", "--contexts", c)
		require.Contains(t, out, "flannel")
		dry := must(t, "subctl", "join", brokerFile, "--context", c, "--image", image, "--dry-run")
		require.NotContains(t, dry, "guess", "the pod network is flannel's")
	}
}

// cniKilled kills the CNI's program under traffic between clusters, which it must not
// interrupt, and checks that the rules it then makes anew do not change source addresses.
func cniKilled(t *testing.T) {
	lossless(t, 1, func() map[string]lost {
		all := startStreams(t, "cluster1 cluster2")
		for _, c := range clusters {
			for _, n := range nodes(c) {
				was := on(t, n, "pgrep -x flanneld && pkill -9 -x flanneld")
				eventually(t, 20*time.Second, func() error {
					if now, err := sh("lab", "exec", n, "--", "pgrep", "-x", "flanneld"); err != nil || now == was {
						return fmt.Errorf("flanneld was not started again: %w", err)
					}
					return nil
				})
			}
		}
		time.Sleep(2 * time.Second) // it makes its rules
		return all.stop(t)
	})
	flows(t, "cluster1", "cluster2")
	flows(t, "cluster2", "cluster1")
}

// uninstallAll checks that nodes are as they were, and that the CNI works as before.
func uninstallAll(t *testing.T) {
	for _, c := range slices.Backward(clusters) {
		must(t, "subctl", "uninstall", "--context", c, "--yes")
		for _, n := range nodes(c) {
			require.Equal(t, pristine[n], holdings(t, n), n)
			require.NotContains(t, on(t, n, "nft list tables"), "submariner", n)
		}
		within(t, c)
	}
}
