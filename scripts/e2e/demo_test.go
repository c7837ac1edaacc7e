//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/internal/measure"
)

// The README's path: a broker, three members, and pods of each reaching pods and
// Services of the others.
func TestDemo(t *testing.T) {
	dry := must(t, "subctl", "deploy-broker", "--context", "cluster1", "--broker-info", brokerFile, "--dry-run", "-o",
		"yaml")
	require.Contains(t, dry, "ValidatingAdmissionPolicy")
	must(t, "subctl", "deploy-broker", "--context", "cluster1", "--broker-info", brokerFile)
	info, err := os.Stat(brokerFile)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	for _, c := range clusters {
		deploy(t, c)
	}
	for _, c := range clusters {
		join(t, c)
	}
	start := time.Now()
	last := len(clusters) - 1
	connected(t)
	from := pods(t, clusters[last], "web")[0]
	to := pods(t, clusters[0], "web")[0]
	from.exec(t, "get", "http://"+to.ip+":8080/", "--timeout", "15s")
	measure.Record(
		t,
		measure.AtMost("join returned: all connections up and a first packet through after",
			measure.Values{time.Since(start).Seconds()}, 5, "s"),
	)
	for _, a := range clusters {
		for _, b := range clusters {
			if a != b {
				t.Run(a+" to "+b, func(t *testing.T) { flows(t, a, b) })
			}
		}
	}
}

func TestEverySizeOfPacket(t *testing.T) {
	far := podOn(t, "cluster2", "web", worker(t, "cluster2"))
	for _, from := range []pod{
		podOn(t, "cluster1", "web", worker(t, "cluster1")), podOn(t, "cluster1", "web", gateway(t, "cluster1")),
		podOn(t, "cluster1", "host", worker(t, "cluster1")), podOn(t, "cluster1", "host", gateway(t, "cluster1")),
	} {
		t.Run(from.name+" on "+from.node, func(t *testing.T) { sizes(t, from, far.ip) })
	}
	t.Run("the other way", func(t *testing.T) {
		sizes(t, far, podOn(t, "cluster1", "web", worker(t, "cluster1")).ip)
	})
	t.Run("through a Service", func(t *testing.T) {
		from := podOn(t, "cluster1", "web", worker(t, "cluster1"))
		svc := serviceIP(t, "cluster2", "web")
		from.exec(t, "udp", svc+":7", "1400", "--tries", "3")
		from.exec(t, "tcp", svc+":7", "100000")
	})
}

// Joining again changes nothing and is no error; so is deploying the broker again.
func TestJoinAgain(t *testing.T) {
	before := gateway(t, "cluster2")
	must(t, "subctl", "deploy-broker", "--context", "cluster1", "--broker-info", brokerFile)
	backups, err := filepath.Glob(brokerFile + ".*")
	require.NoError(t, err)
	require.Len(t, backups, 1, "the older file is kept")
	join(t, "cluster2")
	connected(t)
	require.Equal(t, before, gateway(t, "cluster2"))
}

// What "show plan" says from afar is what the node holds.
func TestShowPlan(t *testing.T) {
	for _, node := range []string{gateway(t, "cluster1"), worker(t, "cluster1")} {
		plan := must(t, "subctl", "show", "plan", "--context", "cluster1", "--node", node)
		held := on(t, node,
			"ip -4 route show table 170171100 2>/dev/null; ip -4 route show table 170171150 2>/dev/null")
		planned := 0
		for line := range strings.Lines(plan) {
			if f := strings.Fields(line); strings.HasPrefix(line, "ip route replace ") &&
				strings.Contains(line, " nhid ") {
				planned++
				require.Contains(t, held, f[3]+" nhid "+f[7], "%s: %s", node, line)
			}
		}
		require.Equal(t, strings.Count(held, "nhid"), planned, "%s holds\n%s\nplanned\n%s", node, held, plan)
		require.NotZero(t, planned)
	}
}

// An agent that has nothing to do uses next to no CPU time.
func TestIdleAgents(t *testing.T) {
	busiest, rss := idle(t, clusters...)
	measure.Record(t,
		measure.AtMost("idle agent, the largest: resident", measure.Values{rss}, 96, "MiB"),
		measure.AtMost("idle agent, the busiest: CPU, of a core", busiest, 0.8, "%"))
}

// idle returns the CPU time of the busiest agent of some clusters, in percent of a core, and the
// resident memory of the largest, in MiB.
func idle(t *testing.T, clusters ...string) (busiest measure.Values, rss float64) {
	t.Helper()
	const windows, window = 4, 5 * time.Second // a Gateway is written once in each
	cpu := map[string]measure.Values{}
	was := map[string]float64{}
	for i := range windows + 1 {
		now := map[string]float64{}
		for _, c := range clusters {
			for _, n := range nodes(c) {
				for line := range strings.Lines(on(t, n, agentsScript)) {
					var role string
					var nanoseconds, kib float64
					_, err := fmt.Sscan(line, &role, &nanoseconds, &kib)
					require.NoError(t, err, line)
					now[n+" "+role] = nanoseconds
					rss = max(rss, kib/1024)
				}
			}
		}
		if i > 0 {
			require.Len(t, now, len(was), "an agent was restarted")
			for k := range now {
				cpu[k] = append(cpu[k], 100*(now[k]-was[k])/float64(window))
			}
		}
		if was = now; i < windows {
			time.Sleep(window)
		}
	}
	require.NotEmpty(t, cpu)
	for k, v := range cpu {
		t.Logf("%s: %.2f %% of a core", k, v.Median())
		if len(busiest) == 0 || v.Median() > busiest.Median() {
			busiest = v
		}
	}
	return busiest, rss
}

// agentsScript prints the role of each agent on a node, the CPU time of its threads in
// nanoseconds, and its resident memory in KiB.
const agentsScript = `for p in $(pgrep -x subctl); do
	echo $(tr '\0' ' ' </proc/$p/cmdline | cut -d' ' -f3) $(cat /proc/$p/task/*/schedstat | awk '{n+=$1} END {printf "%.0f", n}') $(awk '/VmRSS/{print $2}' /proc/$p/status)
done`

func TestShow(t *testing.T) {
	for _, what := range []string{"connections", "gateways", "endpoints", "networks", "versions", "brokers", "all"} {
		out, code := stdout(t, "subctl", "show", what)
		require.Zero(t, code, "show %s\n%s", what, out)
		require.NotEmpty(t, out)
		t.Logf("show %s\n%s", what, out)
	}
	out, code := stdout(t, "subctl", "show", "connections", "--context", "cluster1")
	require.Zero(t, code)
	require.Equal(t, 3, strings.Count(out, "\n"), "one context: a heading and two rows\n%s", out)
}

// The web servers of "make demo" name their node: the manifests are the demo's own.
func TestDemoAnswers(t *testing.T) {
	const ns = "demo"
	for _, c := range []string{"cluster1", "cluster2"} {
		kubectl(t, c, "create", "namespace", ns)
		t.Cleanup(func() { kubectl(t, c, "delete", "namespace", ns, "--timeout=60s") })
	}
	manifest := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root, "scripts/demo", name))
		require.NoError(t, err)
		return string(text)
	}
	demo := func(cluster string, args ...string) string {
		return kubectl(t, cluster, append([]string{"-n", ns}, args...)...)
	}
	file := filepath.Join(t.TempDir(), "client.yaml")
	require.NoError(t,
		os.WriteFile(file, []byte(strings.ReplaceAll(manifest("client.yaml"), "NODE", worker(t, "cluster1"))), 0o600))
	demo("cluster1", "apply", "-f", file)
	demo("cluster2", "apply", "-f", filepath.Join(root, "scripts/demo/web.yaml"))
	demo("cluster2", "rollout", "status", "deployment/web", "--timeout=120s")
	demo("cluster1", "wait", "--for=condition=Ready", "pod/client", "--timeout=120s")

	url := "http://" + demo("cluster2", "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}") + "/"
	var answer string
	require.Eventually(t, func() bool { // kube-proxy learns of ready pods a moment later
		out, err := sh("kubectl", "--context", "cluster1", "-n", ns, "exec", "client", "--", "/labapp", "get", url,
			"--timeout", "15s")
		answer = out
		return err == nil
	}, 30*time.Second, time.Second, "no answer from %s", url)
	found := regexp.MustCompile(` node=(\S*)`).FindStringSubmatch(answer)
	require.Len(t, found, 2, answer)
	require.Contains(t, nodes("cluster2"), found[1], answer)
}
