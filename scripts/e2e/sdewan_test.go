//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sdewan is whether the lab has one cluster with Multus, and networks beside the cluster's, for
// TestSDEWAN. If it is "all", tunnels, users and the proposal's unusual cases are tested as well.
var sdewan = os.Getenv("E2E_SDEWAN") != ""

// sdewanLab returns the commands that make the site of docs/sdewan.md: a LAN with two hosts, two
// providers, and the Internet behind them, in which another site has its router, the hub.
func sdewanLab() [][]string {
	clusters = clusters[:1]
	host := func(args ...string) []string { return append([]string{"lab", "host"}, args...) }
	return [][]string{
		{"lab", "up", "--clusters", "1", "--nodes", fmt.Sprint(nodesEach), "--multus", "--timeout", "10m"},
		{"lab", "network", "lan", "wan1", "wan2", "core", "hublan"},
		host("client", "lan=192.168.1.2/24", "--route", "default=192.168.1.254"),
		host("server", "lan=192.168.1.1/24", "--route", "default=192.168.1.254"),
		host("isp1", "wan1=198.51.100.1/24", "core=192.0.2.1/24", "--route",
			"192.168.1.0/24=198.51.100.10,1.2.3.4/32=198.51.100.10"),
		host("isp2", "wan2=203.0.113.1/24", "core=192.0.2.2/24"),
		host("internet", "core=192.0.2.80/24", "--route",
			"198.51.100.0/24=192.0.2.1,203.0.113.0/24=192.0.2.2,1.2.3.4/32=192.0.2.1,192.168.1.0/24=192.0.2.1"),
		host("hubhost", "hublan=10.30.0.1/24", "--route", "default=10.30.0.254"),
	}
}

const sdewanCluster = "cluster1"

// Everything that docs/sdewan.md shows, applied as it is there, and measured on the wire; the
// seed's unusual cases; users' rights; and a cluster that is as before after uninstalling.
func TestSDEWAN(t *testing.T) {
	if !sdewan {
		t.Skip("E2E_SDEWAN is not set: make e2e-sdewan runs this test in a lab of its own")
	}
	servers(t)
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"install", sdewanInstalled},
		{"a CNF with two uplinks", sdewanEdge},
		{"connections 2 to 3", sdewanBalanced},
		{"an uplink fails and returns", sdewanFailover},
		{"firewall", sdewanFirewall},
		{"a Service", sdewanService},
		{"tunnel with a key", sdewanTunnelPSK},
		{"tunnel with certificates", sdewanTunnelCertificates},
		{"what is shown", sdewanShown},
		{"a user with a type", sdewanUser},
		{"unusual cases", sdewanCases},
		{"uninstall", sdewanUninstalled},
	} {
		if !t.Run(step.name, step.run) {
			t.FailNow()
		}
	}
}

// servers starts the servers of the hosts, which end with the test.
func servers(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	var running []*exec.Cmd
	t.Cleanup(func() {
		stop()
		for _, cmd := range running {
			_ = cmd.Wait()
		}
	})
	for _, s := range [][2]string{
		{"internet", ":8080"},
		{"internet", ":80"},
		{"server", ":22"},
		{"server", ":8080"},
		{"hubhost", ":8080"},
	} {
		cmd := command(ctx, "lab", "exec", s[0], "--", labapp(), "web", s[1])
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // lab ends what it runs
		require.NoError(t, cmd.Start())
		running = append(running, cmd)
	}
}

func labapp() string { return filepath.Join(root, "scripts/lab/bin/labapp") }

// onHost runs the lab's test program on a host.
func onHost(host string, args ...string) (string, error) {
	return sh(append([]string{"lab", "exec", host, "--", labapp()}, args...)...)
}

// manifest returns the manifest of docs/sdewan.md with this name.
func manifest(t *testing.T, name string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root, "docs/sdewan.md"))
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(page), "```yaml\n# "+name+"\n")
	require.True(t, found, name)
	text, _, _ := strings.Cut(rest, "```")
	return text
}

func applyIn(t *testing.T, namespace, text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "objects.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	kubectl(t, sdewanCluster, "-n", namespace, "apply", "-f", file)
}

// inSync waits until all rules of a namespace are.
func inSync(t *testing.T, namespace string) time.Duration {
	t.Helper()
	return eventually(t, 20*time.Second, func() error {
		out, err := sh("subctl", "sdewan", "show", "rules", "-n", namespace, "--context", sdewanCluster)
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
}

// rendered returns the CNF that subctl renders, of the image under test.
func rendered(t *testing.T, args ...string) string {
	t.Helper()
	out, code := stdout(t, append([]string{"subctl", "sdewan", "cnf", "render", "--image", image}, args...)...)
	require.Zero(t, code)
	return out
}

func sdewanInstalled(t *testing.T) {
	before := time.Now()
	out := must(t, "subctl", "sdewan", "install", "--context", sdewanCluster, "--image", image)
	t.Logf("%s\ninstalled in %v", out, time.Since(before).Round(100*time.Millisecond))
}

// edgeCNF is the CNF of the page.
var edgeCNF = []string{
	"edge",
	"--purpose",
	"cnf-1",
	"--networks",
	"lan=192.168.1.254/24,wan1=198.51.100.10/24,wan2=203.0.113.10/24",
	"--uplinks",
	"wan1=198.51.100.1,wan2=203.0.113.1",
	"--track",
	"wan1=192.0.2.80,wan2=192.0.2.80",
	"--interval",
	"1",
	"--ping-timeout",
	"1",
	"--down",
	"3",
	"--up",
	"3",
}

func sdewanEdge(t *testing.T) {
	applyIn(t, "default", manifest(t, "networks.yaml"))
	applyIn(t, "default", rendered(t, edgeCNF...))
	kubectl(t, sdewanCluster, "rollout", "status", "deployment/edge", "--timeout=120s")
	applyIn(t, "default", manifest(t, "firewall.yaml"))
	applyIn(t, "default", manifest(t, "uplinks.yaml"))
	t.Logf("in sync after %v", inSync(t, "default").Round(10*time.Millisecond))
}

var answeredFrom = regexp.MustCompile(`from=([0-9.]+):`)

// seenAs returns how many of n requests from a host the server saw from each address.
func seenAs(t *testing.T, host, url string, n int) map[string]int {
	t.Helper()
	out, err := onHost(host, "get", url, "-n", strconv.Itoa(n))
	require.NoError(t, err, out)
	seen := map[string]int{}
	for _, m := range answeredFrom.FindAllStringSubmatch(out, -1) {
		seen[m[1]]++
	}
	return seen
}

// The addresses that the edge has there.
const (
	viaWAN1 = "198.51.100.10"
	viaWAN2 = "203.0.113.10"
)

// Connections, not packets, are shared 2 to 3 within 5 %: with 2000 connections, this is more than
// four standard deviations.
func sdewanBalanced(t *testing.T) {
	const n = 2000
	eventually(t, 10*time.Second, func() error { // both uplinks are online
		out, err := onHost("client", "get", "http://192.0.2.80:8080/", "-n", "40")
		if err != nil || !strings.Contains(out, viaWAN1) || !strings.Contains(out, viaWAN2) {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	seen := seenAs(t, "client", "http://192.0.2.80:8080/", n)
	t.Logf("connections: %v", seen)
	require.Equal(t, n, seen[viaWAN1]+seen[viaWAN2])
	require.InDelta(t, 2.0/5, float64(seen[viaWAN1])/n, 0.05, "%v", seen)
}

// received returns how many packets a device of a host has received.
func received(t *testing.T, host, device string) int {
	t.Helper()
	out := must(t, "lab", "exec", host, "--", "cat", "/proc/net/dev")
	for line := range strings.Lines(out) {
		if name, counters, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && name == device {
			n, err := strconv.Atoi(strings.Fields(counters)[1])
			require.NoError(t, err)
			return n
		}
	}
	t.Fatalf("%s has no device %s:\n%s", host, device, out)
	return 0
}

func sdewanFailover(t *testing.T) {
	ping := func() (string, error) {
		return onHost("client", "udp", "192.0.2.80:7", "100", "--tries", "1", "--timeout", "1s")
	}
	out, err := ping()
	require.NoError(t, err, out)

	must(t, "lab", "exec", "isp1", "--", "ip", "link", "set", "core", "down")
	failed := time.Now()
	eventually(t, 10*time.Second, func() error {
		out, err := ping()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	t.Logf("connections with a limit of loss take the other uplink after %v",
		time.Since(failed).Round(100*time.Millisecond))
	eventually(t, 10*time.Second, func() error { // those without one wait until wan1 is offline
		out, err := onHost("client", "get", "http://192.0.2.80:8080/", "-n", "20")
		if n := strings.Count(out, "from="+viaWAN2); err != nil || n < 20 {
			return fmt.Errorf("%d of 20 connections came through wan2: %w: %s", n, err, out)
		}
		return nil
	})
	t.Logf("all connections take the other uplink after %v", time.Since(failed).Round(100*time.Millisecond))

	live := command(t.Context(), "lab", "exec", "client", "--", labapp(), "stream", "192.0.2.80:7", "--rate", "100",
		"--seconds", "0")
	end, err := live.StdinPipe()
	require.NoError(t, err)
	var report strings.Builder
	live.Stdout = &report
	require.NoError(t, live.Start())
	eventually(t, 5*time.Second, func() error {
		was := received(t, "isp2", "wan2")
		time.Sleep(500 * time.Millisecond)
		if n := received(t, "isp2", "wan2") - was; n < 25 {
			return fmt.Errorf("%d packets in 0.5 s", n)
		}
		return nil
	})

	must(t, "lab", "exec", "isp1", "--", "ip", "link", "set", "core", "up")
	returned := time.Now()
	eventually(t, 15*time.Second, func() error { // new connections are back on wan1
		if seen := seenAs(t, "client", "http://192.0.2.80:8080/", 40); seen[viaWAN1] == 0 {
			return fmt.Errorf("40 connections came from %v", seen)
		}
		return nil
	})
	t.Logf("new connections are back after %v", time.Since(returned).Round(100*time.Millisecond))
	one := received(t, "isp1", "wan1")
	two := received(t, "isp2", "wan2")
	time.Sleep(time.Second)
	one = received(t, "isp1", "wan1") - one
	two = received(t, "isp2", "wan2") - two
	require.Greater(t, two, 50, "the live connection stays with wan2")
	require.Less(t, one, 50, "the live connection stays with wan2")
	require.NoError(t, end.Close())
	require.NoError(t, live.Wait())
	var lost struct{ Sent, Received, Lost int }
	require.NoError(t, json.Unmarshal([]byte(report.String()), &lost), report.String())
	t.Logf("the live connection: %+v", lost)
	require.Zero(t, lost.Lost, "of a connection over the uplink that was always online")

	eventually(t, time.Minute, func() error { // its last 20 pings must have been answered
		was := received(t, "isp1", "wan1")
		out, err := onHost("client", "stream", "192.0.2.80:7", "--rate", "100", "--seconds", "1")
		if n := received(t, "isp1", "wan1") - was; err != nil || n < 50 {
			return fmt.Errorf("%d packets came through wan1: %w: %s", n, err, out)
		}
		return nil
	})
	t.Logf("connections with a limit of loss are back after %v", time.Since(returned).Round(100*time.Millisecond))
}

func sdewanFirewall(t *testing.T) {
	began := time.Now()
	out, err := onHost("client", "get", "http://192.0.2.80:80/", "--timeout", "5s")
	require.Error(t, err)
	require.Contains(t, out, "refused", "REJECT, not DROP")
	require.Less(t, time.Since(began), 5*time.Second)

	wire := startCaptureOn(t, "internet", "core", "icmp") // pings of 84 bytes are labapp's; the CNF's own are shorter
	out, err = onHost("client", "ping", "192.0.2.80", "--count", "3")
	require.NoError(t, err, out)
	out, err = onHost("server", "ping", "192.0.2.80", "--count", "3")
	require.NoError(t, err, out)
	wire.stop(t)
	require.Len(t, wire.packets(t, "icmp[0] = 8 and ip[2:2] = 84 and src 1.2.3.4"), 3,
		"SNAT of the host that the rule names")
	require.Len(t, wire.packets(t, "icmp[0] = 8 and ip[2:2] = 84 and src "+viaWAN1), 3,
		"and masquerading of all others")

	for _, uplink := range []string{viaWAN1, viaWAN2} { // replies leave by the uplink by which the connection came
		out, err := onHost("internet", "get", "http://"+uplink+":19900/", "--timeout", "5s")
		require.NoError(t, err, out)
		require.Contains(t, out, "from=192.0.2.80:", "DNAT keeps the source address")
		require.Contains(t, out, "ips=192.168.1.1")
	}

	out, err = onHost("internet", "get", "http://192.168.1.1:8080/", "--timeout", "3s")
	require.Error(t, err, "nothing is forwarded from the Internet to the LAN: %s", out)
	out, err = onHost("internet", "get", "http://"+viaWAN1+":443/", "--timeout", "3s")
	require.Error(t, err, "the REST API cannot be reached from the Internet: %s", out)
}

const httpd = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: httpd, namespace: default}
spec:
  replicas: 1
  selector: {matchLabels: {app: httpd}}
  template:
    metadata: {labels: {app: httpd}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - {name: web, image: "lab.local/labapp:1", imagePullPolicy: Never, args: [web], readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}}
---
apiVersion: v1
kind: Service
metadata: {name: httpd-svc, namespace: default}
spec: {selector: {app: httpd}, ports: [{port: 8080}]}
`

func sdewanService(t *testing.T) {
	apply(t, sdewanCluster, httpd)
	kubectl(t, sdewanCluster, "rollout", "status", "deployment/httpd", "--timeout=120s")
	applyIn(t, "default", manifest(t, "service.yaml"))
	inSync(t, "default")
	reaches := func(host, at string) {
		t.Helper()
		eventually(t, 10*time.Second, func() error {
			out, err := onHost(host, "get", "http://"+at+"/", "--timeout", "3s")
			if err != nil || !strings.Contains(out, "pod=httpd-") {
				return fmt.Errorf("%s: %w: %s", at, err, out)
			}
			return nil
		})
	}
	reaches("client", "192.168.1.254:2288")
	reaches("internet", "198.51.100.10:2288")
	reaches("internet", "203.0.113.10:2288")

	kubectl(t, sdewanCluster, "-n", "default", "annotate", "deployment", "edge", "sdewan.subctl.io/service-zones=wan1")
	kubectl(t, sdewanCluster, "-n", "default", "annotate", "service", "httpd-svc",
		`sdewan.subctl.io/expose={"purpose":"cnf-1","zone":"wan1","ports":[{"port":8080,"as":8088}]}`)
	reaches("internet", "198.51.100.10:8088")
	kubectl(t, sdewanCluster, "-n", "default", "annotate", "service", "httpd-svc", "sdewan.subctl.io/expose-")
	eventually(t, 10*time.Second, func() error {
		if out, err := onHost("internet", "get", "http://198.51.100.10:8088/", "--timeout", "1s"); err == nil {
			return fmt.Errorf("it is still exposed: %s", out)
		}
		return nil
	})
}

func sdewanShown(t *testing.T) {
	out, code := stdout(t, "subctl", "sdewan", "show", "cnfs", "-A", "--context", sdewanCluster)
	require.Zero(t, code, out)
	require.Contains(t, out, "cnf-1")
	var rules []struct {
		Name   string
		InSync bool
		Pods   []string
	}
	out, code = stdout(t, "subctl", "sdewan", "show", "rules", "-o", "json", "--context", sdewanCluster)
	require.Zero(t, code, out)
	require.NoError(t, json.Unmarshal([]byte(out), &rules))
	require.Greater(t, len(rules), 10)
	for _, r := range rules {
		require.True(t, r.InSync, r.Name)
		require.Len(t, r.Pods, 1, r.Name)
	}
	out, code = stdout(t, "subctl", "sdewan", "explain", "http-rule", "--context", sdewanCluster)
	require.Zero(t, code, out)
	require.Contains(t, out, "balance1")

	sdewanPlanned(t)
	eventually(t, 40*time.Second, func() error {
		out, err := sh("subctl", "sdewan", "show", "status", "--context", sdewanCluster)
		if err != nil || !strings.Contains(out, "net1 online") || !strings.Contains(out, " up") {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// What a user with a Role of the page may write: rules of two types, and no others.
func sdewanUser(t *testing.T) {
	applyIn(t, "default", manifest(t, "role.yaml"))
	kubectl(t, sdewanCluster, "create", "rolebinding", "onap", "--role=sdewan-test", "--user=onap", "-n", "default")
	rule := func(name, kind string) string {
		return fmt.Sprintf(
			"apiVersion: batch.sdewan.akraino.org/v1alpha1\nkind: Mwan3Rule\nmetadata: {name: %s, namespace: default, labels: {sdewanPurpose: cnf-1, sdewan-bucket-type: %s}}\n"+
				"spec: {policy: balance1, dest_ip: 192.0.2.99, proto: icmp}\n",
			name,
			kind,
		)
	}
	as := func(text string) (string, error) {
		file := filepath.Join(t.TempDir(), "rule.yaml")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return sh("kubectl", "--context", sdewanCluster, "--as", "onap", "create", "-f", file)
	}
	eventually(t, 10*time.Second, func() error { // RBAC and the cache of the webhooks learn of the binding
		out, err := as(rule("allowed", "app-intent"))
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	out, err := as(rule("refused", "basic"))
	require.Error(t, err, out)
	require.Contains(t, out, "basic")
	out, err = sh("kubectl", "--context", sdewanCluster, "--as", "onap", "-n", "default", "delete", "mwan3rule",
		"http-rule")
	require.Error(t, err, out)
	out, err = sh("kubectl", "--context", sdewanCluster, "-n", "default", "delete", "mwan3policy", "balance1")
	require.Error(t, err, "it is used: %s", out)
	out, err = sh("kubectl", "--context", sdewanCluster, "-n", "default", "create", "deployment", "second", "--image",
		image)
	require.NoError(t, err, out)
	out, err = sh("kubectl", "--context", sdewanCluster, "-n", "default", "label", "deployment", "second",
		"sdewanPurpose=cnf-1")
	require.Error(t, err, "there is a CNF with this label: %s", out)
	kubectl(t, sdewanCluster, "-n", "default", "delete", "deployment", "second", "--now")
}

func sdewanUninstalled(t *testing.T) {
	out, err := sh("subctl", "sdewan", "uninstall", "--context", sdewanCluster, "--yes")
	require.Error(t, err, "there are rules")
	require.Contains(t, out, "--force")
	t.Log(must(t, "subctl", "sdewan", "uninstall", "--context", sdewanCluster, "--yes", "--force"))
	out = kubectl(t, sdewanCluster, "get",
		"crds,clusterroles,clusterrolebindings,validatingwebhookconfigurations,namespaces", "-o", "name")
	for line := range strings.Lines(out) {
		require.NotContains(t, line, "sdewan")
	}
	// The CNF, which still runs, keeps its firewall and its uplinks.
	kubectl(t, sdewanCluster, "rollout", "status", "deployment/edge", "--timeout=30s")
	out, err = onHost("client", "get", "http://192.0.2.80:80/", "--timeout", "5s")
	require.Error(t, err)
	require.Contains(t, out, "refused")
	require.NotEmpty(t, seenAs(t, "client", "http://192.0.2.80:8080/", 1))
	require.Contains(t, inPod(t, "default", "edge", "nft", "list", "ruleset"), "19900")
	out, err = sh("subctl", "sdewan", "show", "rules", "--context", sdewanCluster)
	require.Error(t, err)
	require.Contains(t, out, "not installed")
}

// inPod runs a program in a pod of a Deployment.
func inPod(t *testing.T, namespace, deployment string, args ...string) string {
	t.Helper()
	return kubectl(
		t,
		sdewanCluster,
		append([]string{"-n", namespace, "exec", "deployment/" + deployment, "--"}, args...)...)
}
