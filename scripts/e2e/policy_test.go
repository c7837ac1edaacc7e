//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/internal/measure"
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
			for _, c := range between(cs, pair) {
				if c.CableDriver != driver || c.Status != "connected" {
					return fmt.Errorf("%s: want %s, exit code %d: %+v", pair, driver, code, c)
				}
			}
			if n := len(between(cs, pair)); n != 2 {
				return fmt.Errorf("%s: %d connections, want one from each end: %+v", pair, n, cs)
			}
		}
		return nil
	})
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

// One policy each for the pairs of cluster3; the clusters are told apart by labels
// that kubectl put on their Cluster objects.
func TestD1Policies(t *testing.T) {
	for i, c := range clusters {
		kubectl(t, c, "-n", "submariner-operator", "label", "clusters.submariner.io", c, fmt.Sprintf("site=s%d", i+1), "--overwrite")
	}
	eventually(t, 20*time.Second, func() error {
		for _, c := range clusters {
			if out := kubectl(t, c, "-n", "submariner-operator", "get", "clusters.submariner.io", "-l", "site", "-o", "name"); strings.Count(out, "\n") != len(clusters) {
				return fmt.Errorf("labels known to %s: %s", c, out)
			}
		}
		return nil
	})
	out := must(t, "subctl", "cable-policy", "add", "--context", "cluster1", "--name", "to-three",
		"--left-cluster-selector", "site=s1", "--right-cluster-selector", "site=s3", "--cable-driver", "wireguard")
	require.Contains(t, out, "cluster3", "it says which pairs change")
	must(t, "subctl", "cable-policy", "add", "--context", "cluster2", "--name", "secret",
		"--left-cluster-selector", "site=s3", "--right-cluster-selector", "site=s2", "--cable-driver", "ipsec")
	t.Logf("cabled after %.1f s", cabled(t, wanted).Seconds())
	for _, c := range clusters {
		list := must(t, "subctl", "cable-policy", "list", "--context", c)
		for _, name := range []string{"default", "to-three", "secret"} {
			require.Contains(t, list, name, "known to %s", c)
		}
	}
	require.Contains(t, must(t, "subctl", "cable-policy", "explain", "cluster3", "cluster2", "--context", "cluster1"), "secret")
	t.Log(must(t, "subctl", "show", "connections", "-o", "wide", "--contexts", strings.Join(clusters, ",")))
	for _, a := range clusters {
		for _, b := range clusters {
			if a != b {
				t.Run(a+" to "+b, func(t *testing.T) {
					flows(t, a, b)
					sizes(t, podOn(t, a, "web", worker(t, a)), podOn(t, b, "web", worker(t, b)).ip)
				})
			}
		}
	}
}

// What pods say to each other can be read on the wire where the cable is VXLAN, and
// cannot where it is encrypted.
func TestD2OnTheWire(t *testing.T) {
	for pair, driver := range wanted {
		t.Run(driver, func(t *testing.T) {
			a, b, _ := strings.Cut(pair, " ")
			from, to := podOn(t, a, "web", worker(t, a)), podOn(t, b, "web", worker(t, b))
			file := filepath.Join(t.TempDir(), "wire.pcap")
			cs, _ := connections(t)
			far := "" // only what gateways send each other: within a cluster nothing is encrypted
			for _, c := range between(cs, pair) {
				if c.Cluster == b {
					far = c.RemoteIP
				}
			}
			marker := "marker-of-" + driver
			capture := command(t.Context(), "lab", "exec", gateway(t, b), "--", "timeout", "6", "tcpdump", "-U", "-i", "eth0", "-w", file, "host", far)
			require.NoError(t, capture.Start())
			time.Sleep(2 * time.Second)
			for range 3 {
				_, _ = from.try("get", "http://"+to.ip+":8080/"+marker, "--timeout", "2s")
			}
			_ = capture.Wait() // timeout ends it with a code of its own
			wire, err := os.ReadFile(file)
			require.NoError(t, err)
			require.NotEmpty(t, wire)
			require.Equal(t, driver == "vxlan", strings.Contains(string(wire), marker), "the marker is on the wire")
		})
	}
}

// change has a pair change its cable under a stream of packets, and says what was lost.
func change(t *testing.T, pair, driver string, how ...string) (lost, time.Duration) {
	t.Helper()
	a, b, _ := strings.Cut(pair, " ")
	from, to := podOn(t, a, "web", worker(t, a)), podOn(t, b, "web", worker(t, b))
	s := startStream(t, from, to.ip, 25)
	time.Sleep(2 * time.Second)
	start := time.Now()
	must(t, how...)
	cabled(t, map[string]string{pair: driver})
	took := time.Since(start)
	return s.wait(t), took
}

// A policy moves a pair to another cable, and deleting it moves it back: no packet is
// lost either way, and no other pair notices.
func TestD3ChangeUnderTraffic(t *testing.T) {
	other := startStream(t, podOn(t, "cluster2", "web", worker(t, "cluster2")), podOn(t, "cluster3", "web", worker(t, "cluster3")).ip, 60)
	l, took := change(t, "cluster1 cluster2", "wireguard", "subctl", "cable-policy", "add", "--context", "cluster1", "--name", "one-two",
		"--left-cluster-selector", "site=s1", "--right-cluster-selector", "site=s2", "--cable-driver", "wireguard")
	back, tookBack := change(t, "cluster1 cluster2", "vxlan", "subctl", "cable-policy", "delete", "--context", "cluster1", "--name", "one-two")
	measure.Record(t,
		measure.AtMost("policy change: all affected cables in use after", max(took, tookBack).Seconds(), 3, "s"),
		measure.AtMost("pair changes its cable: packets lost, of 100 a second", float64(l.Sent-l.Received+back.Sent-back.Received), 0, "packets"),
	)
	const busy = 3 // packets that a machine with as many clusters as CPUs may lose by itself
	require.LessOrEqual(t, l.Sent-l.Received, busy)
	require.LessOrEqual(t, back.Sent-back.Received, busy)
	o := other.wait(t)
	require.LessOrEqual(t, o.Sent-o.Received, busy, "another pair")
}

// A policy's settings are a change of the cable too: a pair gets a VNI of its own.
func TestD3SettingsUnderTraffic(t *testing.T) {
	const pair = "cluster1 cluster2"
	decided := func(policy string) {
		eventually(t, 30*time.Second, func() error {
			cs, _ := connections(t)
			for _, c := range between(cs, pair) {
				if c.Policy != policy || c.Status != "connected" {
					return fmt.Errorf("want policy %s: %+v", policy, c)
				}
			}
			return nil
		})
	}
	s := startStream(t, podOn(t, "cluster1", "web", worker(t, "cluster1")), podOn(t, "cluster2", "web", worker(t, "cluster2")).ip, 30)
	kubectl(t, "cluster1", "-n", "submariner-operator", "create", "configmap", "own-vni", "--from-literal=CableCustomConfig=vxlanID: 2000")
	must(t, "subctl", "cable-policy", "add", "--context", "cluster1", "--name", "own-vni", "--cable-config", "own-vni",
		"--left-cluster-selector", "site=s1", "--right-cluster-selector", "site=s2", "--cable-driver", "vxlan")
	decided("own-vni")
	require.Contains(t, holdings(gateway(t, "cluster1")), "subvx-2000")
	must(t, "subctl", "cable-policy", "delete", "--context", "cluster1", "--name", "own-vni")
	kubectl(t, "cluster1", "-n", "submariner-operator", "delete", "configmap", "own-vni")
	decided("default")
	l := s.wait(t)
	require.LessOrEqual(t, l.Sent-l.Received, 3)
	eventually(t, 30*time.Second, func() error {
		if h := holdings(gateway(t, "cluster1")); strings.Contains(h, "subvx-2000") {
			return fmt.Errorf("the old device is still there: %s", h)
		}
		return nil
	})
}

// Agents, charon and wireguard-go die under traffic: it comes back.
func TestD4KilledUnderTraffic(t *testing.T) {
	for _, c := range []struct{ pair, victim string }{
		{"cluster1 cluster3", "wireguard-go"}, {"cluster2 cluster3", "charon-systemd"}, {"cluster1 cluster3", "subctl"}, {"cluster2 cluster3", "subctl"},
	} {
		t.Run(c.victim+" "+c.pair, func(t *testing.T) {
			a, b, _ := strings.Cut(c.pair, " ")
			s := startStream(t, podOn(t, a, "web", worker(t, a)), podOn(t, b, "web", worker(t, b)).ip, 30)
			time.Sleep(2 * time.Second)
			on(t, gateway(t, b), "pkill -9 -x "+c.victim)
			l := s.wait(t)
			require.Less(t, l.LongestGapMs, 25000.0, "traffic again; what was killed before is started with a delay")
			cabled(t, wanted)
		})
	}
}

// The cluster key is replaced under traffic.
func TestD5RotateKey(t *testing.T) {
	key := func() string {
		return kubectl(t, "cluster2", "-n", "submariner-operator", "get", "clusters.submariner.io", "cluster3", "-o", "jsonpath={.spec.public_key}")
	}
	old := key()
	streams := map[string]*stream{}
	for _, a := range []string{"cluster1", "cluster2"} {
		streams[a] = startStream(t, podOn(t, a, "web", worker(t, a)), podOn(t, "cluster3", "web", worker(t, "cluster3")).ip, 120)
	}
	t.Log(must(t, "subctl", "rotate-key", "--context", "cluster3"))
	eventually(t, time.Minute, func() error {
		if key() == old {
			return fmt.Errorf("cluster2 still knows the old key")
		}
		return nil
	})
	for a, s := range streams {
		l := s.wait(t)
		require.LessOrEqual(t, l.Sent-l.Received, 10, "%s to cluster3", a)
	}
	cabled(t, wanted)
}

// A cluster with another pre-shared key is not connected, and says with whom.
func TestD6WrongPSK(t *testing.T) {
	psk := kubectl(t, "cluster3", "-n", "submariner-operator", "get", "secret", "submariner-ipsec-psk", "-o", "jsonpath={.data.psk}")
	set := func(value string) {
		kubectl(t, "cluster3", "-n", "submariner-operator", "patch", "secret", "submariner-ipsec-psk", "--type=merge", "-p", fmt.Sprintf(`{"data":{"psk":%q}}`, value))
		// Mounted files follow within a minute or so; a new pod has them at once.
		kubectl(t, "cluster3", "-n", "submariner-operator", "delete", "pod", "-l", "app=submariner-gateway", "--wait")
		kubectl(t, "cluster3", "-n", "submariner-operator", "rollout", "status", "daemonset/submariner-gateway", "--timeout=60s")
	}
	set(strings.Repeat("QUJD", 16))
	eventually(t, time.Minute, func() error {
		cs, code := connections(t)
		for _, pair := range []string{"cluster1 cluster3", "cluster2 cluster3"} {
			for _, c := range between(cs, pair) {
				if c.Status == "connected" || c.Cluster == "cluster3" && !strings.Contains(c.StatusMessage, " key") {
					return fmt.Errorf("%+v", c)
				}
			}
		}
		for _, c := range between(cs, "cluster2 cluster3") {
			if c.Cluster == "cluster3" && !strings.Contains(c.StatusMessage, "pair key") {
				return fmt.Errorf("%+v", c)
			}
		}
		if code != 3 {
			return fmt.Errorf("exit code %d", code)
		}
		return nil
	})
	cs, _ := connections(t)
	for _, c := range append(between(cs, "cluster2 cluster3"), between(cs, "cluster1 cluster3")...) {
		t.Logf("%s to %s: %s: %s", c.Cluster, c.RemoteCluster, c.Status, c.StatusMessage)
	}
	set(psk)
	cabled(t, wanted)
}

// Mistakes are told of, all at once, and change nothing.
func TestD7Mistakes(t *testing.T) {
	before := must(t, "subctl", "cable-policy", "list", "--context", "cluster1", "-o", "json")
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"--name", "Bad_Name", "--cable-driver", "gre", "--left-cluster-selector", "a in (b"}, []string{"Bad_Name", "gre", "wireguard", "selector"}},
		{[]string{"--cable-driver", "vxlan"}, []string{"--name"}},
		{[]string{"--name", "secret", "--cable-driver", "vxlan"}, []string{"secret", "cluster2"}},
		{[]string{"--name", "n", "--cable-driver", "vxlan", "--cable-config", "nowhere"}, []string{"nowhere"}},
	} {
		out, err := sh(append([]string{"subctl", "cable-policy", "add", "--context", "cluster1"}, c.args...)...)
		require.Error(t, err, out)
		for _, w := range c.want {
			require.Contains(t, out, w)
		}
		require.NotContains(t, out, "panic")
		t.Log(out)
	}
	require.Equal(t, before, must(t, "subctl", "cable-policy", "list", "--context", "cluster1", "-o", "json"))
}

// The gateway of cluster3 gets behind a router that translates what leaves: encrypted
// cables find their way, and the outside sees that they do.
func TestD8AddressTranslation(t *testing.T) {
	must(t, "lab", "nat", "cluster3")
	defer must(t, "lab", "nat", "cluster3", "--off")
	took := eventually(t, 4*time.Minute, func() error {
		cs, _ := connections(t)
		for _, pair := range []string{"cluster1 cluster3", "cluster2 cluster3"} {
			for _, c := range between(cs, pair) {
				if !c.NAT || c.Status != "connected" || c.CableDriver != wanted[pair] {
					return fmt.Errorf("%s: %+v", pair, c)
				}
			}
		}
		return nil
	})
	t.Logf("connected through a translation after %.1f s", took.Seconds())
	t.Log(must(t, "subctl", "show", "connections", "-o", "wide", "--contexts", "cluster1,cluster3"))
	flows(t, "cluster1", "cluster3")
	flows(t, "cluster3", "cluster2")
}

// Without policies everything is as it was.
func TestD9DeletePolicies(t *testing.T) {
	out, err := sh("subctl", "cable-policy", "delete", "--context", "cluster1", "--name", "secret")
	require.Error(t, err, "it is cluster2's: %s", out)
	require.Contains(t, must(t, "subctl", "cable-policy", "delete", "--context", "cluster2", "--name", "secret"), "vxlan", "it says what decides then")
	must(t, "subctl", "cable-policy", "delete", "--context", "cluster1", "--name", "to-three")
	cabled(t, map[string]string{"cluster1 cluster2": "vxlan", "cluster1 cluster3": "vxlan", "cluster2 cluster3": "vxlan"})
	connected(t)
}
