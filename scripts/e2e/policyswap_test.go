//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A pair goes from VXLAN to IPsec and back under traffic: packets of every size pass, and while
// the cable is IPsec nothing can be read. No packet is lost.
func TestIPsecUnderTraffic(t *testing.T) {
	takesLong(t)
	const pair = "cluster1 cluster2"
	passing(t, "one-two")
	lossless(t, 1, func() map[string]lost {
		all := startStreams(t, pair, "cluster1 cluster3")
		change(t, pair, "ipsec", policyFor(pair, "one-two", "ipsec")...)
		from, to := workersOf(t, pair)
		sizes(t, from, to.ip)
		onTheWire(t, pair, "ipsec")
		change(t, pair, "vxlan", "subctl", "cable-policy", "delete", "one-two", "--context", "cluster1", "--force")
		return all.stop(t)
	})
}

// The cluster's own ConfigMap sets the MTU of its IPsec cables, and changes it, under traffic:
// no packet is lost, and what passes is no larger. A mistake in it is reported, and the
// settings before stay in force.
func TestOwnConfigMap(t *testing.T) {
	takesLong(t)
	const pair = "cluster2 cluster3"
	config := func(yaml string) {
		apply(
			t,
			"cluster2",
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: own, namespace: submariner-operator}\ndata: {CableCustomConfig: \""+
				yaml+"\"}\n",
		)
	}
	use := func(spec string) {
		kubectl(t, "cluster2", "-n", "submariner-operator", "patch", "submariner", "submariner", "--type=merge", "-p",
			`{"spec":{"cableDriverCustomConfig":`+spec+`}}`)
	}
	mtus := func(of map[string]func(int) bool) {
		t.Helper()
		eventually(t, 20*time.Second, func() error {
			cs, _ := connections(t)
			return each(cs, pair, func(c connection) bool { return c.Status == "connected" && of[c.Cluster](c.MTU) })
		})
	}
	is := func(mtu int) func(int) bool { return func(n int) bool { return n == mtu } }
	more := func(n int) bool { return n > 1300 }
	before := kubectl(t, "cluster2", "-n", "submariner-operator", "get", "submariner", "submariner", "-o",
		"jsonpath={.spec.cableDriverCustomConfig}")
	if before == "" {
		before = "null"
	}
	t.Cleanup(func() {
		use(before)
		kubectl(t, "cluster2", "-n", "submariner-operator", "delete", "configmap", "own", "--ignore-not-found")
		cabled(t, wanted)
	})
	lossless(t, 1, func() map[string]lost {
		all := startStreams(t, pair, "cluster1 cluster2")
		config("ipsec: {mtu: 1200}")
		use(`{"configMapName":"own"}`)
		mtus(map[string]func(int) bool{"cluster2": is(1200), "cluster3": more})
		from, to := workersOf(t, pair)
		sizes(t, from, to.ip)
		// the test before may have left a cable on the same device, kept up for 10 s
		eventually(t, 20*time.Second, func() error {
			if link := on(t, gateway(t, "cluster2"), "ip -o link show ipsec-tunnel"); !strings.Contains(link,
				" mtu 1200 ") {
				return errors.New(link)
			}
			return nil
		})
		config("ipsec: {mtu: 1280}")
		mtus(map[string]func(int) bool{"cluster2": is(1280), "cluster3": more})
		config("ipsec: {mtu: 12}")
		eventually(t, 20*time.Second, func() error {
			out := kubectl(t, "cluster2", "-n", "submariner-operator", "get", "gateways.submariner.io",
				gateway(t, "cluster2"), "-o", `jsonpath={.status.conditions[?(@.type=="CableConfigValid")].message}`)
			if !strings.Contains(out, "mtu") {
				return fmt.Errorf("condition CableConfigValid: %q", out)
			}
			return nil
		})
		mtus(map[string]func(int) bool{"cluster2": is(1280), "cluster3": more})
		use("null")
		mtus(map[string]func(int) bool{"cluster2": more, "cluster3": more})
		return all.stop(t)
	})
}

// The gateway of a cluster is killed in the middle of a change from one encrypted cable to another:
// its successor completes the change, and no packet goes by a plain cable meanwhile. The change
// cannot be over before: the other gateway does not receive what the first one negotiates.
func TestFailoverDuringAChange(t *testing.T) {
	takesLong(t)
	const pair = "cluster1 cluster3"
	first := gateway(t, "cluster3")
	second := worker(t, "cluster3")
	kubectl(t, "cluster3", "label", "node", second, "submariner.io/gateway=true", "--overwrite")
	kubectl(t, "cluster3", "-n", "submariner-operator", "rollout", "status", "daemonset/submariner-gateway",
		"--timeout=300s")
	passing(t, "one-three")
	from, to := workersOf(t, pair) // the pod of cluster3 is on the second node, which lives
	s := startStream(t, from, to)
	wire := startCapture(t, gateway(t, "cluster1"), "host "+nodeIP(t, first)+" or host "+nodeIP(t, second))
	deaf := "PREROUTING -t raw -p udp --dport 4500 -j DROP -s " + nodeIP(t, first)
	on(t, gateway(t, "cluster1"), "iptables -I "+deaf)
	hears := sync.OnceFunc(func() { on(t, gateway(t, "cluster1"), "iptables -D "+deaf) })
	t.Cleanup(hears)
	must(t, policyFor(pair, "one-three", "ipsec")...)
	eventually(t, 20*time.Second, func() error {
		cs, _ := connections(t)
		return each(cs, pair, func(c connection) bool {
			return c.CableDriver == "wireguard" && c.DesiredDriver == "ipsec" && c.Status == "connecting" &&
				strings.Contains(c.StatusMessage, "traffic stays with wireguard")
		})
	})
	must(t, "lab", "kill", first)
	must(t, "lab", "cut", first)
	hears()
	answers(t, from, to)
	took := cabled(t, map[string]string{pair: "ipsec", "cluster2 cluster3": "ipsec"})
	t.Logf("the successor has completed the change %.1f s after traffic returned", took.Seconds())
	l := s.stop(t)
	wire.stop(t)
	require.Less(t, l.LongestGapMs, 30000.0)
	require.NotEmpty(t, wire.packets(t, "("+carriers["ipsec"]+") and host "+nodeIP(t, second)))
	require.Empty(t, wire.packets(t, "("+carriers["ipsec"]+") and host "+nodeIP(t, first)),
		"it was killed before the change was over")
	require.Empty(t, wire.packets(t, carriers["vxlan"]), "packets by a plain cable")
	require.Equal(t, second, gateway(t, "cluster3"))

	must(t, "lab", "heal", first)
	must(t, "lab", "start", first)
	kubectl(t, "cluster3", "wait", "--for=condition=Ready", "node/"+first, "--timeout=300s")
	kubectl(t, "cluster3", "rollout", "status", "daemonset/web", "--timeout=300s")
	must(t, "subctl", "cable-policy", "delete", "one-three", "--context", "cluster1")
	eventually(t, time.Minute, func() error {
		if !strings.Contains(
			kubectl(t, "cluster3", "-n", "submariner-operator", "get", "pods", "-l", "app=submariner-gateway",
				"--field-selector", "spec.nodeName="+first),
			"1/1",
		) {
			return fmt.Errorf("no gateway agent on %s yet", first)
		}
		return nil
	})
	kubectl(t, "cluster3", "label", "node", second, "submariner.io/gateway-")
	eventually(t, time.Minute, func() error {
		if g := gateways(t, "cluster3"); !slices.Equal(g, []string{first}) {
			return fmt.Errorf("the gateways are still %v", g)
		}
		return nil
	})
	cabled(t, wanted)
}

// Another program of a gateway has UDP port 4500: the pair that uses IPsec reports that, with a
// command that names the program. All others keep their status and their probes, change their
// cables, and lose no packet. The pod stays ready. When the port is free, the pair is connected.
func TestPortTaken(t *testing.T) {
	takesLong(t)
	const message = `starting IPsec: UDP port 4500 is in use by a program of user ID 0 outside this pod (on the node, "ss -lunp 'sport = :4500'" names it): ` +
		"stop that one, or set another ipsecPort for this cluster"
	gw := gateway(t, "cluster3")
	passing(t, "meanwhile")
	// contacts returns when the gateway of cluster3 last heard of the gateways of the other pairs.
	contacts := func() string {
		return kubectl(t, "cluster3", "-n", "submariner-operator", "get", "gateways.submariner.io", gw,
			"-o", `jsonpath={.status.connections[?(@.endpoint.cluster_id=="cluster1")].lastContact}`)
	}
	lossless(t, 1, func() map[string]lost {
		ctx, release := context.WithCancel(t.Context())
		defer release()
		all := startStreams(t, "cluster1 cluster2", "cluster1 cluster3")
		// charon is started again within half a second, so it may take a few attempts.
		holder := command(ctx, "lab", "exec", gw, "--", "sh", "-c",
			`while socat -u UDP4-RECV:4500 - >/dev/null 2>&1 & p=$!; sleep 0.1; ! ss -Hlunp 'sport = :4500' | grep -q '"socat"'; do kill -9 $p; pkill -9 -x charon-systemd; done; cat >/dev/null; kill $p`)
		end, err := holder.StdinPipe()
		require.NoError(t, err)
		require.NoError(t, holder.Start())
		eventually(t, 30*time.Second, func() error {
			cs, code := connections(t)
			for _, c := range between(cs, "cluster2 cluster3") {
				if c.Cluster == "cluster3" && c.Status == "error" && c.StatusMessage == message && code == 3 {
					t.Log(c.StatusMessage)
					return nil
				}
			}
			return fmt.Errorf("exit code %d: %+v", code, cs)
		})
		require.Contains(t, on(t, gw, "ss -lunp 'sport = :4500'"), `"socat"`, "the command of the message")
		heard := contacts()
		require.NotEmpty(t, heard)
		time.Sleep(12 * time.Second) // three readiness probes, and the first health checks that could fail
		require.NotEqual(t, heard, contacts(), "probes go on")
		cs, _ := connections(t)
		for _, pair := range []string{"cluster1 cluster2", "cluster1 cluster3"} {
			require.NoError(t, each(cs, pair, func(c connection) bool {
				return c.Status == "connected" && c.StatusMessage == "" && c.RTTAverage != "" &&
					c.CableDriver == wanted[pair]
			}))
		}
		change(t, "cluster1 cluster3", "vxlan", policyFor("cluster1 cluster3", "meanwhile", "vxlan", "--force")...)
		change(t, "cluster1 cluster3", "wireguard", "subctl", "cable-policy", "delete", "meanwhile", "--context",
			"cluster1", "--force")
		var pods struct {
			Items []struct {
				Status struct {
					Conditions []struct{ Type, Status string }
				}
			}
		}
		require.NoError(
			t,
			json.Unmarshal(
				[]byte(
					kubectl(t, "cluster3", "-n", "submariner-operator", "get", "pods", "-l", "app=submariner-gateway",
						"-o", "json"),
				),
				&pods,
			),
		)
		for _, p := range pods.Items {
			require.Contains(t, p.Status.Conditions, struct{ Type, Status string }{"Ready", "True"})
		}
		require.NoError(t, end.Close())
		require.NoError(t, holder.Wait())
		cabled(t, wanted)
		return all.stop(t)
	})
}
