//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The flows of a run: UDP flows of a packet every millisecond, and TCP connections, half of them
// idle. One half of either goes to a pod, the other to its Service. More UDP flows would keep two
// processors busy, and the agents waiting.
const (
	udpFlows, udpRate = 2, 1000
	tcpFlows          = 200
)

// flowsUnderWay are flows from one pod to another and to the Service of its cluster.
type flowsUnderWay struct {
	end  io.Closer
	out  bytes.Buffer
	errs untilSaid
	done chan error
}

// ended is what became of flows.
type ended struct {
	UDP []struct {
		Target           string
		Port, Sent, Lost int

		LostFromMs, LostToMs int
		LongestGapMs         float64
		GapFromMs            int
		Err                  string
	}
	TCP []struct {
		Target string
		Port   int
		Idle   bool
		Err    string
	}
	Control struct{ LongestGapMs float64 } // of a flow that does not leave the pod
}

// container is the container of a pod. Commands in it need no API server, unlike those of kubectl.
type container struct{ node, id, pid string } // pid is the process ID in the node

func containerOf(t *testing.T, p pod) container {
	t.Helper()
	id := kubectl(t, p.cluster, "get", "pod", p.name, "-o", "jsonpath={.status.containerStatuses[0].containerID}")
	c := container{node: p.node, id: strings.TrimPrefix(id, "containerd://")}
	tasks := on(t, c.node, "ctr -n k8s.io tasks ls") // perhaps among warnings of containerd's client
	m := regexp.MustCompile(`(?m)^` + c.id + `\s+(\d+)\s+RUNNING`).FindStringSubmatch(tasks)
	require.NotNil(t, m, "container %s of pod %s does not run:\n%s", c.id, p.name, tasks)
	c.pid = m[1]
	return c
}

// command returns the command that runs the lab's test program in the container.
func (c container) command(args ...string) []string {
	id := fmt.Sprintf("e2e-%d", time.Now().UnixNano())
	return append(
		[]string{"lab", "exec", c.node, "--", "ctr", "-n", "k8s.io", "tasks", "exec", "--exec-id", id, c.id, "/labapp"},
		args...)
}

// unread is how many datagrams a kernel has dropped as their sockets were full, in /proc/net/snmp.
var unread = regexp.MustCompile(`(?m)^Udp: \d+ \d+ \d+ \d+ (\d+)`)

// dropped returns how many packets have been dropped for want of a processor: by the kernel that
// all nodes share, and at the sockets of two containers. It is 0 if nobody wants to know.
func dropped(t *testing.T, ends ...container) (n int) {
	t.Helper()
	if failoverRuns == 0 {
		return 0
	}
	// a line for each processor; the second column is what its backlog had no room for
	text, err := os.ReadFile("/proc/net/softnet_stat")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		m, err := strconv.ParseInt(strings.Fields(line)[1], 16, 64)
		require.NoError(t, err)
		n += int(m)
	}
	for _, c := range ends {
		// of the network namespace of the pod
		out := must(t, "lab", "exec", c.node, "--", "cat", "/proc/"+c.pid+"/net/snmp")
		m := unread.FindStringSubmatch(out)
		require.NotNil(t, m, out)
		more, err := strconv.Atoi(m[1])
		require.NoError(t, err)
		n += more
	}
	return n
}

func startFlows(t *testing.T, from container, size int, targets ...string) *flowsUnderWay {
	t.Helper()
	args := append([]string{"--control", "127.0.0.1:7"}, targets...)
	for option, value := range map[string]int{
		"--udp":  udpFlows,
		"--rate": udpRate,
		"--size": max(size, 64),
		"--tcp":  tcpFlows,
	} {
		args = append(args, option, fmt.Sprint(value))
	}
	return beginFlows(t, from, args...)
}

// beginFlows runs "labapp flows" with such arguments, and returns when all flows are up.
func beginFlows(t *testing.T, from container, args ...string) *flowsUnderWay {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
	t.Cleanup(cancel)
	f := &flowsUnderWay{done: make(chan error, 1), errs: awaiting("all flows are up")}
	args = append([]string{"flows"}, args...)
	cmd := command(ctx, from.command(args...)...)
	cmd.Stdout = &f.out
	cmd.Stderr = &f.errs
	var err error
	f.end, err = cmd.StdinPipe()
	require.NoError(t, err)
	// if stop is not reached: what runs in the node does not end with "lab exec"
	t.Cleanup(func() { _ = f.end.Close() })
	require.NoError(t, cmd.Start())
	go func() { f.done <- cmd.Wait() }()
	select {
	case <-f.errs.heard:
	case err := <-f.done:
		t.Fatalf("flows from %s: %v: %s%s", from.node, err, &f.out, f.errs.text)
	case <-time.After(slack * 30 * time.Second):
		t.Fatalf("flows from %s are not up", from.node)
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
	connectionMark = regexp.MustCompile(`(?m)(tcp|udp) .*?src=(\S+) dst=(\S+) sport=(\d+) dport=(\d+) .*?mark=(\d+)`)
	gatewayMark    = regexp.MustCompile(
		`ether saddr ([0-9a-f:]+) ct mark (?:and|&) 0x0000003f == 0x0*([0-9a-f]+) accept`)
)

// flow identifies a flow from a pod. Its port is not enough: another flow may have had the same
// one, to another target or over another protocol, and the node remembers it for two minutes after
// its end.
type flow struct {
	protocol, target string // the target as ADDRESS:PORT
	port             int
}

// gatewaysOf returns the mark of the gateway of each flow from a pod, as the pod's node has it.
func gatewaysOf(t *testing.T, p pod) map[flow]int {
	t.Helper()
	out := map[flow]int{}
	for _, m := range connectionMark.FindAllStringSubmatch(
		on(t, p.node, "grep src="+p.ip+" /proc/net/nf_conntrack || true"), -1) {
		port, _ := strconv.Atoi(m[4])
		mark, _ := strconv.Atoi(m[6])
		if m[2] == p.ip {
			out[flow{m[1], m[3] + ":" + m[5], port}] = mark & 0x3f
		}
	}
	return out
}

// marksOf returns the mark that the node of a pod has for each gateway.
func marksOf(t *testing.T, p pod, gateways []string) map[string]int {
	t.Helper()
	rules := on(t, p.node, "nft list table ip submariner-route-return")
	byMAC := map[string]int{}
	for _, m := range gatewayMark.FindAllStringSubmatch(rules, -1) {
		mark, err := strconv.ParseInt(m[2], 16, 32)
		require.NoError(t, err)
		byMAC[m[1]] = int(mark)
	}
	out := map[string]int{}
	for _, gateway := range gateways {
		mac := []string{"02", "73", "f0"}
		for _, octet := range strings.Split(nodeIP(t, gateway), ".")[1:] {
			n, err := strconv.Atoi(octet)
			require.NoError(t, err)
			mac = append(mac, fmt.Sprintf("%02x", n))
		}
		mark, ok := byMAC[strings.Join(mac, ":")]
		require.True(t, ok, "node %s has no mark for gateway %s (%v):\n%s", p.node, gateway, mac, rules)
		out[gateway] = mark
	}
	return out
}

// concerned returns the ports of the datagrams that a fault may interrupt: those that its gateways
// carry in either direction, as their connection tracking tells.
func (s *scene) concerned(t *testing.T, f fault, victim string) map[int]bool {
	t.Helper()
	ports := map[int]bool{}
	gateways := []string{victim}
	if f.concerns != nil {
		gateways = f.concerns(s, victim)
	}
	for _, gateway := range gateways {
		for _, m := range datagramPort.FindAllStringSubmatch(
			on(t, gateway, "grep ' udp .*src="+s.from.ip+" ' /proc/net/nf_conntrack || true"), -1) {
			port, _ := strconv.Atoi(m[1])
			ports[port] = true
		}
	}
	return ports
}

// datagramPort matches the ports of an entry of connection tracking that are not the one of the
// servers.
var datagramPort = regexp.MustCompile(` [sd]port=(\d{2,5})\b`)
