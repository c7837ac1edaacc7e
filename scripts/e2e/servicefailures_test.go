//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"subctl/internal/measure"
)

// What TestServiceFailures measures: in a lab of its own, it repeats each fault until its row in
// serviceJSON has so many runs of serviceCommit. Without serviceRuns it is skipped.
var (
	serviceRuns, _ = strconv.Atoi(os.Getenv("E2E_SERVICE_FAILURES"))
	serviceOnly    = strings.Fields(os.Getenv("E2E_SERVICE_FAULTS")) // names of faults; all if it is empty
	serviceJSON    = os.Getenv("E2E_SERVICE_JSON")                   // no rows are kept if it is empty
	serviceCommit  = os.Getenv("E2E_SERVICE_COMMIT")
)

// Three Services of the same pods: cluster1 uses its own pods for the first, and those of all
// clusters for the second. The third is exported again and again.
const failing = `
apiVersion: v1
kind: Service
metadata: {name: own, namespace: shop}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: spread, namespace: shop}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}, {name: echo, port: 7}, {name: echo-udp, port: 7, protocol: UDP}]}
---
apiVersion: v1
kind: Service
metadata: {name: late, namespace: shop}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
`

const (
	ownName    = "own.shop.svc.clusterset.local"
	spreadName = "spread.shop.svc.clusterset.local"
	lateName   = "late.shop.svc.clusterset.local"
)

// Pods in cluster1, two of which are the clients of one run. They are on a node that is not a
// gateway.
const serviceClients = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: client, namespace: default}
spec:
  replicas: 4
  selector: {matchLabels: {app: client}}
  template:
    metadata: {labels: {app: client}}
    spec:
      nodeSelector: {kubernetes.io/hostname: %s}
      terminationGracePeriodSeconds: 0
      containers:
      - {name: client, image: "lab.local/labapp:1", imagePullPolicy: Never, args: [sleep], resources: {requests: {cpu: 200m}}}
`

// serviceFault is a fault, with what it costs clients in cluster1, while it lasts, and while it
// ends.
type serviceFault struct {
	name    string
	before  func(t *testing.T, s *serviceScene)
	happen  func(t *testing.T, s *serviceScene) (gone func(who string) bool) // whose answers are wrong then
	watched time.Duration
	undo    func(t *testing.T, s *serviceScene)
	after   func(t *testing.T, s *serviceScene) // what is left to undo, without requests
	// restarts is whether agents start again, which then takes them a while to follow changes.
	restarts bool
	// alone is for faults that need no requests: it does everything, and adds to rows by their
	// names.
	alone func(t *testing.T, s *serviceScene) map[string]measure.ServiceRun
}

// serviceScene is where faults happen: clients in cluster1, pods of a Service in all clusters, and
// the broker on cluster3. Cluster2, whose gateway has a standby, is the one that fails.
type serviceScene struct {
	from   serviceClient
	next   serviceClient // for when the fault ends
	api    map[string]client.WithWatch
	victim string // the node that was killed last
	start  time.Time
	behind bool // agents may not follow changes yet
}

// serviceClient is a pod that sends requests, and its container: requests need no API server.
type serviceClient struct {
	pod
	inside container
}

// began notes when a fault begins, if that is later than its preparations.
func (s *serviceScene) began() { s.start = time.Now() }

// What failures cost clients that use names of Services.
func TestServiceFailures(t *testing.T) {
	if serviceRuns == 0 {
		t.Skip("E2E_SERVICE_FAILURES is not set: make service-failures runs this test in a lab of its own")
	}
	evidence(t, slices.Concat(nodes("cluster1"), nodes("cluster2"), nodes("cluster3")), clusters)
	s := newServiceScene(t)
	t.Cleanup(func() { repairServiceLab(t) })
	for round := range serviceRuns {
		for _, f := range serviceFaults {
			if len(serviceOnly) > 0 && !slices.Contains(serviceOnly, f.name) || f.name == brokerCut && !long {
				continue
			}
			t.Run(fmt.Sprintf("%s %d", f.name, round+1), func(t *testing.T) { s.measure(t, f, round) })
		}
	}
}

// measure runs a fault, unless its row has this round already.
func (s *serviceScene) measure(t *testing.T, f serviceFault, round int) {
	file := filepath.Join(root, serviceJSON)
	resume := func(name string) (row measure.ServiceFailure) {
		row = measure.ServiceFailure{Fault: name, Commit: serviceCommit}
		if serviceJSON != "" {
			var err error
			row, err = row.Resume(file)
			require.NoError(t, err)
		}
		return row
	}
	keep := func(name string, run measure.ServiceRun) {
		row := resume(name)
		row.Runs = append(row.Runs, run)
		t.Logf("%s: %+v", name, run)
		if serviceJSON != "" {
			require.NoError(t, row.Keep(file))
		}
	}
	if f.alone != nil {
		if row := resume(f.name + ": request"); len(row.Runs) > round {
			t.Skipf("has %d runs", len(row.Runs))
		}
		for name, run := range f.alone(t, s) {
			keep(name, run)
		}
		return
	}
	if row := resume(f.name); len(row.Runs) > round {
		t.Skipf("has %d runs", len(row.Runs))
	}
	keep(f.name, s.run(t, f))
}

// newServiceScene joins the clusters, exports the Services, and waits until all clusters answer.
func newServiceScene(t *testing.T) *serviceScene {
	t.Helper()
	s := &serviceScene{api: map[string]client.WithWatch{}}
	for _, c := range clusters {
		kubectl(t, c, "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=300s")
		deploy(t, c)
		apply(t, c, shop+"---"+failing)
		s.api[c] = api(t, c)
	}
	if _, err := os.Stat(brokerFile); err != nil {
		must(t, "subctl", "deploy-broker", "--context", "cluster3", "--broker-info", brokerFile)
	}
	for _, c := range clusters {
		s.join(t, c)
	}
	allConnected(t)
	apply(t, "cluster1", fmt.Sprintf(serviceClients, worker(t, "cluster1")))
	s.newClients(t)
	s.steady(t, 2*time.Minute) // CoreDNS reads its new configuration within two minutes
	return s
}

// newClients replaces the clients by other pods, which have other addresses. A node remembers
// connections that were not answered for two minutes, and one from the same address and port would
// lead to the same pod, perhaps a dead one. A program that has ended leaves its ports to the next
// one: so there is another client for when the fault ends.
func (s *serviceScene) newClients(t *testing.T) {
	t.Helper()
	last := []string{s.from.name, s.next.name}
	for _, name := range last {
		if name != "" {
			p := &corev1.Pod{}
			p.Namespace = "default"
			p.Name = name
			s.delete(t, "cluster1", p)
		}
	}
	var found []pod
	eventually(t, time.Minute, func() error {
		out := kubectl(
			t,
			"cluster1",
			"get",
			"pods",
			"-l",
			"app=client",
			"--sort-by=.metadata.creationTimestamp",
			"-o",
			`jsonpath={range `+
				`.items[?(@.status.phase=="Running")]}{.metadata.name} {.spec.nodeName} {.status.podIP} {.metadata.deletionTimestamp}{"\n"}{end}`,
		)
		found = nil
		for line := range strings.Lines(out) {
			if f := strings.Fields(line); len(f) == 3 && !slices.Contains(last, f[0]) {
				found = append(found, pod{"cluster1", f[0], f[1], f[2]})
			}
		}
		if len(found) < 2 {
			return fmt.Errorf("want two clients: %s", out)
		}
		return nil
	})
	s.from = serviceClient{found[0], containerOf(t, found[0])}
	s.next = serviceClient{found[1], containerOf(t, found[1])}
}

// join joins a cluster, and exports its Services. Cluster2 gets a standby.
func (s *serviceScene) join(t *testing.T, c string) {
	t.Helper()
	args := []string{"subctl", "join", brokerFile, "--context", c, "--image", image}
	if c == "cluster2" {
		args = append(args, "--gateways", "2")
	}
	must(t, args...)
	inShop(t, c, "rollout", "status", "deployment/web", "--timeout=300s")
	exportService(t, c, "own")
	must(t, "subctl", "export", "service", "spread", "-n", "shop", "--context", c, "--spread")
}

// steady waits until the pods answer that should.
func (s *serviceScene) steady(t *testing.T, within time.Duration) {
	t.Helper()
	eventually(t, within, func() error {
		own := make(chan error, 1)
		go func() { own <- answersUnder(ownName, s.from.pod, "cluster1") }()
		return errors.Join(answersUnder(spreadName, s.from.pod, clusters...), <-own)
	})
}

// follows waits until cluster1 follows what cluster2 exports: agents that were killed take their
// time.
func (s *serviceScene) follows(t *testing.T) {
	t.Helper()
	export := &mcsv1alpha1.ServiceExport{}
	export.Namespace = "shop"
	export.Name = "late"
	s.delete(t, "cluster2", export)
	eventually(t, time.Minute, func() error { return resolves(s.from.pod, lateName, "NXDOMAIN") })
	require.NoError(t, s.api["cluster2"].Create(t.Context(), export.DeepCopy()))
	eventually(t, time.Minute, func() error { return resolves(s.from.pod, lateName, "NOERROR") })
	s.delete(t, "cluster2", export)
	eventually(t, time.Minute, func() error { return resolves(s.from.pod, lateName, "NXDOMAIN") })
	s.behind = false
}

// run runs a fault while requests are sent, and connections are open.
func (s *serviceScene) run(t *testing.T, f serviceFault) (run measure.ServiceRun) {
	t.Helper()
	if f.before != nil {
		f.before(t, s)
	}
	s.newClients(t)
	s.steady(t, time.Minute)
	if s.behind {
		s.follows(t)
	}
	s.behind = f.restarts
	long := beginFlows(t, s.from.inside, spreadName+".:7", "--udp", "1", "--rate", "1", "--tcp", "100")
	stop := s.requests(t)
	time.Sleep(time.Second / 2)
	s.began()
	gone := f.happen(t, s)
	time.Sleep(time.Until(s.start.Add(f.watched)))
	spread, own := stop()
	run.Spread = inTime(spread)
	run.Own = inTime(own)
	run.Wrong = max(lastWrong(spread, s.start, gone), lastWrong(own, s.start, gone))
	if f.undo != nil {
		s.from, s.next = s.next, s.from
		stop = s.requests(t)
		f.undo(t, s)
		s.steady(t, 2*time.Minute)
		spread, own = stop()
		run.Spread.Back = spread.Failed
		run.Own.Back = own.Failed
	}
	if f.after != nil {
		f.after(t, s)
	}
	broken := map[string]int{}
	for _, c := range long.stop(t).TCP {
		run.Opened++
		if c.Err != "" {
			run.Broken++
			broken[ownPort.ReplaceAllString(c.Err, "")]++
		}
	}
	if run.Broken > 0 {
		t.Logf("broken: %v", broken)
	}
	return run
}

// ownPort is what differs between the errors of connections.
var ownPort = regexp.MustCompile(`:\d+->`)

// requests sends 200 requests a second until stop is called, half of them to each Service.
func (s *serviceScene) requests(t *testing.T) (stop func() (spread, own requested)) {
	t.Helper()
	start := func(name string) func() requested {
		command := s.from.inside.command("requests", "http://"+name+"./", "--rate", "100", "--seconds", "0",
			"--timeout", "2s")
		return runRequests(t, command...)
	}
	spread := start(spreadName)
	own := start(ownName)
	return func() (requested, requested) { return spread(), own() }
}

func inTime(r requested) measure.ServiceRequests {
	return measure.ServiceRequests{Sent: r.Sent, Lost: r.Failed, Gap: r.LongestGapMs}
}

// lastWrong returns when the last request was sent that failed, or was answered by who is gone, in
// ms from a time on.
func lastWrong(r requested, from time.Time, gone func(who string) bool) float64 {
	last := 0.0
	wrong := func(ms int) { last = max(last, float64(r.StartedUnixMs+int64(ms)-from.UnixMilli())) }
	if r.Failed > 0 {
		wrong(r.LastFailedMs)
	}
	for who, a := range r.Answers {
		if gone != nil && gone(who) {
			wrong(a.LastMs)
		}
	}
	return last
}

// exported exports a Service of cluster2 that clients in cluster1 ask for since a second, and
// returns when they got an answer: from the DNS servers, from the cluster's DNS, and from a pod.
func exported(t *testing.T, s *serviceScene) map[string]measure.ServiceRun {
	server := kubectl(t, "cluster1", "-n", "submariner-operator", "get", "service", "submariner-dns", "-o",
		"jsonpath={.spec.clusterIP}")
	export := &mcsv1alpha1.ServiceExport{}
	export.Namespace = "shop"
	export.Name = "late"
	s.delete(t, "cluster2", export)
	eventually(t, 10*time.Second, func() error { return resolves(s.from.pod, lateName, "NXDOMAIN") })

	type answer struct {
		row string
		at  float64
		err error
	}
	answers := make(chan answer, 3)
	ask := func(row string, at func(out string) (int64, error), args ...string) {
		go func() {
			// what containerd warns of is not in it
			out, err := command(t.Context(), s.from.inside.command(args...)...).Output()
			if err != nil {
				answers <- answer{row: row, err: fmt.Errorf("%w: %s", err, out)}
				return
			}
			ms, err := at(string(out))
			answers <- answer{row: row, at: float64(ms), err: err}
		}()
	}
	ask("exported: DNS server", resolvedAt, "resolve", lateName, "--server", server, "--until", "NOERROR", "--timeout",
		"60s")
	ask("exported: cluster's DNS", resolvedAt, "resolve", lateName, "--until", "NOERROR", "--timeout", "60s")
	ask("exported: request", answeredAt, "requests", "http://"+lateName+"./", "--rate", "50", "--seconds", "60",
		"--answers", "1", "--timeout", "2s")
	time.Sleep(time.Second)
	began := time.Now()
	require.NoError(t, s.api["cluster2"].Create(t.Context(), export.DeepCopy()))
	out := map[string]measure.ServiceRun{}
	for range cap(answers) {
		a := <-answers
		require.NoError(t, a.err, a.row)
		out[a.row] = measure.ServiceRun{Wrong: a.at - float64(began.UnixMilli())}
	}
	s.delete(t, "cluster2", export)
	return out
}

// resolvedAt returns when "labapp resolve" got its answer.
func resolvedAt(out string) (int64, error) {
	_, at, ok := strings.Cut(out, "\nat ")
	if !ok {
		return 0, fmt.Errorf("no time in %q", out)
	}
	return strconv.ParseInt(strings.TrimSpace(at), 10, 64)
}

// answeredAt returns when the first request was sent that was answered.
func answeredAt(out string) (int64, error) {
	var r requested
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		return 0, fmt.Errorf("%w: %s", err, out)
	}
	for _, a := range r.Answers {
		return r.StartedUnixMs + int64(a.FirstMs), nil
	}
	return 0, fmt.Errorf("nobody answered: %s", out)
}

// delete deletes an object, if it exists.
func (s *serviceScene) delete(t *testing.T, cluster string, o client.Object) {
	t.Helper()
	require.NoError(t, client.IgnoreNotFound(s.api[cluster].Delete(t.Context(), o.DeepCopyObject().(client.Object))))
}

// patch changes an object of the Services' namespace.
func (s *serviceScene) patch(t *testing.T, cluster string, o client.Object, name, patch string) {
	t.Helper()
	o.SetNamespace("shop")
	o.SetName(name)
	require.NoError(t, s.api[cluster].Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// repairServiceLab heals and starts what a failed test has left.
func repairServiceLab(t *testing.T) {
	if !t.Failed() {
		return
	}
	names := []string{}
	for _, c := range clusters {
		names = append(append(names, c+"-api"), nodes(c)...)
	}
	out, err := sh("lab", "heal")
	assert.NoError(t, err, out)
	for _, name := range names {
		out, err := sh("lab", "start", name)
		assert.NoError(t, err, "%s: %s", name, out)
	}
}

// Failures and answers count, from the beginning of the fault on, and answers only of who is gone.
func TestLastWrong(t *testing.T) {
	start := time.Now()
	var r requested
	require.NoError(
		t,
		json.Unmarshal(fmt.Appendf(nil, `{"startedUnixMs": %d, "failed": 1, "lastFailedMs": 2700, "answers": {
		"pod=a node=cluster1-node1 ips=10.1.1.1": {"lastMs": 5000}, "pod=b node=cluster2-node1 ips=10.1.1.2": {"lastMs": 2900}}}`,
			start.UnixMilli()), &r),
	)
	require.EqualValues(t, 700, lastWrong(r, start.Add(2*time.Second), nil))
	require.EqualValues(t, 900, lastWrong(r, start.Add(2*time.Second), in("cluster2")))
	require.Zero(t, lastWrong(r, start.Add(3*time.Second), in("cluster2")), "before the fault")
	require.Zero(t, lastWrong(requested{StartedUnixMs: start.UnixMilli()}, start.Add(-time.Second), nil),
		"nothing was wrong")
}
