//go:build e2e

package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/internal/measure"
)

// failoverRuns is how often TestL1Failover repeats each fault: 0, and it is skipped, in the lab of the other tests. It has a lab
// of its own, of two clusters with two gateways and a worker each.
var failoverRuns, _ = strconv.Atoi(os.Getenv("E2E_FAILOVER"))

// failoverCables are the cables under which the faults happen, separated by commas.
var failoverCables = strings.Split(cmp.Or(os.Getenv("E2E_FAILOVER_CABLES"), "vxlan,vxlan+wireguard"), ",")

// A fault happens to one gateway of cluster1, between whose workers and those of cluster2 packets flow.
type fault struct {
	name string
	// begin makes it happen, and end undoes it. Packets flow until after begin, and for returned until after end.
	begin, end func(t *testing.T, victim string)
	limit      float64 // of the gap, in ms; 0 if no flow is to notice it
	size       int     // of the datagrams, in bytes
}

// The faults' drops are in a table of their own, so that agents cannot repair them.
const faultTable = "table inet fault"

func dropping(chain string) func(*testing.T, string) {
	return func(t *testing.T, victim string) {
		t.Helper()
		on(t, victim, fmt.Sprintf("nft '%s { chain c { %s }; }'", faultTable, chain))
	}
}

func dropNothing(t *testing.T, victim string) {
	t.Helper()
	on(t, victim, "nft delete "+faultTable)
}

// faults returns all faults. remote is what an nftables rule matches of packets from and to the gateways of cluster2.
func faults(remote []string) []fault {
	ips := strings.Join(remote, ", ")
	workerOf := func(victim string) string { return strings.Split(victim, "-")[0] + "-node3" }
	kill := func(t *testing.T, victim string) {
		t.Helper()
		must(t, "lab", "kill", victim)
		must(t, "lab", "cut", victim)
	}
	revive := func(t *testing.T, victim string) {
		t.Helper()
		must(t, "lab", "heal", victim)
		must(t, "lab", "start", victim)
		kubectl(t, "cluster1", "wait", "--for=condition=Ready", "node/"+victim, "--timeout=300s")
		for _, ds := range []string{"web", "host"} {
			kubectl(t, "cluster1", "rollout", "status", "daemonset/"+ds, "--timeout=300s")
		}
	}
	nothing := func(*testing.T, string) {}
	between := func(verb string) func(t *testing.T, victim string) {
		return func(t *testing.T, victim string) { must(t, "lab", verb, victim, "cluster2") }
	}
	return []fault{
		{name: "killed-node", begin: kill, end: revive, limit: 1000},
		{name: "killed-agent", begin: func(t *testing.T, victim string) { on(t, victim, "pkill -9 -x subctl") }, end: nothing},
		{
			name: "cut-one-way", limit: 1000, end: dropNothing,
			begin: dropping("type filter hook prerouting priority -400; ip saddr { " + ips + " } drop;"),
		},
		{name: "cut-both-ways", begin: between("cut"), end: between("heal"), limit: 1000},
		{
			name: "forward-drops", limit: 1000, end: dropNothing,
			begin: dropping("type filter hook forward priority 300; drop;"),
		},
		{
			name: "large-packets-dropped", limit: 1000, size: 1200, end: dropNothing,
			begin: dropping("type filter hook prerouting priority -400; ip saddr { " + ips + " } meta length > 1000 drop;"),
		},
		{
			name: "drained",
			begin: func(t *testing.T, victim string) {
				must(t, "subctl", "gateway", "drain", victim, "--context", "cluster1")
			},
			end: func(t *testing.T, victim string) {
				must(t, "subctl", "gateway", "undrain", victim, "--context", "cluster1")
			},
		},
		{name: "returned", begin: kill, end: revive},
		{
			name: "cut-from-worker", limit: 1000,
			begin: func(t *testing.T, victim string) { must(t, "lab", "cut", victim, workerOf(victim)) },
			end:   func(t *testing.T, victim string) { must(t, "lab", "heal", victim, workerOf(victim)) },
		},
	}
}

// flowsUnderWay are flows from one pod to another and to the Service of its cluster.
type flowsUnderWay struct {
	end  io.Closer
	out  bytes.Buffer
	errs firstWrite
	done chan error
}

// ended is what became of flows.
type ended struct {
	UDP []struct {
		Target           string
		Port, Sent, Lost int
		LongestGapMs     float64
		Err              string
	}
	TCP []struct {
		Target string
		Port   int
		Idle   bool
		Err    string
	}
}

func startFlows(t *testing.T, from pod, size int, targets ...string) *flowsUnderWay {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	f := &flowsUnderWay{done: make(chan error, 1), errs: firstWrite{begun: make(chan struct{})}}
	args := append([]string{"kubectl", "--context", from.cluster, "exec", "-i", from.name, "--", "/labapp", "flows"}, targets...)
	cmd := command(ctx, append(args, "--udp", "8", "--rate", "100", "--size", fmt.Sprint(max(size, 64)), "--tcp", "100")...)
	cmd.Stdout, cmd.Stderr = &f.out, &f.errs
	var err error
	f.end, err = cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	go func() { f.done <- cmd.Wait() }()
	select {
	case <-f.errs.begun:
	case err := <-f.done:
		t.Fatalf("flows from %s: %v: %s%s", from.name, err, &f.out, f.errs.text)
	case <-time.After(slack * 30 * time.Second):
		t.Fatalf("flows from %s are not up", from.name)
	}
	return f
}

func (f *flowsUnderWay) stop(t *testing.T) (e ended) {
	t.Helper()
	require.NoError(t, f.end.Close())
	require.NoError(t, <-f.done, "%s%s", &f.out, f.errs.text)
	require.NoError(t, json.Unmarshal(f.out.Bytes(), &e), f.out.String())
	return e
}

var (
	connectionMark = regexp.MustCompile(`(?m)src=(\S+) dst=\S+ sport=(\d+) .*?mark=(\d+)`)
	gatewayMark    = regexp.MustCompile(`ether saddr ([0-9a-f:]+) ct mark (?:and|&) 0x0000003f == 0x0*([0-9a-f]+) accept`)
)

// gatewaysOf returns the mark of the gateway of each flow from a pod, by the pod's port, as the pod's node has it.
func gatewaysOf(t *testing.T, p pod) map[int]int {
	t.Helper()
	out := map[int]int{}
	for _, m := range connectionMark.FindAllStringSubmatch(on(t, p.node, "grep src="+p.ip+" /proc/net/nf_conntrack || true"), -1) {
		port, _ := strconv.Atoi(m[2])
		mark, _ := strconv.Atoi(m[3])
		if m[1] == p.ip {
			out[port] = mark & 0x3f
		}
	}
	return out
}

// markOf returns the mark that the node of a pod has for a gateway.
func markOf(t *testing.T, p pod, gateway string) int {
	t.Helper()
	ip := strings.Split(nodeIP(t, gateway), ".")
	mac := []string{"02", "73", "f0"}
	for _, octet := range ip[1:] {
		n, err := strconv.Atoi(octet)
		require.NoError(t, err)
		mac = append(mac, fmt.Sprintf("%02x", n))
	}
	rules := on(t, p.node, "nft list table ip submariner-route-return")
	for _, m := range gatewayMark.FindAllStringSubmatch(rules, -1) {
		if m[1] == strings.Join(mac, ":") {
			mark, err := strconv.ParseInt(m[2], 16, 32)
			require.NoError(t, err)
			return int(mark)
		}
	}
	t.Fatalf("node %s has no mark for gateway %s (%s):\n%s", p.node, gateway, strings.Join(mac, ":"), rules)
	return 0
}

// outcome is what a fault cost.
type outcome struct {
	gap           float64 // the longest of a flow, in ms; answers may come back through another gateway than the question went
	tcp, survived int     // connections from pod to pod
	moved         int     // flows through other gateways that changed theirs
}

// suffer runs a fault once.
func suffer(t *testing.T, f fault, victim string, from, to pod) (o outcome) {
	t.Helper()
	if f.name == "returned" {
		f.begin(t, victim)
		time.Sleep(2 * time.Second)
	}
	own := markOf(t, from, victim)
	all := startFlows(t, from, f.size, to.ip+":7", serviceIP(t, to.cluster, "far")+":7")
	time.Sleep(time.Second)
	before := gatewaysOf(t, from)
	if f.name == "returned" {
		f.end(t, victim)
		allConnected(t)
	} else {
		f.begin(t, victim)
	}
	time.Sleep(4 * time.Second)
	after := gatewaysOf(t, from)
	e := all.stop(t)
	if f.name != "returned" {
		f.end(t, victim)
		allConnected(t)
	}
	for port, mark := range before {
		if now, ok := after[port]; ok && mark != own && now != mark {
			o.moved++
		}
	}
	for _, u := range e.UDP {
		require.Empty(t, u.Err)
		o.gap = max(o.gap, u.LongestGapMs)
	}
	for _, c := range e.TCP {
		if strings.HasPrefix(c.Target, to.ip) {
			if o.tcp++; c.Err == "" {
				o.survived++
			} else {
				t.Logf("connection %d (idle: %v, first through the failed gateway: %v, now: %v): %s", c.Port, c.Idle, before[c.Port] == own, after[c.Port] == own, c.Err)
			}
		}
	}
	return o
}

// failoverRow is a row of docs/failover.json.
type failoverRow struct {
	Fault    string  `json:"fault"`
	Cable    string  `json:"cable"`
	Gateways int     `json:"gateways"`
	Runs     int     `json:"runs"`
	P50      float64 `json:"gap_p50_ms"`
	P99      float64 `json:"gap_p99_ms"`
	Max      float64 `json:"gap_max_ms"`
	Survived float64 `json:"connections_survived"` // of those from pod to pod, as a share of 1
	Moved    int     `json:"flows_moved_needlessly"`
}

// Each fault of a gateway, under traffic between pods and to a Service, with two gateways in each of two clusters.
func TestL1Failover(t *testing.T) {
	if failoverRuns == 0 {
		t.Skip("E2E_FAILOVER is not set: make failover runs this test in a lab of its own")
	}
	must(t, "subctl", "deploy-broker", "--context", "cluster1", "--broker-info", brokerFile)
	var remote []string
	for _, c := range clusters {
		deploy(t, c)
		must(t, "subctl", "join", brokerFile, "--context", c, "--image", image, "--gateways", "2", "--multi-active-gateway")
		for _, g := range gateways(t, c) {
			if c == "cluster2" {
				remote = append(remote, nodeIP(t, g))
			}
		}
	}
	allConnected(t)
	victims := gateways(t, "cluster1")
	require.Len(t, victims, 2)
	idle := func(cluster string) string {
		for _, n := range nodes(cluster) {
			if !slices.Contains(gateways(t, cluster), n) {
				return n
			}
		}
		t.Fatalf("%s has no worker", cluster)
		return ""
	}
	from, to := podOn(t, "cluster1", "web", idle("cluster1")), podOn(t, "cluster2", "web", idle("cluster2"))
	// A Service for this pod only: the others would answer as well.
	kubectl(t, to.cluster, "label", "pod", to.name, "far=yes")
	apply(t, to.cluster, `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "far", "namespace": "default"}, "spec": {"selector": {"far": "yes"}, "ports": [
		{"name": "udp", "port": 7, "protocol": "UDP"}, {"name": "tcp", "port": 7, "protocol": "TCP"}]}}`)

	var rows []failoverRow
	for _, driver := range failoverCables {
		if driver != "vxlan" {
			must(t, "subctl", "cable-policy", "add", "--context", "cluster1", "--name", "faults", "--cable-driver", driver,
				"--left-cluster-selector", "submariner-io/clusterID=cluster1", "--right-cluster-selector", "submariner-io/clusterID=cluster2")
		}
		eventually(t, time.Minute, func() error {
			cs, code := connections(t)
			for _, c := range cs {
				if c.CableDriver != driver || code != 0 {
					return fmt.Errorf("exit code %d: %+v", code, cs)
				}
			}
			return nil
		})
		time.Sleep(5 * time.Second) // the former cables go
		for _, f := range faults(remote) {
			ok := t.Run(driver+"/"+f.name, func(t *testing.T) {
				row := failoverRow{Fault: f.name, Cable: driver, Gateways: len(victims), Runs: failoverRuns}
				var gaps measure.Values
				tcp, survived := 0, 0
				for i := range failoverRuns {
					o := suffer(t, f, victims[i%len(victims)], from, to)
					t.Logf("%+v", o)
					gaps = append(gaps, o.gap)
					tcp, survived = tcp+o.tcp, survived+o.survived
					row.Moved += o.moved
				}
				slices.Sort(gaps)
				at := func(q float64) float64 { return math.Round(gaps[int(math.Ceil(q*float64(len(gaps))))-1]) }
				row.P50, row.P99, row.Max = at(0.5), at(0.99), at(1)
				row.Survived = float64(survived) / float64(max(tcp, 1))
				rows = append(rows, row)
				t.Logf("%+v", row)
				require.Zero(t, row.Moved, "flows through the other gateway stay there")
				require.Equal(t, tcp, survived, "connections from pod to pod continue")
				require.Less(t, row.Max, slack*cmp.Or(f.limit, 250), "packets take another gateway")
			})
			if !ok {
				t.FailNow()
			}
		}
	}
	if file := os.Getenv("E2E_FAILOVER_JSON"); file != "" {
		text, err := json.MarshalIndent(rows, "", "  ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(root, file), append(text, '\n'), 0o644))
	}
}
