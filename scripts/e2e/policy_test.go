//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// wanted is what TestD1 makes: 1–2 stays with the default, 1–3 gets WireGuard,
// 2–3 IPsec.
var wanted = map[string]string{
	"cluster1 cluster2": "vxlan", "cluster1 cluster3": "wireguard", "cluster2 cluster3": "ipsec",
}

// cabled waits until every pair of the first three clusters is connected by the
// driver that is wanted, seen from both ends, and returns how long that took.
func cabled(t *testing.T, want map[string]string) time.Duration {
	t.Helper()
	return eventually(t, 30*time.Second, func() error {
		cs, code := connections(t)
		for pair, driver := range want {
			if err := each(cs, pair, func(c connection) bool {
				return c.CableDriver == driver && c.Status == "connected"
			}); err != nil {
				return fmt.Errorf("%s: want %s, exit code %d: %w", pair, driver, code, err)
			}
		}
		return nil
	})
}

// each returns an error unless a pair has two connections, one from each end, and both are
// as wanted.
func each(cs []connection, pair string, wanted func(connection) bool) error {
	both := between(cs, pair)
	if len(both) != 2 {
		return fmt.Errorf("%d connections, want one from each end: %+v", len(both), cs)
	}
	for _, c := range both {
		if !wanted(c) {
			return fmt.Errorf("%+v", c)
		}
	}
	return nil
}

// between returns the connections of a pair, from either end.
func between(cs []connection, pair string) (out []connection) {
	a, b, _ := strings.Cut(pair, " ")
	for _, c := range cs {
		if c.Cluster == a && c.RemoteCluster == b || c.Cluster == b && c.RemoteCluster == a {
			out = append(out, c)
		}
	}
	return out
}

// engines are what handles the packets of each driver on this machine: the kernel, where it
// can.
func engines(t *testing.T) map[string]string {
	t.Helper()
	node := gateway(t, "cluster3")
	has := func(script string) bool {
		_, err := sh("lab", "exec", node, "--", "sh", "-c", script)
		return err == nil
	}
	e := map[string]string{"vxlan": "kernel", "wireguard": "kernel", "ipsec": "kernel"}
	if !has("ip link add probe type wireguard && ip link del probe") {
		e["wireguard"] = "wireguard-go"
		require.True(t, has("pgrep -x wireguard-go"), "it runs")
	}
	if !has("ip xfrm state count && ip link add probe type xfrm dev lo if_id 1 && ip link del probe") {
		e["ipsec"] = "kernel-libipsec" // ESP in charon itself
	}
	require.True(t, has("pgrep -x charon-systemd"), "it runs")
	return e
}

// One policy each for the pairs of cluster3; the clusters are told apart by labels
// that kubectl put on their Cluster objects.
func TestPolicies(t *testing.T) {
	for i, c := range clusters {
		kubectl(t, c, "-n", "submariner-operator", "label", "clusters.submariner.io", c, fmt.Sprintf("site=s%d", i+1),
			"--overwrite")
	}
	eventually(t, 20*time.Second, func() error {
		for _, c := range clusters {
			if out := kubectl(t, c, "-n", "submariner-operator", "get", "clusters.submariner.io", "-l", "site", "-o",
				"name"); strings.Count(out, "\n") != len(clusters) {
				return fmt.Errorf("labels known to %s: %s", c, out)
			}
		}
		return nil
	})
	out := must(t, "subctl", "cable-policy", "add", "--wait=false", "--context", "cluster1", "--name", "to-three",
		"--left-cluster-selector", "site=s1", "--right-cluster-selector", "site=s3", "--cable-driver", "wireguard")
	require.Contains(t, out, "cluster3", "it says which pairs change")
	must(t, "subctl", "cable-policy", "add", "--wait=false", "--context", "cluster2", "--name", "secret",
		"--left-cluster-selector", "site=s3", "--right-cluster-selector", "site=s2", "--cable-driver", "ipsec")
	t.Logf("cabled after %.1f s", cabled(t, wanted).Seconds())
	for _, c := range clusters {
		list := must(t, "subctl", "cable-policy", "list", "--context", c)
		for _, name := range []string{"default", "to-three", "secret"} {
			require.Contains(t, list, name, "known to %s", c)
		}
	}
	require.Contains(t, must(t, "subctl", "cable-policy", "explain", "cluster3", "cluster2", "--context", "cluster1"),
		"secret")
	t.Log(must(t, "subctl", "show", "connections", "-o", "wide", "--contexts", strings.Join(clusters, ",")))
	cs, _ := connections(t)
	for _, c := range cs {
		require.Equal(t, engines(t)[c.CableDriver], c.Implementation, "what handles packets of %s between %s and %s",
			c.CableDriver, c.Cluster, c.RemoteCluster)
	}
	for _, a := range clusters {
		for _, b := range clusters {
			if a != b {
				t.Run(a+" to "+b, func(t *testing.T) {
					flows(t, a, b)
					if a < b { // what is sent comes back
						sizes(t, podOn(t, a, "web", worker(t, a)), podOn(t, b, "web", worker(t, b)).ip)
					}
				})
			}
		}
	}
}

// What pods say to each other can be read on the wire where the cable is VXLAN, and
// cannot where it is encrypted.
func TestOnTheWire(t *testing.T) {
	for pair, driver := range wanted {
		t.Run(driver, func(t *testing.T) { onTheWire(t, pair, driver) })
	}
}

// onTheWire sends a marker from pod to pod, looks for it in what the gateways send each
// other, and finds it where nothing is encrypted only.
func onTheWire(t *testing.T, pair, driver string) {
	t.Helper()
	from, to := workersOf(t, pair)
	cs, _ := connections(t)
	far := ""
	for _, c := range between(cs, pair) {
		if c.Cluster == to.cluster {
			far = c.RemoteIP
		}
	}
	marker := "marker-of-" + driver
	c := startCapture(t, gateway(t, to.cluster), "host "+far)
	for range 3 {
		from.exec(t, "get", "http://"+to.ip+":8080/"+marker, "--timeout", "15s")
	}
	c.stop(t)
	// Three requests and three answers, whatever else there is.
	require.GreaterOrEqual(t, len(c.packets(t, carriers[driver])), 6, "packets of the cable are in the capture")
	wire, err := os.ReadFile(c.file)
	require.NoError(t, err)
	require.Equal(t, driver == "vxlan", strings.Contains(string(wire), marker), "the marker is on the wire")
}

// Mistakes are told of, all at once, and change nothing.
func TestMistakes(t *testing.T) {
	before := must(t, "subctl", "cable-policy", "list", "--context", "cluster1", "-o", "json")
	for _, c := range []struct {
		args []string
		want []string
	}{
		{
			[]string{"--name", "Bad_Name", "--cable-driver", "gre", "--left-cluster-selector", "a in (b"},
			[]string{"Bad_Name", "gre", "wireguard", "selector"},
		},
		{[]string{"--cable-driver", "vxlan"}, []string{"the name of the policy is missing"}},
		{[]string{"--name", "to-three", "--cable-driver", "vxlan"}, []string{"to-three", "--replace"}},
		{[]string{"--name", "n", "--cable-driver", "vxlan", "--cable-config", "nowhere"}, []string{"nowhere"}},
	} {
		out, err := sh(append([]string{"subctl", "cable-policy", "add", "--wait=false", "--context", "cluster1"},
			c.args...)...)
		require.Error(t, err, out)
		for _, w := range c.want {
			require.Contains(t, out, w)
		}
		require.NotContains(t, out, "panic")
		t.Log(out)
	}
	require.Equal(t, before, must(t, "subctl", "cable-policy", "list", "--context", "cluster1", "-o", "json"))
}

// A cluster that joins again with settings that take cables from its pairs is not changed without
// --force, and the pairs are named. A dry run finds trouble.
func TestJoinAsksFirst(t *testing.T) {
	spec := func() string {
		return kubectl(t, "cluster3", "-n", "submariner-operator", "get", "submariner", "submariner", "-o",
			"jsonpath={.spec}")
	}
	before := spec()
	join := []string{
		"subctl", "join", brokerFile, "--context", "cluster3", "--image", image, "--cable-driver", "vxlan",
		"--cable-drivers", "vxlan",
	}
	for code, args := range map[int][]string{1: join, 3: append(slices.Clone(join), "--dry-run")} {
		out, err := sh(args...)
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit, out)
		require.Equal(t, code, exit.ExitCode(), out)
		require.Contains(t, out, "2 pairs of clusters would have no cable:")
		require.Regexp(t, `cluster1 - cluster3: wireguard \(.*\) → none: `, out)
		require.Regexp(t, `cluster2 - cluster3: ipsec \(.*\) → none: `, out)
		require.Equal(t, before, spec())
	}
	cabled(t, wanted)
}

// A policy asks for what one of the two clusters does not offer: the pair is not connected,
// and both ends say why.
func TestNotOffered(t *testing.T) {
	offer := func(drivers string) {
		kubectl(t, "cluster3", "-n", "submariner-operator", "patch", "submariner", "submariner", "--type=merge", "-p",
			`{"spec":{"cableDrivers":`+drivers+`}}`)
	}
	before := kubectl(t, "cluster3", "-n", "submariner-operator", "get", "submariner", "submariner", "-o",
		"jsonpath={.spec.cableDrivers}")
	if before == "" {
		before = "null"
	}
	t.Cleanup(func() {
		offer(before)
		cabled(t, wanted)
	})
	offer(`["vxlan","wireguard"]`)
	const reason = "cluster cluster3 does not offer ipsec"
	eventually(t, 30*time.Second, func() error {
		cs, code := connections(t)
		if code != 3 {
			return fmt.Errorf("exit code %d: %+v", code, cs)
		}
		return each(cs, "cluster2 cluster3",
			func(c connection) bool { return c.Status == "error" && strings.Contains(c.StatusMessage, reason) })
	})
	for _, c := range []string{"cluster2", "cluster3"} {
		out, err := sh("subctl", "show", "connections", "--context", c)
		require.Error(t, err)
		require.Contains(t, out, reason, "it is said without being asked for")
	}
	out, err := sh("subctl", "cable-policy", "explain", "cluster2", "cluster3", "--context", "cluster1")
	require.Error(t, err)
	require.Contains(t, out, reason)
}
