package agent

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cluster"
	"subctl/cluster/clustertest"
	"subctl/internal/kubetest"
	"subctl/internal/measure"
	"subctl/services"
	"subctl/services/discoverer"
)

// servicesAgentOf is set in the process that runs an agent of service discovery for a benchmark.
const servicesAgentOf = "SUBCTL_SERVICES_AGENT"

// servicesProcess is what that process needs to know.
type servicesProcess struct {
	Kubeconfig, Metrics string
	Account             rest.ImpersonationConfig
}

// TestServicesAgentProcess is the process of a servicesAgent. It runs the agent with the settings
// that its pod has.
func TestServicesAgentProcess(t *testing.T) {
	text := os.Getenv(servicesAgentOf)
	if text == "" {
		t.Skip("only in the process that a benchmark starts")
	}
	var p servicesProcess
	require.NoError(t, json.Unmarshal([]byte(text), &p))
	config, err := clientcmd.BuildConfigFromFlags("", p.Kubeconfig)
	require.NoError(t, err)
	config.Impersonate = p.Account
	runtime.GOMAXPROCS(1) // as subctl agent does
	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGTERM)
	defer stop()
	require.NoError(t, Run(ctx, Options{
		Role: discoverer.Role(), Kernel: NoKernel(), Node: "node", MetricsAddr: p.Metrics, ProbeAddr: "127.0.0.1:0",
		Config: config, Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}))
}

// servicesAgent is an agent of service discovery in a process of its own.
type servicesAgent struct {
	b       *testing.B
	process *exec.Cmd
	metrics string
}

// startServicesAgent starts an agent with the rights of an account of the server.
func startServicesAgent(b *testing.B, server *kubetest.Server, account rest.ImpersonationConfig) *servicesAgent {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	require.NoError(b, l.Close())
	a := &servicesAgent{b: b, metrics: l.Addr().String()}
	text, err := json.Marshal(servicesProcess{server.Kubeconfig(), a.metrics, account})
	require.NoError(b, err)
	a.process = exec.CommandContext(b.Context(), os.Args[0], "-test.run", "^TestServicesAgentProcess$", "-test.timeout",
		"1h")
	a.process.Env = append(os.Environ(), servicesAgentOf+"="+string(text),
		fmt.Sprintf("GOMEMLIMIT=%d", cluster.GoMemory(cluster.ServicesMemory)),
		fmt.Sprintf("GOGC=%d", cluster.ServicesGC))
	a.process.Stderr = os.Stderr
	require.NoError(b, a.process.Start())
	return a
}

// stop tells the agent to end, and waits until it has.
func (a *servicesAgent) stop() {
	_ = a.process.Process.Signal(syscall.SIGTERM)
	_ = a.process.Wait()
}

func (a *servicesAgent) cpu() float64 { return measure.CPUOf(a.b, a.process.Process.Pid) }

// memory returns what the process has resident, in MiB: VmRSS now, VmHWM at most.
func (a *servicesAgent) memory(what string) float64 {
	a.b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.process.Process.Pid))
	require.NoError(a.b, err)
	kib, err := strconv.ParseFloat(string(regexp.MustCompile(what + `:\s+(\d+) kB`).FindSubmatch(status)[1]), 64)
	require.NoError(a.b, err)
	return kib / (1 << 10)
}

var writeRequests = regexp.MustCompile(`(?m)^rest_client_requests_total\{.*method="(?:PATCH|PUT|POST|DELETE)"\} (\S+)$`)

// writes returns how many requests the agent has sent that write.
func (a *servicesAgent) writes() (n float64) {
	a.b.Helper()
	answer, err := http.Get("http://" + a.metrics + "/metrics")
	require.NoError(a.b, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(a.b, err)
	for _, m := range writeRequests.FindAllSubmatch(text, -1) {
		of, err := strconv.ParseFloat(string(m[1]), 64)
		require.NoError(a.b, err)
		n += of
	}
	return n
}

// follower watches objects of a kind as they come.
type follower[T client.Object] struct {
	each func(T) // is called with each object as it comes; nil for nothing

	mu      sync.Mutex
	objects map[client.ObjectKey]T
	events  int
	news    chan struct{}
}

// changes returns how many changes have come.
func (f *follower[T]) changes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.events
}

// follow follows all objects of a kind until the benchmark ends.
func follow[T client.Object](
	b *testing.B, server *kubetest.Server, list client.ObjectList, each func(T), o ...client.ListOption,
) *follower[T] {
	b.Helper()
	f := &follower[T]{each: each, objects: map[client.ObjectKey]T{}, news: make(chan struct{}, 1)}
	c, err := client.NewWithWatch(server.Config(), client.Options{Scheme: kubetest.Scheme(b)})
	require.NoError(b, err)
	w, err := c.Watch(b.Context(), list, o...)
	require.NoError(b, err)
	b.Cleanup(w.Stop)
	go func() {
		for e := range w.ResultChan() {
			o, is := e.Object.(T)
			if !is {
				continue
			}
			if f.each != nil {
				f.each(o)
			}
			f.mu.Lock()
			f.events++
			f.objects[client.ObjectKeyFromObject(o)] = o
			f.mu.Unlock()
			select {
			case f.news <- struct{}{}:
			default:
			}
		}
	}()
	return f
}

// until waits until so many objects are as wanted.
func (f *follower[T]) until(b *testing.B, n int, wanted func(T) bool) {
	b.Helper()
	deadline := time.After(30 * time.Minute)
	for {
		count := 0
		f.mu.Lock()
		for _, o := range f.objects {
			if wanted(o) {
				count++
			}
		}
		f.mu.Unlock()
		if count >= n {
			return
		}
		pause := time.After(time.Duration(n) * 20 * time.Microsecond) // looking at many costs time
		select {
		case <-f.news:
		case <-deadline:
			b.Fatalf("%d of %d objects", count, n)
		}
		<-pause
	}
}

// fleetOf has members whose pages are on an API server, as speakers copy them.
type fleetOf struct {
	client.Client
	b     *testing.B
	pages map[string][]*v1alpha1.ExportedServices
}

// newFleet creates clusters, each with Services of 5 pods, in namespace shop.
func newFleet(b *testing.B, admin client.Client, clusters, each int) *fleetOf {
	b.Helper()
	f := &fleetOf{admin, b, map[string][]*v1alpha1.ExportedServices{}}
	var all []client.Object
	for c := range clusters {
		id := fmt.Sprintf("east-%d", c)
		label := map[string]string{submarinerv1.ClusterIDLabel: id}
		all = append(all, &submarinerv1.Cluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: id, Labels: label},
			Spec: submarinerv1.ClusterSpec{
				ClusterID: id, ClusterCIDR: []string{fmt.Sprintf("10.%d.0.0/16", 120+c)},
				ServiceCIDR: []string{fmt.Sprintf("10.%d.0.0/16", 140+c)}, GlobalCIDR: []string{},
			},
		})
		var records []v1alpha1.ExportedService
		for s := range each {
			r := record(fmt.Sprintf("shop-frontend-%d-%04d", c, s), "")
			r.Address = fmt.Sprintf("10.%d.%d.%d", 140+c, s>>8, s&255)
			r.Endpoints[0].Pods = nil
			for p := range 5 {
				ip := fmt.Sprintf("10.%d.%d.%d", 120+c, (5*s+p)>>8, (5*s+p)&255)
				r.Endpoints[0].Pods = append(r.Endpoints[0].Pods, v1alpha1.ExportedEndpoint{IP: ip, Zone: "zone-a"})
			}
			records = append(records, r)
		}
		pages, left := services.Pages(id, nil, records)
		require.Empty(b, left)
		for _, page := range pages {
			page.Namespace = cluster.Namespace
			page.Labels = label
			all = append(all, page)
		}
		f.pages[id] = pages
	}
	createAll(b, admin, all)
	return f
}

// createAll creates objects, 16 at a time.
func createAll(b *testing.B, admin client.Client, all []client.Object) {
	b.Helper()
	var creating sync.WaitGroup
	next := make(chan client.Object)
	for range 16 {
		creating.Go(func() {
			for o := range next {
				if err := admin.Create(b.Context(), o); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for _, o := range all {
		next <- o
	}
	close(next)
	creating.Wait()
}

// change gives a Service of a cluster another first pod, and returns its address and when it was
// written.
func (f *fleetOf) change(n int) (ip string, at time.Time) {
	f.b.Helper()
	id := fmt.Sprintf("east-%d", n%len(f.pages))
	page := f.pages[id][n%len(f.pages[id])]
	ip = fmt.Sprintf("10.%d.200.%d", 120+n%len(f.pages), n)
	page.Spec.Services[0].Endpoints[0].Pods[0].IP = ip
	at = time.Now()
	require.NoError(f.b, f.Update(f.b.Context(), page))
	return ip, at
}

// BenchmarkServicesImport measures the agent of service discovery with 10 clusters of 1,000
// Services of 5 pods, on a real API server, with the rights that it has: until all are imported,
// after a restart, and after a change.
func BenchmarkServicesImport(b *testing.B) {
	const clusters, each, all, changes = 10, 1000, 10_000, 50
	server := kubetest.Start(b)
	sub := clustertest.Submariner()
	sub.Spec.ServiceDiscoveryEnabled = true
	sub.Spec.ServiceCIDR = "10.96.0.0/16"
	admin, config := installed(b, server, sub, cluster.ServiceDiscoveryName)
	require.NoError(b, admin.Create(b.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}))
	fleet := newFleet(b, admin, clusters, each)
	imports := follow[*mcsv1alpha1.ServiceImport](b, server, &mcsv1alpha1.ServiceImportList{}, nil)
	slicesOf := follow[*discoveryv1.EndpointSlice](b, server, &discoveryv1.EndpointSliceList{}, nil,
		client.MatchingLabels{discoveryv1.LabelManagedBy: services.ManagedBy})
	has := func(ip string) func(*discoveryv1.EndpointSlice) bool {
		return func(s *discoveryv1.EndpointSlice) bool {
			return slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return e.Addresses[0] == ip })
		}
	}
	for b.Loop() {
		const name = "10 clusters of 1,000 Services of 5 pods: "
		began := time.Now()
		serverBefore := measure.CPUOf(b, server.PID())
		a := startServicesAgent(b, server, config.Impersonate)
		imports.until(b, all, func(i *mcsv1alpha1.ServiceImport) bool {
			return len(i.Spec.IPs) == 1 && len(i.Status.Clusters) == 1 && len(i.Status.Conditions) > 0
		})
		slicesOf.until(b, all, func(s *discoveryv1.EndpointSlice) bool { return len(s.Endpoints) == 5 })
		took := time.Since(began).Seconds()
		cpu := a.cpu()
		writes := a.writes()
		peak := a.memory("VmHWM")
		b.Logf("from nothing: %.1f s, %.1f s CPU, %v writes, %.0f MiB", took, cpu, writes, peak)
		measure.Record(
			b,
			measure.AtMost(name+"from nothing", measure.Values{took}, 300, "s"),
			measure.Info(name+"from nothing, CPU time of the agent", measure.Values{cpu}, "s"),
			measure.Info(name+"from nothing, CPU time of the API server",
				measure.Values{measure.CPUOf(b, server.PID()) - serverBefore}, "s"),
			measure.AtMost(name+"from nothing, writes for each", measure.Values{writes / all}, 6, "writes"),
		)

		time.Sleep(5 * time.Second)
		a.stop()
		ip, _ := fleet.change(0)
		began = time.Now()
		a = startServicesAgent(b, server, config.Impersonate)
		slicesOf.until(b, 1, has(ip))
		restart := time.Since(began).Seconds()
		restartCPU := a.cpu()
		time.Sleep(5 * time.Second)
		b.Logf("restart: %.1f s, %.1f s CPU, peak %.0f MiB", restart, restartCPU, a.memory("VmHWM"))

		before := a.cpu()
		wrote := a.writes()
		var each measure.Values
		for n := range changes {
			ip, at := fleet.change(n + 1)
			slicesOf.until(b, 1, has(ip))
			each = append(each, time.Since(at).Seconds())
			time.Sleep(250 * time.Millisecond)
		}
		slices.Sort(each)
		b.Logf("changes: p50 %.3f, max %.3f, CPU %.3f s each, %v writes", each.Median(), each[changes-1],
			(a.cpu()-before)/changes, a.writes()-wrote)
		measure.Record(b,
			measure.AtMost(name+"restart until a change is followed", measure.Values{restart}, 20, "s"),
			measure.Info(name+"restart until a change is followed, CPU time", measure.Values{restartCPU}, "s"),
			measure.AtMost(name+"a change is followed after", each, 1, "s"),
			measure.AtMost(name+"a change is followed after, at most", measure.Values{each[changes-1]}, 1, "s"),
			measure.Info(name+"CPU time for a change", measure.Values{1000 * (a.cpu() - before) / changes}, "ms"),
			measure.AtMost(name+"memory of the agent", measure.Values{max(peak, a.memory("VmHWM"))}, 256, "MiB"),
		)
		a.stop()
	}
}
