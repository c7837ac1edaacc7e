//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// serviceDiscovery is whether the lab is the one of TestServices and TestConformance: three
// clusters, whose kube-proxies write rules of iptables (cluster1, cluster3) and of nftables
// (cluster2).
var serviceDiscovery = os.Getenv("E2E_SERVICES") != ""

func servicesLab() (steps [][]string) {
	for i, mode := range []string{"iptables", "nftables", "iptables"} {
		steps = append(steps, []string{
			"lab", "up", "--first", fmt.Sprint(i + 1), "--clusters", "1", "--nodes", fmt.Sprint(nodesEach),
			"--proxy-mode", mode, "--timeout", "10m",
		})
	}
	return steps
}

// What clusters export: a Service with pods that answer for a while after they were deleted, as
// servers should, and a headless one.
const shop = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: lab.local/labapp:1
        imagePullPolicy: Never
        args: [web]
        env: [{name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
        readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
        lifecycle: {preStop: {sleep: {seconds: 5}}}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: shop}
spec:
  serviceName: db
  replicas: 2
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: db
        image: lab.local/labapp:1
        imagePullPolicy: Never
        args: [web]
        readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec: {clusterIP: None, selector: {app: db}, ports: [{name: http, port: 8080}]}
`

const (
	webName = "web.shop.svc.clusterset.local"
	dbName  = "db.shop.svc.clusterset.local"
)

// discovered is how long a change of an exported Service may take until all clusters know it, on a
// slow machine. How long it takes is measured by TestServiceFailures.
const discovered = 20 * time.Second

// corefiles are the Corefiles of the clusters before they joined.
var corefiles = map[string]string{}

// Three clusters find each other's Services by name, use their own pods first and those of others
// when they have none, and the DNS of a cluster is as before after uninstalling.
func TestServices(t *testing.T) {
	if !serviceDiscovery {
		t.Skip("E2E_SERVICES is not set: make e2e-services runs this test in a lab of its own")
	}
	evidence(t, slices.Concat(nodes("cluster1"), nodes("cluster2"), nodes("cluster3")), clusters)
	for _, step := range []struct {
		name string
		test func(*testing.T)
	}{
		{"joined", servicesJoined},
		{"exported", serviceExported},
		{"answers for all types", serviceRecords},
		{"own pods first", serviceOwnFirst},
		{"without own pods", serviceFailsOver},
		{"no longer exported", serviceUnexported},
		{"headless", serviceHeadless},
		{"uninstall", servicesUninstalled},
	} {
		if !t.Run(step.name, step.test) {
			t.FailNow()
		}
	}
}

// servicesJoined joins the clusters, unless another test has done so.
func servicesJoined(t *testing.T) {
	if len(corefiles) > 0 {
		return
	}
	for _, c := range clusters {
		kubectl(t, c, "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=300s")
		corefiles[c] = corefile(t, c)
		require.Contains(t, corefiles[c], "cluster.local")
		require.NotContains(t, corefiles[c], "clusterset.local")
		deploy(t, c)
		apply(t, c, shop)
	}
	must(t, "subctl", "deploy-broker", "--context", "cluster1", "--broker-info", brokerFile)
	for _, c := range clusters {
		join(t, c)
		require.Contains(t, corefile(t, c), "clusterset.local")
		for _, what := range []string{"deployment/web", "statefulset/db"} {
			inShop(t, c, "rollout", "status", what, "--timeout=300s")
		}
	}
	connected(t)
	for _, c := range clusters {
		scale(t, c, "deployment/web", map[string]int{"cluster1": 0, "cluster2": 2, "cluster3": 2}[c])
		eventually(t, 30*time.Second, func() error { // CoreDNS reads its new configuration a moment later
			out, err := clientIn(t, c).try("resolve", "dns-version.clusterset.local", "--type", "TXT")
			if err != nil || !strings.Contains(out, `["1.0.0"]`) {
				return fmt.Errorf("the domain in %s: %v: %s", c, err, out)
			}
			return nil
		})
	}
}

// serviceExported exports a Service of cluster2: its name works in all clusters.
func serviceExported(t *testing.T) {
	exportService(t, "cluster2", "web")
	for _, c := range clusters {
		from := clientIn(t, c)
		eventually(t, discovered, func() error { return answersOf(from, "cluster2") })
	}
	ip := inShop(t, "cluster1", "get", "serviceimports", "web", "-o", "jsonpath={.spec.ips[0]}")
	require.NoError(t, resolves(clientIn(t, "cluster1"), webName, "NOERROR", ip), "the address of the import")
}

// serviceRecords checks what clients other than ours ask for.
func serviceRecords(t *testing.T) {
	from := clientIn(t, "cluster1")
	require.Contains(t, from.exec(t, "resolve", webName, "--tcp"), "NOERROR\n"+webName+". ")
	aaaa := from.exec(t, "resolve", webName, "--type", "AAAA")
	require.Regexp(t, `^NOERROR\n; `, aaaa, "the name exists, but no such record: musl would not ask for A otherwise")
	require.Contains(t, from.exec(t, "resolve", "_http._tcp."+webName, "--type", "SRV"), " 80 "+webName+".\n")
	for _, name := range []string{"nothing.shop.svc.clusterset.local", "web.default.svc.clusterset.local", dbName} {
		require.NoError(t, resolves(from, name, "NXDOMAIN"), "not exported")
	}
	require.NoError(t, resolves(from, "web.shop.svc.cluster.local", "NOERROR"), "the cluster's own names are as before")
}

// serviceOwnFirst exports the Service of cluster3, too: each exporter uses its own pods, and
// cluster1, which has none, those of both.
func serviceOwnFirst(t *testing.T) {
	exportService(t, "cluster3", "web")
	eventually(t, discovered, func() error { return answersOf(clientIn(t, "cluster3"), "cluster3") })
	eventually(t, discovered, func() error { return answersOf(clientIn(t, "cluster1"), "cluster2", "cluster3") })
	require.NoError(t, answersOf(clientIn(t, "cluster2"), "cluster2"))
}

// serviceFailsOver takes the pods of cluster3 away under requests: those of cluster2 answer its
// clients, until cluster3 has pods again.
func serviceFailsOver(t *testing.T) {
	stop := startRequests(t, clientIn(t, "cluster3"), "http://"+webName+"./")
	scale(t, "cluster3", "deployment/web", 0)
	eventually(t, discovered, func() error { return answersOf(clientIn(t, "cluster3"), "cluster2") })
	scale(t, "cluster3", "deployment/web", 2)
	eventually(t, discovered, func() error { return answersOf(clientIn(t, "cluster3"), "cluster3") })
	got := stop()
	require.Zero(t, got.Failed, "%+v: pods answer until their clients use others", got)
	require.Equal(t, []string{"cluster2", "cluster3"}, got.clusters())
}

// serviceUnexported ends both exports: the name ends with the second.
func serviceUnexported(t *testing.T) {
	unexportService(t, "cluster2", "web")
	for _, c := range clusters {
		eventually(t, discovered, func() error { return answersOf(clientIn(t, c), "cluster3") })
	}
	unexportService(t, "cluster3", "web")
	for _, c := range clusters {
		eventually(t, discovered, func() error { return resolves(clientIn(t, c), webName, "NXDOMAIN") })
		eventually(t, discovered, func() error {
			out := inShop(t, c, "get", "serviceimports,services,endpointslices", "-o", "name")
			if strings.Contains(out, "serviceimport") || strings.Contains(out, "derived-") {
				return fmt.Errorf("%s still has %s", c, out)
			}
			return nil
		})
	}
}

// serviceHeadless exports the StatefulSets of two clusters: their pods have names that tell the
// cluster.
func serviceHeadless(t *testing.T) {
	exporters := []string{"cluster2", "cluster3"}
	var addresses []string
	for _, c := range exporters {
		exportService(t, c, "db")
		ips := inShop(t, c, "get", "pods", "-l", "app=db", "-o", "jsonpath={.items[*].status.podIP}")
		addresses = append(addresses, strings.Fields(ips)...)
	}
	from := clientIn(t, "cluster1")
	eventually(t, discovered, func() error { return resolves(from, dbName, "NOERROR", addresses...) })
	for _, c := range exporters {
		for _, pod := range []string{"db-0", "db-1"} {
			name := pod + "." + c + "." + dbName
			ip := inShop(t, c, "get", "pod", pod, "-o", "jsonpath={.status.podIP}")
			require.NoError(t, resolves(from, name, "NOERROR", ip))
			require.Contains(t, from.exec(t, "resolve", "_http._tcp."+dbName, "--type", "SRV"), " 8080 "+name+".")
			require.Contains(t, from.exec(t, "get", "http://"+name+":8080/"), "pod="+pod+" ")
		}
	}
	inShop(t, "cluster2", "scale", "statefulset/db", "--replicas", "1")
	eventually(t, discovered, func() error { return resolves(from, "db-1.cluster2."+dbName, "NXDOMAIN") })
	for _, c := range exporters {
		unexportService(t, c, "db")
	}
	eventually(t, discovered, func() error { return resolves(from, dbName, "NXDOMAIN") })
}

// servicesUninstalled uninstalls, while a Service is exported. DNS is as it was before joining.
func servicesUninstalled(t *testing.T) {
	exportService(t, "cluster2", "web")
	eventually(t, discovered, func() error { return answersOf(clientIn(t, "cluster1"), "cluster2") })
	uninstallAll(t)
	for _, c := range clusters {
		require.Equal(t, corefiles[c], corefile(t, c), c)
		from := pods(t, c, "web")[0]
		eventually(t, discovered, func() error { return resolves(from, webName, "NXDOMAIN") })
		require.NoError(t, resolves(from, "kubernetes.default.svc.cluster.local", "NOERROR"))
		left := inShop(t, c, "get", "services,endpointslices", "-o", "name")
		require.NotContains(t, left, "derived-", c)
	}
}

// clientIn returns a pod of a cluster that is not on the node of its gateway.
func clientIn(t *testing.T, cluster string) pod {
	t.Helper()
	return podOn(t, cluster, "web", worker(t, cluster))
}

// inShop runs kubectl in the namespace of the exported Services.
func inShop(t *testing.T, cluster string, args ...string) string {
	t.Helper()
	return kubectl(t, cluster, append([]string{"-n", "shop"}, args...)...)
}

func corefile(t *testing.T, cluster string) string {
	t.Helper()
	return kubectl(t, cluster, "-n", "kube-system", "get", "configmap", "coredns", "-o", "jsonpath={.data.Corefile}")
}

func exportService(t *testing.T, cluster, service string) {
	t.Helper()
	must(t, "subctl", "export", "service", service, "-n", "shop", "--context", cluster)
}

func unexportService(t *testing.T, cluster, service string) {
	t.Helper()
	must(t, "subctl", "unexport", "service", service, "-n", "shop", "--context", cluster)
}

// scale changes the number of pods, and waits until new ones are ready.
func scale(t *testing.T, cluster, what string, replicas int) {
	t.Helper()
	inShop(t, cluster, "scale", what, "--replicas", fmt.Sprint(replicas))
	inShop(t, cluster, "rollout", "status", what, "--timeout=300s")
}

// resolves returns an error unless a name has an answer with such a code, and, if there are
// addresses, just these.
func resolves(from pod, name, code string, addresses ...string) error {
	out, err := from.try("resolve", name)
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	got, records, _ := strings.Cut(out, "\n")
	if got != code {
		return fmt.Errorf("%s in %s: want %s, got %s", name, from.cluster, code, out)
	}
	if len(addresses) == 0 {
		return nil
	}
	var found []string
	for line := range strings.Lines(records) {
		if f := strings.Fields(line); len(f) == 4 && f[2] == "A" {
			found = append(found, f[3])
		}
	}
	want := slices.Sorted(slices.Values(addresses))
	if slices.Sort(found); !slices.Equal(found, want) {
		return fmt.Errorf("%s in %s: want %v, got %s", name, from.cluster, want, out)
	}
	return nil
}

// requested is what "labapp requests" prints.
type requested struct {
	StartedUnixMs              int64
	Sent, Failed, LastFailedMs int
	LongestGapMs               float64
	FailedAtMs                 []int
	Errors                     map[string]int
	Answers                    map[string]struct{ Count, FirstMs, LastMs int } // by pod
}

// clusters are those whose pods have answered.
func (r requested) clusters() []string {
	found := map[string]bool{}
	for who := range r.Answers {
		_, node, _ := strings.Cut(who, " node=")
		cluster, _, _ := strings.Cut(node, "-")
		found[cluster] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// answersOf returns an error unless pods of just these clusters answer under the name of the
// Service, in a second of requests.
func answersOf(from pod, want ...string) error { return answersUnder(webName, from, want...) }

// answersUnder is answersOf for another name.
func answersUnder(name string, from pod, want ...string) error {
	out, err := from.try("requests", "http://"+name+"./", "--rate", "50", "--seconds", "1", "--timeout", "2s")
	if err != nil {
		return fmt.Errorf("requests from %s: %w: %s", from.cluster, err, out)
	}
	var r requested
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	if got := r.clusters(); r.Failed > 0 || !slices.Equal(got, want) {
		return fmt.Errorf("requests from %s: want answers of %v: %s", from.cluster, want, out)
	}
	return nil
}

// startRequests sends requests from a pod until stop is called, which returns what became of them.
func startRequests(t *testing.T, from pod, url string) (stop func() requested) {
	t.Helper()
	return runRequests(t, "kubectl", "--context", from.cluster, "exec", "-i", from.name, "--",
		"/labapp", "requests", url, "--seconds", "0")
}

// runRequests starts a command that sends requests until its standard input ends. It returns once
// the first one is answered.
func runRequests(t *testing.T, args ...string) (stop func() requested) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
	t.Cleanup(cancel)
	var out bytes.Buffer
	errs := awaiting("requests are answered")
	cmd := command(ctx, args...)
	cmd.Stdout = &out
	cmd.Stderr = &errs
	end, err := cmd.StdinPipe()
	require.NoError(t, err)
	t.Cleanup(func() { _ = end.Close() }) // if stop is not reached
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-errs.heard:
	case err := <-ended:
		t.Fatalf("%s: %v: %s%s", strings.Join(args, " "), err, &out, errs.text)
	case <-time.After(slack * 30 * time.Second):
		t.Fatalf("%s: no answer", strings.Join(args, " "))
	}
	return func() (r requested) {
		t.Helper()
		require.NoError(t, end.Close())
		require.NoError(t, <-ended, "%s%s", &out, errs.text)
		require.NoError(t, json.Unmarshal(out.Bytes(), &r), out.String())
		t.Logf("%s: %+v", strings.Join(args, " "), r)
		return r
	}
}
