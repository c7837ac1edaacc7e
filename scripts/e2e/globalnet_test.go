//go:build e2e

package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/measure"
)

// TestGlobalnet has a lab of its own: two clusters with the same networks, in which kube-proxy
// writes rules of iptables (cluster1) or of nftables. If it is wide, there is a third such cluster,
// and plainCluster, which has networks of its own and joins without a global network. "churn" runs
// only the step in which pods and Services come and go.
var (
	globalnet      = os.Getenv("E2E_GLOBALNET") != ""
	globalnetWide  = os.Getenv("E2E_GLOBALNET") == "wide"
	globalnetChurn = os.Getenv("E2E_GLOBALNET") == "churn"
)

const plainCluster = "cluster4"

// overlapping returns the clusters with the same networks.
func overlapping() []string { return clusters[:min(len(clusters), 3)] }

// What pods of other clusters reach by a global address: a headless Service, whose pods have one
// each, and a Service that is never exported.
const globalWorkload = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: default}
spec:
  serviceName: db
  replicas: 2
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - {name: web, image: "lab.local/labapp:1", imagePullPolicy: Never, args: [web], readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}, resources: {requests: {cpu: 100m}}}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: default}
spec: {clusterIP: None, selector: {app: db}, ports: [{name: http, port: 8080}]}
`

// Clusters with the same pod and Service networks: pods of each reach exported Services of the
// others, pod by pod where they are headless, and nothing else; agents and gateways fail; clusters
// get several active gateways; nodes are as before after uninstalling. In the wide lab there is
// also a cluster with other networks, cables change, the broker cannot be reached, objects come and
// go, and there are many connections.
func TestGlobalnet(t *testing.T) {
	if !globalnet {
		t.Skip("E2E_GLOBALNET is not set: make e2e-globalnet runs this test in a lab of its own")
	}
	all := !globalnetChurn
	wide := globalnetWide
	for _, step := range []struct {
		name string
		test func(*testing.T)
		run  bool
	}{
		{"joined", globalJoined, true},
		{"exported Services", globalServices, true},
		{"how long it takes", globalExportTimed, wide || long},
		{"every size of packet", globalSizes, all},
		{"pods of headless Services", globalPods, all},
		{"by name", globalNames, all},
		{"pods with an address of their own", globalOwn, all},
		{"not exported", globalOnlyExported, all},
		{"with a cluster without a global network", globalAndPlain, wide},
		{"a global network for a cluster that runs", globalLater, wide},
		{"addresses of a group of pods", globalGroup, wide},
		{"another cable", globalOtherCable, wide},
		{"agents killed", globalAgentsKilled, all},
		{"without a broker", globalWithoutBroker, wide},
		{"pods and Services come and go", globalChurn, globalnetChurn || wide || long}, // it takes minutes
		{"takeover", globalTakeover, all},
		{"several gateways", globalSeveral, all},
		{"many connections", globalManyConnections, wide},
		{"uninstall", uninstallAll, all},
	} {
		if step.run && !t.Run(step.name, step.test) {
			t.FailNow()
		}
	}
}

// globalJoined joins the clusters, which get different global networks.
func globalJoined(t *testing.T) {
	must(t, "subctl", "deploy-broker", "--context", "cluster1", "--broker-info", brokerFile, "--globalnet")
	for _, c := range clusters {
		deploy(t, c)
		apply(t, c, globalWorkload)
	}
	networks := map[netip.Prefix]bool{}
	for _, c := range clusters {
		if c == plainCluster {
			must(t, "subctl", "join", brokerFile, "--context", c, "--image", image, "--globalnet=false")
			continue
		}
		join(t, c)
		networks[globalNetwork(t, c)] = true
		require.Equal(t, serviceNetworkOf(t, "cluster1"), serviceNetworkOf(t, c),
			"the lab's clusters use the same networks")
	}
	require.Len(t, networks, len(overlapping()))
	for _, c := range clusters {
		kubectl(t, c, "rollout", "status", "statefulset/db", "--timeout=300s")
		within(t, c)
	}
	connected(t)
}

// globalNetwork is the global network of a cluster.
func globalNetwork(t *testing.T, cluster string) netip.Prefix {
	t.Helper()
	p, err := netip.ParsePrefix(
		kubectl(t, cluster, "-n", "submariner-operator", "get", "submariners.submariner.io", "submariner", "-o",
			"jsonpath={.spec.globalCIDR}"),
	)
	require.NoError(t, err)
	return p
}

func serviceNetworkOf(t *testing.T, cluster string) string {
	t.Helper()
	return kubectl(t, cluster, "-n", "submariner-operator", "get", "submariners.submariner.io", "submariner", "-o",
		"jsonpath={.spec.serviceCIDR}")
}

// globalIP returns the address of a GlobalIngressIP as soon as there is one.
func globalIP(t *testing.T, cluster, name string) (ip string) {
	t.Helper()
	eventually(t, 10*time.Second, func() error {
		ip = strings.TrimSpace(
			kubectl(t, cluster, "get", "globalingressips.submariner.io", name, "--ignore-not-found", "-o",
				"jsonpath={.status.allocatedIP}"),
		)
		if ip == "" {
			return fmt.Errorf("%s has no address", name)
		}
		return nil
	})
	require.True(t, globalNetwork(t, cluster).Contains(netip.MustParseAddr(ip)), ip)
	return ip
}

// clientOf returns the address that a server has seen.
func clientOf(t *testing.T, answer string) netip.Addr {
	t.Helper()
	_, from, ok := strings.Cut(answer, "from=")
	require.True(t, ok, answer)
	at, err := netip.ParseAddrPort(strings.Fields(from)[0])
	require.NoError(t, err, answer)
	return at.Addr()
}

// globalServices exports the Service of each cluster, and has all pods of the other one use it.
func globalServices(t *testing.T) {
	for _, c := range overlapping() {
		export(t, c, "web")
	}
	for i, c := range overlapping() {
		other := overlapping()[(i+1)%len(overlapping())]
		ip := globalIP(t, other, "web")
		for _, from := range slices.Concat(pods(t, c, "web"), pods(t, c, "host")) {
			eventually(t, 10*time.Second, func() error {
				out, err := from.try("get", "http://"+ip+"/", "--timeout", "5s")
				if err != nil {
					return fmt.Errorf("%s on %s: %w: %s", from.name, from.node, err, out)
				}
				require.True(
					t,
					slices.ContainsFunc(pods(t, other, "web"),
						func(p pod) bool { return strings.Contains(out, "pod="+p.name+" ") }),
					out,
				)
				require.True(t, globalNetwork(t, c).Contains(clientOf(t, out)), "the server saw %s", out)
				return nil
			})
		}
		servers := map[string]bool{}
		from := pods(t, c, "web")[0]
		for range 20 {
			servers[strings.Fields(from.exec(t, "get", "http://"+ip+"/", "--timeout", "15s"))[0]] = true
		}
		require.Len(t, servers, nodesEach, "all pods of the Service serve")
	}
}

func globalSizes(t *testing.T) {
	for _, from := range []pod{
		podOn(t, "cluster1", "web", worker(t, "cluster1")),
		podOn(t, "cluster1", "web", gateway(t, "cluster1")),
	} {
		ip := globalIP(t, "cluster2", "web")
		from.exec(t, "udp", ip+":7", "1", "500", "1272", "1273", "1300", "1372", "1373", "1400", "1422", "1423", "1472",
			"1473", "3000", "9000", "--timeout", "2s", "--tries", "5")
		from.exec(t, "tcp", ip+":7", "1", "1400", "1460", "100000", "4000000", "--timeout", "60s")
	}
}

// globalPods exports the headless Service: each of its pods has an address of its own in both
// directions.
func globalPods(t *testing.T) {
	export(t, "cluster2", "db")
	from := podOn(t, "cluster1", "web", worker(t, "cluster1"))
	server := globalIP(t, "cluster1", "web")
	for _, p := range pods(t, "cluster2", "db") {
		ip := globalIP(t, "cluster2", "pod-"+p.name)
		eventually(t, 10*time.Second, func() error {
			out, err := from.try("get", "http://"+ip+":8080/", "--timeout", "5s")
			if err != nil || !strings.Contains(out, p.name) {
				return fmt.Errorf("%s: %w: %s", p.name, err, out)
			}
			return nil
		})
		from.exec(t, "ping", ip, "56", "1272", "--count", "1")
		require.Equal(t, ip, clientOf(t, p.exec(t, "get", "http://"+server+"/", "--timeout", "15s")).String(),
			"the source of its own packets")
	}
}

// globalOwn gives a pod an address of its own by its annotation.
func globalOwn(t *testing.T) {
	own := podOn(t, "cluster1", "web", worker(t, "cluster1"))
	kubectl(t, "cluster1", "annotate", "pod", own.name, "submariner.io/global-ip=own")
	ip := globalIP(t, "cluster1", "pod-"+own.name)
	from := podOn(t, "cluster2", "web", gateway(t, "cluster2"))
	eventually(t, 10*time.Second, func() error {
		out, err := from.try("get", "http://"+ip+":8080/", "--timeout", "5s")
		if err != nil || !strings.Contains(out, own.name) {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	require.Equal(t, ip,
		clientOf(t, own.exec(t, "get", "http://"+globalIP(t, "cluster2", "web")+"/", "--timeout", "15s")).String())
}

// globalOnlyExported tries what must not be reached.
func globalOnlyExported(t *testing.T) {
	from := podOn(t, "cluster1", "web", worker(t, "cluster1"))
	g := globalNetwork(t, "cluster2")
	for _, ip := range []string{g.Addr().Next().Next().Next().String(), globalIP(t, "cluster2", "web")} {
		out, err := from.try("get", "http://"+ip+":6443/", "--timeout", "1s")
		require.Error(t, err, "%s: %s", ip, out)
	}
	kubectl(t, "cluster2", "delete", "serviceexports.multicluster.x-k8s.io", "db")
	eventually(t, 10*time.Second, func() error {
		if out := kubectl(t, "cluster2", "get", "globalingressips.submariner.io", "-o", "name"); strings.Contains(out,
			"pod-db") {
			return fmt.Errorf("still allocated: %s", out)
		}
		return nil
	})
}

// globalAgentsKilled kills the agents under a stream to an exported Service.
func globalAgentsKilled(t *testing.T) {
	from := podOn(t, "cluster1", "web", worker(t, "cluster1"))
	server := pod{cluster: "cluster2", name: "web", ip: globalIP(t, "cluster2", "web")}
	packets := lossless(t, 1, func() map[string]lost {
		s := startStream(t, from, server)
		for _, c := range overlapping() {
			for _, app := range []string{"submariner-globalnet", "submariner-gateway", "submariner-routeagent"} {
				kubectl(t, c, "-n", "submariner-operator", "delete", "pod", "-l", "app="+app, "--grace-period=0",
					"--force")
			}
		}
		for _, c := range overlapping() {
			kubectl(t, c, "-n", "submariner-operator", "rollout", "status", "daemonset/submariner-gateway",
				"--timeout=120s")
			kubectl(t, c, "-n", "submariner-operator", "rollout", "status", "deployment/submariner-globalnet",
				"--timeout=120s")
		}
		time.Sleep(3 * time.Second)
		return map[string]lost{"service": s.stop(t)}
	})
	measure.Record(
		t,
		measure.AtMost("globalnet: packets lost while the globalnet agents and all gateway agents restart",
			measure.Values{float64(packets)}, 0, "packets"),
	)
}

// globalExportTimed measures how long it takes from an export until a pod of another cluster has an
// answer.
func globalExportTimed(t *testing.T) {
	c := api(t, "cluster2")
	from := podOn(t, "cluster1", "web", worker(t, "cluster1"))
	var took measure.Values
	for i := range 5 {
		meta := metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("timed-%d", i)}
		web := &corev1.Service{
			ObjectMeta: meta,
			Spec: corev1.ServiceSpec{
				Selector: map[string]string{"app": "web"},
				Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
			},
		}
		require.NoError(t, c.Create(t.Context(), web))
		time.Sleep(time.Second) // its EndpointSlice is there
		exported := &mcsv1alpha1.ServiceExport{ObjectMeta: meta}
		began := time.Now()
		require.NoError(t, c.Create(t.Context(), exported))
		ip := &submarinerv1.GlobalIngressIP{}
		for ip.Status.AllocatedIP == "" {
			require.NoError(t, client.IgnoreNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(web), ip)))
			require.Less(t, time.Since(began), time.Minute)
			time.Sleep(10 * time.Millisecond)
		}
		eventually(t, 10*time.Second, func() error {
			out, err := from.try("get", "http://"+ip.Status.AllocatedIP+"/", "--timeout", "200ms")
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
		took = append(took, time.Since(began).Seconds())
		for _, o := range []client.Object{web, exported} {
			require.NoError(t, c.Delete(t.Context(), o))
		}
	}
	measure.Record(t, measure.AtMost("export of a Service: a pod of another cluster has an answer after", took, 2, "s"))
}

// globalTakeover gives a cluster a standby, whose own pods reach other clusters through it, and
// kills the active gateway: connections to exported Services use the other one. It returns as a
// standby.
func globalTakeover(t *testing.T) {
	from := podOn(t, "cluster1", "web", worker(t, "cluster1"))
	ip := globalIP(t, "cluster2", "web")
	second := worker(t, "cluster2")
	kubectl(t, "cluster2", "label", "node", second, "submariner.io/gateway=true", "--overwrite")
	eventually(t, time.Minute, func() error {
		if _, standbys := announced(t, "cluster2", "cluster1"); !slices.Contains(standbys, second) {
			return fmt.Errorf("cluster1 knows the standbys %v of cluster2", standbys)
		}
		return nil
	})
	first := gateway(t, "cluster2")
	throughStandby(t, "cluster2")
	must(t, "lab", "kill", first)
	eventually(t, 10*time.Second, func() error {
		out, err := from.try("get", "http://"+ip+"/", "--timeout", "2s")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	must(t, "lab", "start", first)
	kubectl(t, "cluster2", "wait", "--for=condition=Ready", "node/"+first, "--timeout=300s")
	for _, ds := range []string{"web", "host"} {
		kubectl(t, "cluster2", "wait", "--for=jsonpath={.status.podIP}", "pods", "-l", "app="+ds, "--timeout=300s")
		kubectl(t, "cluster2", "rollout", "status", "daemonset/"+ds, "--timeout=300s")
	}
	throughStandby(t, "cluster2")
}

// throughStandby requires that pods on the node of a cluster's standby reach a Service of cluster1.
// Servers see its own addresses.
func throughStandby(t *testing.T, cluster string) {
	t.Helper()
	to := "http://" + globalIP(t, "cluster1", "web") + "/"
	eventually(t, time.Minute, func() error {
		_, standbys := announced(t, cluster, "cluster1")
		if len(standbys) != 1 {
			return fmt.Errorf("cluster1 knows the standbys %v", standbys)
		}
		standby := standbys[0]
		own := kubectl(t, cluster, "get", "clusterglobalegressips.submariner.io",
			standby+"-cluster-egress.submariner.io", "-o", "jsonpath={.status.allocatedIPs}")
		for _, from := range []pod{podOn(t, cluster, "web", standby), podOn(t, cluster, "host", standby)} {
			out, err := from.try("get", to, "-n", "10", "--timeout", "2s")
			if err != nil {
				return fmt.Errorf("from %s: %w: %s", from.name, err, out)
			}
			for line := range strings.Lines(out) {
				if seen := clientOf(t, line); !strings.Contains(own, fmt.Sprintf("%q", seen)) {
					return fmt.Errorf("servers saw %v, not one of %s", seen, own)
				}
			}
		}
		return nil
	})
	allConnected(t)
}

// export exports a Service of the namespace default.
func export(t *testing.T, cluster, service string) {
	t.Helper()
	apply(
		t,
		cluster,
		fmt.Sprintf(
			"apiVersion: multicluster.x-k8s.io/v1alpha1\nkind: ServiceExport\nmetadata: {name: %s, namespace: default}\n",
			service),
	)
}
