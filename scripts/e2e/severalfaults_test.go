//go:build e2e

package e2e

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"subctl/internal/measure"
)

// What TestFailover measures. If failoverRuns is 0, it runs each fault once in the lab of the
// other tests, and demands that connections survive, but not how fast. Otherwise it has a lab of
// its own, and repeats each fault until its row in failoverJSON has so many runs of failoverCommit.
var (
	failoverRuns, _ = strconv.Atoi(os.Getenv("E2E_FAILOVER"))
	failoverCables  = strings.Split(cmp.Or(os.Getenv("E2E_FAILOVER_CABLES"), "vxlan"), ",")
	// of each cluster, fewest first
	failoverGateways = strings.Split(cmp.Or(os.Getenv("E2E_FAILOVER_GATEWAYS"), "2"), ",")
	// while the API servers run, and while they do not, which takes as long again
	failoverAPI = strings.Split(cmp.Or(os.Getenv("E2E_FAILOVER_API"), map[bool]string{false: "up", true: "up,down"}[long]), ",")
	// the file of rows; none are kept if it is empty
	failoverJSON   = os.Getenv("E2E_FAILOVER_JSON")
	failoverCommit = os.Getenv("E2E_FAILOVER_COMMIT") // of the program
)

// Each fault of a gateway, under traffic between pods and to a Service, in two clusters with
// several gateways and a worker each; if all tests are to run, also while no API server runs. It is
// the last test: the clusters keep these nodes and gateways.
func TestFailover(t *testing.T) {
	var s *scene
	for _, text := range failoverGateways {
		n, err := strconv.Atoi(text)
		require.NoError(t, err, "E2E_FAILOVER_GATEWAYS")
		t.Run(fmt.Sprintf("%d gateways", n), func(t *testing.T) {
			require.NoError(t, s.leftover())
			s = newScene(t, n)
			for _, driver := range failoverCables {
				t.Run(driver, func(t *testing.T) {
					require.NoError(t, s.leftover())
					s.connect(t, driver)
					if slices.Contains(failoverAPI, "up") {
						for _, f := range faults {
							t.Run(f.name, func(t *testing.T) { s.measure(t, driver, true, f) })
						}
					}
					if !slices.Contains(failoverAPI, "down") {
						return
					}
					defer s.apiServers(t, true)
					for _, fs := range withoutAPI() {
						t.Run(names(fs)+" without API servers",
							func(t *testing.T) { s.measure(t, driver, false, fs...) })
					}
				})
			}
		})
	}
}

// withoutAPI returns the faults that can happen without API servers. Faults that cannot be undone
// without API servers happen to a gateway one after another, so that the API servers are started
// once for all of them: a node whose agents were killed gets new ones after it was killed, too.
func withoutAPI() (out [][]fault) {
	var last []fault
	for _, f := range faults {
		switch {
		case f.needsAPI:
		case f.undoAPI:
			last = append(last, f)
		default:
			out = append(out, []fault{f})
		}
	}
	return append(out, last)
}

func names(fs []fault) string {
	var out []string
	for _, f := range fs {
		out = append(out, f.name)
	}
	return strings.Join(out, ", ")
}

// measure runs faults until each has happened often enough. In each round, all of them happen to
// the same gateway. A fault is undone before the next one only if the nodes do not use all gateways
// any more: where cables end with their agent, the next fault would strike an unused gateway.
func (s *scene) measure(t *testing.T, driver string, api bool, fs ...fault) {
	require.False(t, s.suffering, "a fault before was not undone")
	evidence(t, slices.Concat(s.gateways, s.theirs), clusters[:2])
	file := filepath.Join(root, failoverJSON)
	var rows []*row
	for _, f := range fs {
		r := &row{
			f,
			measure.Failover{
				Fault:    f.name,
				Cable:    driver,
				Gateways: len(s.gateways),
				NoAPI:    !api,
				Commit:   failoverCommit,
			},
		}
		if failoverJSON != "" {
			var err error
			r.Failover, err = r.Resume(file)
			require.NoError(t, err)
		}
		rows = append(rows, r)
	}
	repeat(rows, max(failoverRuns, 1), func(r *row, round int, last bool) {
		s.suffering = true
		victims := s.gateways
		if r.far {
			victims = s.theirs
		}
		run := s.run(t, r.fault, victims[round%len(victims)], api, last)
		if failoverRuns > 0 {
			assert.LessOrEqual(t, run.OthersPackets, run.Dropped,
				"%s: flows through other gateways lose nothing but what the machine drops", r.name)
		}
		r.Add(run)
		if failoverJSON != "" {
			require.NoError(t, r.Keep(file))
		}
		s.suffering = !last
	})
	for _, r := range rows {
		assert.Zero(t, r.Lost, "%s: connections from pod to pod continue", r.name)
		assert.Zero(t, r.Silent, "%s: connections to a Service continue or end", r.name)
		if failoverRuns > 0 {
			assert.Zero(t, r.Moved, "%s: flows through other gateways stay there", r.name)
		}
		if failoverJSON != "" { // times are judged where they are measured, not on a busy machine
			assert.LessOrEqual(t, r.P99, r.p99, "%s: p99", r.name)
			assert.LessOrEqual(t, r.Max, r.max, "%s: max", r.name)
		}
	}
}

// run runs a fault, and undoes it unless it may be left to the next one. A fault that is run once
// is run again if connections were lost, which happens on a busy machine: "make failover" counts
// all runs.
func (s *scene) run(t *testing.T, f fault, victim string, api, last bool) measure.FailoverRun {
	t.Helper()
	s.clock.start()
	s.apiServers(t, api)
	run := s.suffer(t, f, victim)
	if failoverRuns == 0 && run.Lost+run.Silent > 0 {
		t.Logf("ONCE MORE, as connections were lost: %+v", run)
		s.undo(t, f, victim)
		s.apiServers(t, api)
		run = s.suffer(t, f, victim)
	}
	if last || !s.asUsual(t) {
		s.undo(t, f, victim)
	}
	t.Logf("%s of %s: %+v in %v", f.name, victim, run, &s.clock)
	return run
}

// newScene returns two clusters with so many gateways, and a worker each. They may have had fewer
// before.
func newScene(t *testing.T, n int) *scene {
	t.Helper()
	if had := nodesEach; had < n+1 {
		must(t, "lab", "up", "--clusters", "2", "--nodes", fmt.Sprint(n+1), "--timeout", "10m")
		must(t, "lab", "load-image", filepath.Join(root, "dist/subctl.tar"), "--clusters", "1,2")
		nodesEach = n + 1
		for _, c := range clusters[:2] {
			for _, node := range nodes(c)[had:] { // its agents have found no image
				kubectl(t, c, "-n", "submariner-operator", "delete", "pods", "--field-selector", "spec.nodeName="+node)
			}
		}
	}
	if _, err := os.Stat(brokerFile); err != nil {
		must(t, "subctl", "deploy-broker", "--context", "cluster1", "--broker-info", brokerFile)
	}
	for _, c := range clusters[:2] {
		deploy(t, c)
		join := []string{
			"subctl",
			"join",
			brokerFile,
			"--context",
			c,
			"--image",
			image,
			"--gateways",
			fmt.Sprint(n),
			"--multi-active-gateway",
		}
		if failoverRuns > 0 { // there will be more nodes than join can see
			join = append(join, "--clustercidr", podNetwork(t, c))
		}
		must(t, join...)
		eventually(t, time.Minute, func() error {
			if gws := gateways(t, c); len(gws) != n {
				return fmt.Errorf("%s has the gateways %v, not %d", c, gws, n)
			}
			return nil
		})
	}
	allConnected(t)
	for _, pair := range [][2]string{{"cluster1", "cluster2"}, {"cluster2", "cluster1"}} {
		ownAddresses(t, pair[0], pair[1])
	}
	idle := func(cluster string) string {
		i := slices.IndexFunc(nodes(cluster), func(n string) bool { return !slices.Contains(gateways(t, cluster), n) })
		require.GreaterOrEqual(t, i, 0, "%s has no worker", cluster)
		return nodes(cluster)[i]
	}
	s := &scene{
		gateways: gateways(t, "cluster1"),
		from:     podOn(t, "cluster1", "web", idle("cluster1")),
		to:       podOn(t, "cluster2", "web", idle("cluster2")),
	}
	s.theirs = gateways(t, "cluster2")
	for _, g := range s.theirs {
		s.remote = append(s.remote, nodeIP(t, g))
	}
	favor(t, favored, slices.Concat([]string{s.from.node, s.to.node}, s.gateways, s.theirs)...)
	// A Service for this pod only: the others would answer as well.
	kubectl(t, s.to.cluster, "label", "pod", "--all", "far-")
	kubectl(t, s.to.cluster, "label", "pod", s.to.name, "far=yes")
	apply(
		t,
		s.to.cluster,
		`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "far", "namespace": "default"}, "spec": {"selector": {"far": "yes"}, "ports": [
		{"name": "udp", "port": 7, "protocol": "UDP"}, {"name": "tcp", "port": 7, "protocol": "TCP"}]}}`,
	)
	s.inside, s.far, s.targets = containerOf(t, s.from), containerOf(t, s.to), []string{
		s.to.ip + ":7",
		serviceIP(t, s.to.cluster, "far") + ":7",
	}
	return s
}

// podNetwork returns the network of the pods of a cluster of the lab, of which each node has a
// part.
func podNetwork(t *testing.T, cluster string) string {
	t.Helper()
	part := kubectl(t, cluster, "get", "nodes", "-o", "jsonpath={.items[0].spec.podCIDR}")
	network, err := netip.MustParsePrefix(part).Addr().Prefix(16)
	require.NoError(t, err)
	return network.String()
}

var (
	// those to other gateways of the cluster are used by detours, without a group
	nextHop = regexp.MustCompile(`(?m)^id (\d+) via \S+ dev vxlan-`)
	members = regexp.MustCompile(`(?m)^id \d+ group (\S+)`)
)

// unused returns the ID of a next hop of a node that is in no group; it is empty if there is none.
func unused(held string) string {
	var used []string
	for _, group := range members.FindAllStringSubmatch(held, -1) {
		used = append(used, strings.FieldsFunc(group[1], func(r rune) bool { return r == '/' })...)
	}
	for _, hop := range nextHop.FindAllStringSubmatch(held, -1) {
		if !slices.ContainsFunc(used,
			func(member string) bool { id, _, _ := strings.Cut(member, ","); return id == hop[1] }) {
			return hop[1]
		}
	}
	return ""
}

// connect has the clusters connected by a driver, and waits until nothing changes any more.
func (s *scene) connect(t *testing.T, driver string) {
	t.Helper()
	const policy = "faults"
	if driver == "vxlan" {
		_, _ = sh("subctl", "cable-policy", "delete", policy, "--context", "cluster1") // of the turn before, if any
	} else {
		must(t, "subctl", "cable-policy", "add", "--wait=false", "--replace", "--context", "cluster1", "--name", policy,
			"--cable-driver", driver, "--left-cluster-selector", "submariner-io/clusterID=cluster1",
			"--right-cluster-selector", "submariner-io/clusterID=cluster2")
	}
	eventually(t, time.Minute, func() error {
		cs, code := connections(t)
		for _, c := range cs {
			if slices.Contains(clusters[:2], c.Cluster) && slices.Contains(clusters[:2], c.RemoteCluster) &&
				c.CableDriver != driver ||
				code != 0 {
				return fmt.Errorf("exit code %d: %+v", code, cs)
			}
		}
		return nil
	})
	stable := s.groups(t)
	since := time.Now()
	eventually(t, time.Minute, func() error {
		if now := s.groups(t); fmt.Sprint(now) != fmt.Sprint(stable) {
			stable = now
			since = time.Now()
		}
		for node, held := range stable {
			if id := unused(held); id != "" {
				return fmt.Errorf("%s has next hop %s of a former cable:\n%s", node, id, held)
			}
		}
		if time.Since(since) < 3*time.Second {
			return fmt.Errorf("the groups have just changed: %v", stable)
		}
		return nil
	})
	s.usual, s.marks = stable, marksOf(t, s.from, s.gateways)
}

// ownAddresses requires that web servers on all nodes of a cluster, behind a Service, see the
// addresses of the pods of another one, which are on gateways and workers as well.
func ownAddresses(t *testing.T, a, b string) {
	t.Helper()
	servers := pods(t, b, "web")
	for _, from := range pods(t, a, "web") {
		seen := map[string]bool{}
		for tries := 0; len(seen) < len(servers); tries++ {
			require.Less(t, tries, 20, "only %v of the pods of %s have answered", seen, b)
			out := from.exec(t, "get", "http://"+serviceIP(t, b, "web")+"/", "-n", "20", "--timeout", "15s")
			for line := range strings.Lines(out) {
				require.Contains(t, line, " from="+from.ip+":", "the client's own address, on %s", from.node)
				seen[strings.Fields(line)[0]] = true
			}
		}
	}
}

func TestUnused(t *testing.T) {
	const held = "id 11 via 241.100.2.11 dev vxlan-tunnel scope link proto 170 \nid 2 group 11/12,3 type resilient buckets 1024\nid 12 via 241.100.2.12 dev vxlan-tunnel\n"
	require.Empty(t, unused(held))
	require.Equal(t, "1", unused(held+"id 1 via 246.100.2.11 dev vxlan-wireguard scope link\n"))
}
