//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Two clusters have two active gateways each, and one of the exporter's is killed under requests by
// name and 100 connections to the name: the connections survive, and what is lost is what takes the
// other gateway a moment.
func TestServicesSeveralGateways(t *testing.T) {
	if !serviceDiscovery {
		t.Skip("E2E_SERVICES is not set: make e2e-services runs this test in a lab of its own")
	}
	evidence(t, slices.Concat(nodes("cluster1"), nodes("cluster2"), nodes("cluster3")), clusters)
	servicesJoined(t)
	pair := []string{"cluster1", "cluster2"}
	first := map[string]string{}
	for _, c := range pair {
		first[c] = gateway(t, c)
	}
	victim := first["cluster2"]
	setNodeOf(t, "cluster2", fmt.Sprintf("%q", worker(t, "cluster2")))
	t.Cleanup(func() {
		for _, verb := range []string{"heal", "start"} {
			out, err := sh("lab", verb, victim)
			assert.NoError(t, err, "lab %s %s: %s", verb, victim, out)
		}
		setNodeOf(t, "cluster2", "null")
		unexportService(t, "cluster2", "echo")
		for _, c := range pair {
			several(t, c, false)
			for _, n := range nodes(c) {
				if n != gateway(t, c) {
					kubectl(t, c, "label", "node", n, "submariner.io/gateway-")
				}
			}
		}
		connected(t)
	})
	for _, c := range pair {
		several(t, c, true)
	}
	allConnected(t)

	const name = "echo.shop.svc.clusterset.local"
	apply(t, "cluster2", `
apiVersion: v1
kind: Service
metadata: {name: echo, namespace: shop}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}, {name: echo, port: 7}, {name: echo-udp, port: 7, protocol: UDP}]}
`)
	exportService(t, "cluster2", "echo")
	from := podOn(t, "cluster1", "web", first["cluster1"])
	eventually(t, discovered, func() error { return answersUnder(name, from, "cluster2") })
	inside := containerOf(t, from)
	open := beginFlows(t, inside, name+".:7", "--udp", "1", "--rate", "1", "--tcp", "100")
	stop := runRequests(
		t,
		inside.command("requests", "http://"+name+"./", "--rate", "100", "--seconds", "0", "--timeout", "2s")...)
	time.Sleep(time.Second)
	killNode(t, nil, victim)
	time.Sleep(5 * time.Second)
	r := stop()
	// Packets that are lost are sent again after 0.2 to 1 s, so that a request fails only if that
	// happens twice.
	require.LessOrEqual(t, r.Failed, r.Sent/20, "%+v", r)
	require.Less(t, r.LastFailedMs, 4000, "%+v", r)
	for _, c := range open.stop(t).TCP {
		require.Empty(t, c.Err, "connection from port %d, idle %v", c.Port, c.Idle)
	}
	revive(t, victim)
	allConnected(t)
	require.NoError(t, answersUnder(name, from, "cluster2"))
}

// setNodeOf moves the pods of Deployment shop/web to a node, or, with "null", lets them run on any
// node. It waits until no others are left.
func setNodeOf(t *testing.T, cluster, node string) {
	t.Helper()
	inShop(t, cluster, "patch", "deployment", "web", "--patch",
		fmt.Sprintf(`{"spec": {"template": {"spec": {"nodeSelector": {"kubernetes.io/hostname": %s}}}}}`, node))
	inShop(t, cluster, "rollout", "status", "deployment/web", "--timeout=300s")
	if node == "null" {
		return
	}
	eventually(t, time.Minute, func() error {
		out := inShop(t, cluster, "get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].spec.nodeName}")
		if strings.TrimSpace(strings.ReplaceAll(out, strings.Trim(node, `"`), "")) != "" {
			return fmt.Errorf("pods on %s", out)
		}
		return nil
	})
}
