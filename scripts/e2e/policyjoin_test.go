//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// joinEvents is how many events TestE7 has; E2E_JOIN_EVENTS changes it.
func joinEvents(t *testing.T) int {
	t.Helper()
	text := os.Getenv("E2E_JOIN_EVENTS")
	if text == "" {
		return 8 // each kind once
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, "E2E_JOIN_EVENTS")
	return n
}

// While a policy specifies ipsec for site=cloud, a cluster of that site joins, the agents of all
// clusters of a pair are replaced at once, and its gateway fails over: whatever the moment, none of
// the packets that pods exchange is on the wire in clear. It may join while the broker answers
// slowly, while the other cluster has lost its watches, or before the ConfigMap that the policy
// names exists.
//
// Nodes that do not know the networks of the other cluster yet send packets for them to the default
// route: they cannot tell them from packets for the Internet. From the moment at which all nodes
// know them, nothing is outside of a cable during a join either.
func TestNothingInClear(t *testing.T) {
	takesLong(t)
	const pair = "cluster1 cluster4"
	if len(clusters) == 3 {
		clusters = append(clusters, "cluster4")
	}
	t.Cleanup(func() {
		clusters = clusters[:3]
		_, _ = sh("subctl", "uninstall", "--context", "cluster4", "--yes")
		_, _ = sh("subctl", "cable-policy", "delete", "--context", "cluster1", "--name", "cloud", "--force")
		// no later test uses it, and it takes a quarter of the machine
		for _, name := range append(nodes("cluster4"), "cluster4-api") {
			_, _ = sh("lab", "kill", name)
		}
	})
	for _, n := range nodes("cluster4") {
		if _, known := pristine[n]; !known {
			t.Skip("TestC1 brings cluster4 up")
		}
	}
	must(t, "subctl", "cable-policy", "add", "--wait=false", "--context", "cluster1", "--name", "cloud",
		"--left-cluster-selector", "site=cloud", "--cable-driver", "ipsec")
	from := podOn(t, "cluster1", "web", nodes("cluster1")[1])
	to := podOn(t, "cluster4", "web", nodes("cluster4")[1])
	secured := func() { cabled(t, map[string]string{pair: "ipsec"}) }
	joinCloud := func() {
		must(t, "subctl", "join", brokerFile, "--context", "cluster4", "--image", image, "--cluster-labels",
			"site=cloud")
		secured()
	}
	for i := range joinEvents(t) {
		kind := []string{"join", "restart", "failover", slowBroker, "restart", lostWatch, "restart", lateSettings}[i%8]
		joins := strings.HasPrefix(kind, "join")
		t.Run(fmt.Sprintf("%d %s", i+1, kind), func(t *testing.T) {
			if joins {
				must(t, "subctl", "uninstall", "--context", "cluster4", "--yes")
			}
			began := time.Now()
			stop := watchForClear(t, from, to)
			informed := watchRoutes(t, from, to)
			switch kind {
			case "join":
				joinCloud()
			case slowBroker, lostWatch, lateSettings:
				calm := disturb(t, kind)
				joinCloud()
				calm()
				secured()
			case "restart":
				for _, c := range []string{"cluster1", "cluster4"} {
					kubectl(t, c, "-n", "submariner-operator", "delete", "pods", "--all", "--force", "--grace-period=0")
				}
				time.Sleep(2 * time.Second)
				secured()
			case "failover":
				failOver(t, "cluster4")
				secured()
			}
			answers(t, from, to)
			at := informed()
			seen := stop()
			require.False(t, seen.inCables, "packets in an unencrypted cable")
			if joins {
				t.Logf("all nodes know the networks after %.1f s", at.Sub(began).Seconds())
				seen.outside = after(t, seen.outside, at)
			}
			require.Empty(t, seen.outside, "packets outside of any cable")
			t.Logf("%s: %.1f s; %d packets between nodes of one cluster by the way of its CNI", kind,
				time.Since(began).Seconds(), len(seen.within))
		})
	}
	t.Log("without the policy, the same captures see the packets")
	stop := watchForClear(t, from, to)
	must(t, "subctl", "cable-policy", "delete", "--context", "cluster1", "--name", "cloud", "--force")
	cabled(t, map[string]string{pair: "vxlan"})
	answers(t, from, to)
	require.True(t, stop().inCables)
}

// Joins under adverse conditions.
const (
	slowBroker   = "join, slow broker"
	lostWatch    = "join, lost watch"
	lateSettings = "join, late ConfigMap"
)

// disturb brings about the condition for a join of cluster4. It lasts until the function that it
// returns is called, or ends by itself a few seconds later.
func disturb(t *testing.T, kind string) (calm func()) {
	t.Helper()
	var nodesOf []string
	rule := "OUTPUT -p tcp --dport 6443 -j "
	switch kind {
	case slowBroker: // every request is sent several times
		nodesOf = append(nodes("cluster4"), gateway(t, "cluster1"))
		rule += "DROP -m statistic --mode random --probability 0.3"
	case lostWatch: // connections are reset, and none is made
		nodesOf = []string{gateway(t, "cluster1")}
		rule += "REJECT --reject-with tcp-reset"
	default:
		return settleLate(t)
	}
	for _, n := range nodesOf {
		on(t, n, "iptables -I "+rule)
	}
	calm = sync.OnceFunc(func() {
		for _, n := range nodesOf {
			_, err := sh("lab", "exec", n, "--", "sh", "-c", "iptables -D "+rule)
			assert.NoError(t, err)
		}
	})
	t.Cleanup(calm)
	if kind == lostWatch {
		time.AfterFunc(8*time.Second, calm)
	}
	return calm
}

// settleLate has the policy name a ConfigMap that is created a few seconds later. The function that
// it returns restores the policy.
func settleLate(t *testing.T) (restore func()) {
	t.Helper()
	patch := func(value string) {
		_, err := sh("kubectl", "--context", "cluster1", "-n", "submariner-operator", "patch", "cablepolicies", "cloud",
			"--type=json", "-p", value)
		assert.NoError(t, err, value)
	}
	patch(`[{"op":"add","path":"/spec/0/options","value":{"metadata":{"name":"late"}}}]`)
	created := make(chan error, 1)
	time.AfterFunc(8*time.Second, func() {
		_, err := sh("kubectl", "--context", "cluster1", "-n", "submariner-operator", "create", "configmap", "late",
			"--from-literal=CableCustomConfig=espLifetime: 50m")
		created <- err
	})
	restore = sync.OnceFunc(func() {
		assert.NoError(t, <-created)
		patch(`[{"op":"remove","path":"/spec/0/options"}]`)
		_, err := sh("kubectl", "--context", "cluster1", "-n", "submariner-operator", "delete", "configmap", "late")
		assert.NoError(t, err)
	})
	t.Cleanup(restore)
	return restore
}

// watchRoutes watches where the nodes of the clusters of two pods send packets for the pod of the
// other cluster. The function that it returns ends that, and returns the time since which none of
// them uses the default route.
func watchRoutes(t *testing.T, from, to pod) (informed func() time.Time) {
	t.Helper()
	since := map[string]time.Time{} // by node; zero: it uses the default route
	ctx, end := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			for _, p := range []struct{ cluster, ip string }{{from.cluster, to.ip}, {to.cluster, from.ip}} {
				for _, n := range nodes(p.cluster) {
					out, err := sh("lab", "exec", n, "--", "ip", "route", "get", p.ip)
					// a cable or the gateway; nowhere
					known := err == nil && !strings.Contains(out, "dev eth0") ||
						strings.Contains(out, "Invalid argument")
					if !known {
						since[n] = time.Time{}
					} else if since[n].IsZero() {
						since[n] = time.Now()
					}
				}
			}
		}
	}()
	return func() (at time.Time) {
		t.Helper()
		end()
		<-done
		require.Len(t, since, 4)
		for n, s := range since {
			require.False(t, s.IsZero(), "%s sends packets of the cable to the default route", n)
			if s.After(at) {
				at = s
			}
		}
		return at
	}
}

// after returns the packets that were captured after a time.
func after(t *testing.T, packets []string, at time.Time) (out []string) {
	t.Helper()
	for _, p := range packets {
		text, _, _ := strings.Cut(p, " ")
		seconds, err := strconv.ParseFloat(text, 64)
		require.NoError(t, err, p)
		if seconds > float64(at.UnixNano())/1e9 {
			out = append(out, p)
		}
	}
	return out
}

// failOver makes the other node of a cluster its gateway, cleanly.
func failOver(t *testing.T, cluster string) {
	t.Helper()
	first := gateway(t, cluster)
	second := worker(t, cluster)
	kubectl(t, cluster, "label", "node", second, "submariner.io/gateway=true", "--overwrite")
	eventually(t, time.Minute, func() error {
		if !strings.Contains(
			kubectl(t, cluster, "-n", "submariner-operator", "get", "pods", "-l", "app=submariner-gateway",
				"--field-selector", "spec.nodeName="+second),
			"1/1",
		) {
			return fmt.Errorf("no gateway agent on %s yet", second)
		}
		return nil
	})
	kubectl(t, cluster, "label", "node", first, "submariner.io/gateway-")
	eventually(t, 30*time.Second, func() error {
		if now := gateways(t, cluster); !slices.Equal(now, []string{second}) {
			return fmt.Errorf("the gateways are %v", now)
		}
		return nil
	})
}

// clear are the packets of two pods that can be read on the wire: in a cable, or outside of any,
// a line each.
type clear struct {
	inCables bool
	outside  []string
	within   []string // between nodes of one cluster, outside of our VXLAN
}

// watchForClear sends packets from one pod to the other, whatever becomes of them, and
// captures what passes the nodes of both clusters except between nodes of one, which a cluster
// with this CNI exchanges in clear. The function that it returns stops both.
func watchForClear(t *testing.T, from, to pod) (stop func() clear) {
	t.Helper()
	var captures []*capture
	var within []string
	for _, c := range []string{from.cluster, to.cluster} {
		for _, n := range nodes(c) {
			captures = append(captures, startCapture(t, n, "not tcp and not udp port 4800"))
			for _, other := range nodes(c) {
				within = append(within,
					fmt.Sprintf("(ether src %s and ether dst %s)", hardwareAddress(t, n), hardwareAddress(t, other)))
			}
		}
	}
	ctx, end := context.WithCancel(t.Context())
	sender := command(ctx, "kubectl", "--context", from.cluster, "exec", "-i", from.name, "--", "/labapp", "stream",
		to.ip+":7", "--rate", "100", "--seconds", "0")
	keep, err := sender.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, sender.Start())
	return func() (seen clear) {
		t.Helper()
		_ = keep.Close()
		time.Sleep(time.Second)
		end()
		_ = sender.Wait()
		for _, c := range captures {
			c.stop(t)
			cables, err := os.ReadFile(cablesOf(t, c))
			require.NoError(t, err)
			seen.inCables = seen.inCables || bytes.Contains(cables, addresses(t, from, to)) ||
				bytes.Contains(cables, addresses(t, to, from))
			own := "(" + strings.Join(within, " or ") + ")"
			seen.outside = append(seen.outside, c.packets(t, "udp port 7 and not "+own)...)
			seen.within = append(seen.within, c.packets(t, "udp port 7 and "+own)...)
		}
		return seen
	}
}

// hardwareAddress returns the MAC address of a node's link to the others.
func hardwareAddress(t *testing.T, node string) string {
	t.Helper()
	return strings.TrimSpace(must(t, "lab", "exec", node, "--", "cat", "/sys/class/net/eth0/address"))
}

// cablesOf returns the name of a file with the packets of unencrypted cables in a capture.
func cablesOf(t *testing.T, c *capture) string {
	t.Helper()
	out := c.file + ".cables"
	text, err := exec.CommandContext(t.Context(), "tcpdump", "-r", c.file, "-w", out, "udp port 4502").CombinedOutput()
	require.NoError(t, err, "%s", text)
	return out
}

// addresses returns the addresses of a packet from one pod to another, as its header has them.
func addresses(t *testing.T, from, to pod) []byte {
	t.Helper()
	src, err := netip.ParseAddr(from.ip)
	require.NoError(t, err)
	dst, err := netip.ParseAddr(to.ip)
	require.NoError(t, err)
	return append(src.AsSlice(), dst.AsSlice()...)
}
