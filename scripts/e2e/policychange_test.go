//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/internal/measure"
)

// removed waits until a node does not have a device any more: the one of an old cable, which is
// kept up for a while.
func removed(t *testing.T, node, device string) {
	t.Helper()
	eventually(t, 30*time.Second, func() error {
		if out, err := sh("lab", "exec", node, "--", "ip", "link", "show", device); err == nil ||
			!strings.Contains(out, "does not exist") {
			return fmt.Errorf("device %s of %s: %w: %s", device, node, err, out)
		}
		return nil
	})
}

// policyFor is the command that makes a policy for a pair of clusters. It has more
// requirements than those of TestD1.
func policyFor(pair, name, driver string, more ...string) []string {
	a, b, _ := strings.Cut(pair, " ")
	return append([]string{
		"subctl",
		"cable-policy",
		"add",
		"--wait=false",
		"--context",
		"cluster1",
		"--name",
		name,
		"--cable-driver",
		driver,
		"--left-cluster-selector",
		"submariner-io/clusterID=" + a,
		"--right-cluster-selector",
		"submariner-io/clusterID=" + b + ",site",
	}, more...)
}

// passing sees to it that a policy that a test makes on cluster1 does not outlive it.
func passing(t *testing.T, name string) {
	t.Cleanup(func() {
		// it fails where the test has deleted it
		_, _ = sh("subctl", "cable-policy", "delete", "--context", "cluster1", "--force", "--name", name)
		cabled(t, wanted)
	})
}

// change has a pair change its cable. It returns the time from the command's end until both
// ends use the new one.
func change(t *testing.T, pair, driver string, how ...string) time.Duration {
	t.Helper()
	must(t, how...)
	took := cabled(t, map[string]string{pair: driver})
	time.Sleep(3 * time.Second) // the old cable goes
	return took
}

// A policy moves a pair to another cable, and deleting it moves it back: no packet is
// lost either way, and no other pair notices: no keys are negotiated but for the new cable.
func TestChangeUnderTraffic(t *testing.T) {
	const pair = "cluster1 cluster2"
	passing(t, "one-two")
	var took time.Duration
	packets := lossless(t, 2, func() map[string]lost {
		// else the pair goes back to the cable of the run before, with its keys
		removed(t, gateway(t, "cluster2"), "submariner")
		began := time.Now()
		all := startStreams(t, slices.Collect(maps.Keys(wanted))...)
		others := startCapture(t, gateway(t, "cluster3"), "("+handshakes+") or ("+exchanges+")")
		// tcpdump loses packets if there are many
		own := startCapture(t, gateway(t, "cluster1"), "host "+nodeIP(t, gateway(t, "cluster2"))+" and "+handshakes)
		took = max(took, change(t, pair, "wireguard", policyFor(pair, "one-two", "wireguard")...))
		took = max(
			took,
			change(t, pair, "vxlan", "subctl", "cable-policy", "delete", "--context", "cluster1", "--force", "--name",
				"one-two"),
		)
		others.stop(t)
		own.stop(t)
		lost := all.stop(t)
		// WireGuard's keys are renewed every two minutes: a message there, one back, and the same
		// again if the answer takes long.
		regular := 4 * (1 + int(time.Since(began)/(2*time.Minute)))
		seen := others.packets(t, handshakes)
		require.LessOrEqual(t, len(seen), regular, "handshakes of other pairs:\n%s", strings.Join(seen, "\n"))
		require.Empty(t, others.packets(t, exchanges), "negotiations of other pairs")
		require.GreaterOrEqual(t, len(own.packets(t, handshakes)), 2, "the pair's own handshake is seen")
		return lost
	})
	measure.Record(
		t,
		measure.AtMost("policy change: all affected cables in use after", measure.Values{took.Seconds()}, 3, "s"),
		measure.AtMost("pair changes its cable: packets lost, of 100 a second", measure.Values{float64(packets)}, 0,
			"packets"),
	)
}

// A policy's settings are a change of the cable too: a pair gets a VNI of its own.
func TestSettingsUnderTraffic(t *testing.T) {
	takesLong(t)
	const pair = "cluster1 cluster2"
	kubectl(t, "cluster1", "-n", "submariner-operator", "create", "configmap", "own-vni",
		"--from-literal=CableCustomConfig=vxlanID: 2000")
	defer kubectl(t, "cluster1", "-n", "submariner-operator", "delete", "configmap", "own-vni")
	passing(t, "own-vni")
	lossless(t, 3, func() map[string]lost {
		all := startStreams(t, pair)
		must(t, policyFor(pair, "own-vni", "vxlan", "--cable-config", "own-vni")...)
		decided(t, pair, "own-vni")
		require.Contains(t, holdings(t, gateway(t, "cluster1")), "subvx-2000")
		must(t, "subctl", "cable-policy", "delete", "--context", "cluster1", "--force", "--name", "own-vni")
		decided(t, pair, "default")
		removed(t, gateway(t, "cluster1"), "subvx-2000")
		return all.stop(t)
	})
}

// decided waits until a policy has decided, and the pair is connected.
func decided(t *testing.T, pair, policy string) {
	t.Helper()
	eventually(t, 30*time.Second, func() error {
		cs, _ := connections(t)
		if err := each(cs, pair, func(c connection) bool {
			return c.Policy == policy && c.Status == "connected"
		}); err != nil {
			return fmt.Errorf("want policy %s: %w", policy, err)
		}
		return nil
	})
}

// The ConfigMap that an IPsec policy names changes: the pair negotiates anew, with a cipher
// that it did not use before, and is not interrupted.
func TestIPsecSettingsUnderTraffic(t *testing.T) {
	takesLong(t)
	const pair = "cluster2 cluster3"
	config := func(yaml string) {
		apply(
			t,
			"cluster1",
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ciphers, namespace: submariner-operator}\ndata: {CableCustomConfig: \""+
				yaml+"\"}\n",
		)
	}
	ciphers := func(node string) string {
		return on(t, node,
			`p=$(pgrep -x charon-systemd); swanctl --list-sas --uri unix://$(find /proc/$p/root/run/subctl -name charon.vici)`)
	}
	config("espLifetime: 50m")
	defer kubectl(t, "cluster1", "-n", "submariner-operator", "delete", "configmap", "ciphers")
	passing(t, "ciphers")
	must(t, policyFor(pair, "ciphers", "ipsec", "--cable-config", "ciphers")...)
	decided(t, pair, "ciphers")
	keySize := "128" // of the default
	worst := worstOf(t, 1, func() map[string]lost {
		keySize = map[string]string{"128": "256", "256": "128"}[keySize]
		all := startStreams(t, pair)
		config("espProposals: aes" + keySize + "gcm16-x25519")
		for _, c := range []string{"cluster2", "cluster3"} {
			eventually(t, 30*time.Second, func() error {
				if said := ciphers(gateway(t, c)); !strings.Contains(said, "ESP:AES_GCM_16-"+keySize) {
					return fmt.Errorf("%s: %s", c, said)
				}
				return nil
			})
		}
		cabled(t, wanted)
		time.Sleep(5 * time.Second) // the old keys go
		return all.stop(t)
	})
	require.LessOrEqual(t, worst, moments, "packets lost")
}

// VXLAN inside WireGuard carries packets of every size, and nothing that can be read.
func TestCombinedCables(t *testing.T) {
	takesLong(t)
	const pair = "cluster1 cluster2"
	passing(t, "one-two")
	lossless(t, 1, func() map[string]lost {
		all := startStreams(t, pair)
		change(t, pair, "vxlan+wireguard", policyFor(pair, "one-two", "vxlan+wireguard")...)
		from, to := workersOf(t, pair)
		sizes(t, from, to.ip)
		sizes(t, to, from.ip)
		flows(t, "cluster2", "cluster1")
		onTheWire(t, pair, "vxlan+wireguard")
		change(t, pair, "vxlan", "subctl", "cable-policy", "delete", "--context", "cluster1", "--force", "--name",
			"one-two")
		return all.stop(t)
	})
}

// The cluster key is replaced under traffic: no pair is interrupted.
func TestRotateKey(t *testing.T) {
	takesLong(t)
	key := func() string {
		return kubectl(t, "cluster2", "-n", "submariner-operator", "get", "clusters.submariner.io", "cluster3", "-o",
			"jsonpath={.spec.public_key}")
	}
	worst := worstOf(t, 1, func() map[string]lost {
		old := key()
		all := startStreams(t, "cluster1 cluster3", "cluster2 cluster3")
		t.Log(must(t, "subctl", "rotate-key", "--context", "cluster3"))
		eventually(t, time.Minute, func() error {
			if key() == old {
				return fmt.Errorf("cluster2 still knows the old key")
			}
			return nil
		})
		cabled(t, wanted)
		time.Sleep(5 * time.Second) // connections under the old key go
		return all.stop(t)
	})
	require.LessOrEqual(t, worst, moments, "packets lost")
	cabled(t, wanted)
}

// A cluster with another pre-shared key is not connected, and says with whom.
func TestWrongPSK(t *testing.T) {
	psk := kubectl(t, "cluster3", "-n", "submariner-operator", "get", "secret", "submariner-ipsec-psk", "-o",
		"jsonpath={.data.psk}")
	set := func(value string) {
		kubectl(t, "cluster3", "-n", "submariner-operator", "patch", "secret", "submariner-ipsec-psk", "--type=merge",
			"-p", fmt.Sprintf(`{"data":{"psk":%q}}`, value))
		// Mounted files follow within a minute or so; a new pod has them at once.
		kubectl(t, "cluster3", "-n", "submariner-operator", "delete", "pod", "-l", "app=submariner-gateway", "--wait")
		kubectl(t, "cluster3", "-n", "submariner-operator", "rollout", "status", "daemonset/submariner-gateway",
			"--timeout=300s")
	}
	set(strings.Repeat("QUJD", 16))
	eventually(t, time.Minute, func() error {
		cs, code := connections(t)
		for pair, reason := range map[string]string{"cluster1 cluster3": " key", "cluster2 cluster3": "pair key"} {
			if err := each(cs, pair, func(c connection) bool {
				return c.Status != "connected" && (c.Cluster != "cluster3" || strings.Contains(c.StatusMessage, reason))
			}); err != nil {
				return fmt.Errorf("%s: %w", pair, err)
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
