//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The workload of every cluster: a pod and a host-network pod on each node, and a Service for the
// pods of each node and for all. Without a request, a pod has next to no share of a busy processor:
// what it had to send it then sends all at once, which is more than a socket holds, and the test
// would count the rest as lost.
const workload = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: web, namespace: default}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - {name: web, image: "lab.local/labapp:1", imagePullPolicy: Never, args: [web], readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}, resources: {requests: {cpu: 200m}}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: host, namespace: default}
spec:
  selector: {matchLabels: {app: host}}
  template:
    metadata: {labels: {app: host}}
    spec:
      hostNetwork: true
      dnsPolicy: ClusterFirstWithHostNet
      terminationGracePeriodSeconds: 0
      containers:
      - {name: host, image: "lab.local/labapp:1", imagePullPolicy: Never, args: [sleep], resources: {requests: {cpu: 100m}}}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  selector: {app: web}
  ports:
  - {name: http, port: 80, targetPort: 8080}
  - {name: echo-udp, port: 7, protocol: UDP}
  - {name: echo-tcp, port: 7, protocol: TCP}
`

// pod is a pod of the workload.
type pod struct{ cluster, name, node, ip string }

func deploy(t *testing.T, cluster string) {
	t.Helper()
	apply(t, cluster, workload)
	for _, ds := range []string{"web", "host"} {
		kubectl(t, cluster, "rollout", "status", "daemonset/"+ds, "--timeout=300s")
	}
}

// pods are the pods of an application. It waits for their addresses: a pod whose node has booted
// again has none for a moment, even after its rollout is said to be complete.
func pods(t *testing.T, cluster, app string) []pod {
	t.Helper()
	var ps []pod
	eventually(t, time.Minute, func() error {
		ps = nil
		out := kubectl(t, cluster, "get", "pods", "-l", "app="+app, "-o",
			`jsonpath={range .items[*]}{.metadata.name} {.spec.nodeName} {.status.podIP}{"\n"}{end}`)
		for line := range strings.Lines(out) {
			f := strings.Fields(line)
			if len(f) != 3 {
				return fmt.Errorf("a pod without an address: %s", out)
			}
			ps = append(ps, pod{cluster, f[0], f[1], f[2]})
		}
		return nil
	})
	return ps
}

// podOn returns the pod of the workload on a node.
func podOn(t *testing.T, cluster, app, node string) pod {
	t.Helper()
	for _, p := range pods(t, cluster, app) {
		if p.node == node {
			return p
		}
	}
	t.Fatalf("no pod of %s on %s", app, node)
	return pod{}
}

// exec runs the lab's test program in a pod.
func (p pod) exec(t *testing.T, args ...string) string {
	t.Helper()
	out, err := p.try(args...)
	require.NoError(t, err, "%s on %s: labapp %s\n%s", p.name, p.node, strings.Join(args, " "), out)
	return out
}

func (p pod) try(args ...string) (string, error) {
	return sh(append([]string{"kubectl", "--context", p.cluster, "exec", p.name, "--", "/labapp"}, args...)...)
}

func serviceIP(t *testing.T, cluster, name string) string {
	t.Helper()
	return kubectl(t, cluster, "get", "service", name, "-o", "jsonpath={.spec.clusterIP}")
}

// gateway is the node of a cluster's active gateway.
func gateway(t *testing.T, cluster string) string {
	t.Helper()
	g := gateways(t, cluster)
	require.Len(t, g, 1)
	return g[0]
}

// gateways are the active gateways of a cluster: none, or two, while one takes over.
func gateways(t *testing.T, cluster string) []string {
	t.Helper()
	active, _ := announced(t, cluster, cluster)
	return active
}

// announced are the active gateways and the standbys of a cluster, as another one knows them.
func announced(t *testing.T, cluster, known string) (active, standbys []string) {
	t.Helper()
	for line := range strings.Lines(kubectl(
		t,
		known,
		"-n",
		"submariner-operator",
		"get",
		"endpoints.submariner.io",
		"-o",
		`jsonpath={range .items[?(@.spec.cluster_id=="`+cluster+
			`")]}{.spec.hostname} {.spec.backend_config.gateway-drain}{"\n"}{end}`,
	)) {
		switch fields := strings.Fields(line); {
		case len(fields) == 2 && fields[1] == "standby":
			standbys = append(standbys, fields[0])
		case len(fields) > 0:
			active = append(active, fields[0])
		}
	}
	return active, standbys
}

// standby waits until a node is known as a standby of its cluster in all clusters, with all
// connections.
func standby(t *testing.T, cluster, node string) {
	t.Helper()
	eventually(t, time.Minute, func() error {
		for _, c := range clusters {
			if _, all := announced(t, cluster, c); !slices.Contains(all, node) {
				return fmt.Errorf("%s knows the standbys %v of %s", c, all, cluster)
			}
		}
		if cs, code := connections(t); code != 0 {
			return fmt.Errorf("exit code %d: %+v", code, cs)
		}
		return nil
	})
}

// worker is a node of a cluster that is not the active gateway.
func worker(t *testing.T, cluster string) string {
	t.Helper()
	gw := gateway(t, cluster)
	for _, n := range nodes(cluster) {
		if n != gw {
			return n
		}
	}
	t.Fatalf("%s has no worker", cluster)
	return ""
}

// flows checks that every pod of a reaches every pod and the Service of b.
func flows(t *testing.T, a, b string) {
	t.Helper()
	svc := serviceIP(t, b, "web")
	for _, from := range pods(t, a, "web") {
		for _, to := range pods(t, b, "web") {
			out := from.exec(t, "get", "http://"+to.ip+":8080/", "--timeout", "15s")
			require.Contains(t, out, to.name)
			require.Contains(t, out, "from="+from.ip+":", "the source is the pod's own address")
		}
		require.Contains(t, from.exec(t, "get", "http://"+svc+"/", "--timeout", "15s"), "from="+from.ip+":",
			"the source is kept through a Service")
	}
}

// sizes checks packets of every size, of three protocols.
func sizes(t *testing.T, from pod, ip string) {
	t.Helper()
	// The first datagram that is too large is answered with the path's MTU, there and on the
	// way back; what comes after it is cut to size by its sender.
	from.exec(t, "udp", ip+":7", "1", "500", "1272", "1273", "1300", "1372", "1373", "1400", "1422", "1423", "1472",
		"1473", "3000", "9000", "60000", "--timeout", "2s", "--tries", "5")
	from.exec(t, "tcp", ip+":7", "1", "1400", "1460", "100000", "4000000", "--timeout", "60s")
	var out string
	var err error
	for range 3 { // the machine may lose a packet
		if out, err = from.try("ping", ip, "56", "1272", "1400", "1422", "1473", "9000", "--count", "1"); err == nil {
			return
		}
	}
	require.NoError(t, err, out)
}

func join(t *testing.T, cluster string) string {
	t.Helper()
	start := time.Now()
	out := must(t, "subctl", "join", brokerFile, "--context", cluster, "--image", image)
	t.Logf("join %s: %.1f s\n%s", cluster, time.Since(start).Seconds(), out)
	return out
}
