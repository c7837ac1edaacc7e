//go:build e2e

// Package e2e proves subctl in the lab: real clusters, real pods, real traffic.
// Every test leaves the clusters joined and working, so that they can run in any
// number; they run in the order of the files.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	root       string // of the module
	clusters   = []string{"cluster1", "cluster2", "cluster3"}
	image      = os.Getenv("IMAGE")
	pristine   = map[string]string{} // what each node's kernel held before anything was joined
	brokerFile string
)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "the end-to-end tests need root: network namespaces, mounts and cgroups")
		if os.Getenv("SUBCTL_REQUIRE_ROOT") == "1" {
			return 1
		}
		return 0
	}
	var err error
	if root, err = filepath.Abs("../.."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	tmp, err := os.MkdirTemp("", "subctl-e2e")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(tmp)
	brokerFile = filepath.Join(tmp, "broker-info.subm")
	steps := append(labUp(), []string{"lab", "load-image", filepath.Join(root, "dist/subctl.tar")})
	if os.Getenv("E2E_KEEP") == "" { // set while working on one test: uses the lab that is up, and leaves it
		defer sh("lab", "down")
		steps = append([][]string{{"lab", "down"}}, steps...)
	} else {
		brokerFile = filepath.Join(root, "kubeconfigs", "broker-info.subm") // of make demo
	}
	for _, step := range steps {
		if out, err := sh(step...); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n%s\n", strings.Join(step, " "), err, out)
			return 1
		}
	}
	for _, c := range clusters {
		for _, n := range nodes(c) {
			if pristine[n], err = readHoldings(n); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		}
	}
	return m.Run()
}

// nodesEach is the number of nodes of each cluster.
var nodesEach = 2

func nodes(cluster string) (out []string) {
	for n := range nodesEach {
		out = append(out, fmt.Sprintf("%s-node%d", cluster, n+1))
	}
	return out
}

// sh runs one of our programs: lab, subctl or kubectl. It returns the output to both
// streams.
func sh(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := command(ctx, args...)
	var out bytes.Buffer
	cmd.Stdout = &out
	cmd.Stderr = &out
	err := cmd.Run()
	return out.String(), err
}

func command(ctx context.Context, args ...string) *exec.Cmd {
	path := filepath.Join(root, "scripts/lab/bin", args[0])
	if args[0] == "subctl" {
		path = filepath.Join(root, "bin/subctl")
	}
	cmd := exec.CommandContext(ctx, path, args[1:]...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(root, "kubeconfigs/lab.yaml"))
	return cmd
}

// long reports whether all tests are to run, also those that take minutes.
var long = os.Getenv("E2E_LONG") != ""

// takesLong skips a test that takes minutes, unless all tests are to run: "make test" has to end
// within an hour, also on a slow machine.
func takesLong(t *testing.T) {
	t.Helper()
	if !long {
		t.Skip("E2E_LONG is not set: make e2e-long runs this test")
	}
}

// must is sh for a command that must succeed.
func must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := sh(args...)
	require.NoError(t, err, "%s\n%s", strings.Join(args, " "), out)
	return out
}

// stdout runs a program and returns its output to stdout, and its exit code.
func stdout(t *testing.T, args ...string) (string, int) {
	t.Helper()
	cmd := command(t.Context(), args...)
	var out, errs bytes.Buffer
	cmd.Stdout = &out
	cmd.Stderr = &errs
	err := cmd.Run()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	if errs.Len() > 0 {
		t.Log(errs.String())
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// on runs a shell command on a node.
func on(t *testing.T, node, script string) string {
	t.Helper()
	return must(t, "lab", "exec", node, "--", "sh", "-c", script)
}

// kubectl runs kubectl on a cluster.
func kubectl(t *testing.T, cluster string, args ...string) string {
	t.Helper()
	return must(t, append([]string{"kubectl", "--context", cluster}, args...)...)
}

// nodeIP is a node's address.
func nodeIP(t *testing.T, node string) string {
	t.Helper()
	cluster, _, _ := strings.Cut(node, "-")
	return kubectl(t, cluster, "get", "node", node, "-o",
		`jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`)
}

func apply(t *testing.T, cluster, manifest string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "objects.yaml")
	require.NoError(t, os.WriteFile(file, []byte(manifest), 0o600))
	kubectl(t, cluster, "apply", "-f", file)
}

// connection is a row of "subctl show connections -o json".
type connection struct {
	Cluster, Gateway, RemoteCluster, RemoteGateway, RemoteIP string
	CableDriver, DesiredDriver, Policy                       string
	Status, StatusMessage, RTTAverage                        string
	Implementation                                           string
	NAT                                                      bool
	MTU                                                      int
	Subnets, Attempts                                        []string
	Member                                                   *bool
	MemberReason                                             string
}

func connections(t *testing.T) ([]connection, int) {
	t.Helper()
	cmd := command(context.Background(), "subctl", "show", "connections", "-o", "json", "--contexts",
		strings.Join(clusters, ","))
	out, _ := cmd.Output() // 3 is an exit code to look at
	var cs []connection
	require.NoError(t, json.Unmarshal(out, &cs), "%s", out)
	return cs, cmd.ProcessState.ExitCode()
}

// connected waits until every cluster is connected to every other.
func connected(t *testing.T) {
	t.Helper()
	eventually(t, time.Minute, func() error {
		cs, code := connections(t)
		if want := len(clusters) * (len(clusters) - 1); len(cs) != want || code != 0 {
			return fmt.Errorf("want %d connections, exit code %d: %+v", want, code, cs)
		}
		return nil
	})
}

// slack is how many times as long as on an idle machine anything may take.
const slack = 4

// eventually tries until it works. On an idle machine that takes no longer than within.
func eventually(t *testing.T, within time.Duration, try func() error) time.Duration {
	t.Helper()
	start := time.Now()
	for {
		err := try()
		if err == nil {
			return time.Since(start)
		}
		if time.Since(start) > slack*within {
			t.Fatalf("not within %v: %v", slack*within, err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// holdings returns what a node's kernel holds, except what belongs to pods and to
// kube-proxy, which comes and goes.
func holdings(t *testing.T, node string) string {
	t.Helper()
	out, err := readHoldings(node)
	require.NoError(t, err)
	return out
}

func readHoldings(node string) (string, error) {
	out, err := sh("lab", "exec", node, "--", "sh", "-c", `
		ip -br link | grep -v ^veth | sed 's/[@ ].*//' # names: a booted node has other indexes and MAC addresses
		ip -4 rule; ip nexthop; ip -4 route show table all | grep -v veth
		iptables-save 2>/dev/null | grep ^-A | grep -viE 'kube|CNI-' | sort
		nft list tables 2>/dev/null | grep submariner; ipset list -n 2>/dev/null; ipset list 2>/dev/null | grep -A99 Members; true`)
	if err != nil {
		return "", fmt.Errorf("reading what %s holds: %w: %s", node, err, out)
	}
	return out, nil
}
