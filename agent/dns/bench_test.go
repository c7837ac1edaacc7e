package dns

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	wire "github.com/miekg/dns"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/clientcmd"

	"subctl/cluster"
	"subctl/internal/kubetest"
	"subctl/internal/measure"
)

// serveOnly is the environment variable that makes the test binary serve at an address on one core,
// and nothing else: DNS, from the API server of a kubeconfig, or echoes.
const serveOnly = "SUBCTL_TEST_DNS"

// serveAlone serves until the process is killed.
func serveAlone(what string) error {
	runtime.GOMAXPROCS(1)
	address, kubeconfig, _ := strings.Cut(what, " ")
	if kubeconfig == "" {
		return echo(address)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	o := Options{
		ClusterID:   "east",
		Listen:      address,
		MetricsAddr: "127.0.0.1:0",
		ProbeAddr:   "127.0.0.1:0",
		Config:      config,
		Log:         discard,
	}
	return Run(context.Background(), o)
}

// echo answers packets with themselves.
func echo(address string) error {
	c, err := net.ListenPacket("udp", address)
	if err != nil {
		return err
	}
	buf := make([]byte, 512)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			return err
		}
		if _, err := c.WriteTo(buf[:n], from); err != nil {
			return err
		}
	}
}

// process is a server in a process of its own.
type process struct {
	address string
	pid     int
	client  net.Conn
}

// startAlone starts a server with the memory limit of the pod. It ends with the benchmark.
func startAlone(b *testing.B, kubeconfig string) *process {
	b.Helper()
	p := &process{address: free(b)}
	server := exec.Command(os.Args[0])
	server.Env = append(os.Environ(), serveOnly+"="+strings.TrimSpace(p.address+" "+kubeconfig),
		fmt.Sprintf("GOMEMLIMIT=%d", cluster.GoMemory(cluster.DNSMemory)))
	server.Stderr = os.Stderr
	require.NoError(b, server.Start())
	p.pid = server.Process.Pid
	b.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	var err error
	p.client, err = net.Dial("udp", p.address)
	require.NoError(b, err)
	b.Cleanup(func() { _ = p.client.Close() })
	return p
}

// memory returns what the process has resident, in MiB: VmRSS now, of which RssAnon is not its
// program, VmHWM at most.
func (p *process) memory(b *testing.B, what string) float64 {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	require.NoError(b, err)
	kib, err := strconv.ParseFloat(string(regexp.MustCompile(what + `:\s+(\d+) kB`).FindSubmatch(status)[1]), 64)
	require.NoError(b, err)
	return kib / (1 << 10)
}

// answers asks so often, with 64 questions under way, and returns the number of answers in a second
// of the server's CPU time, and in a second that passes.
func (p *process) answers(b *testing.B, query []byte, times int) (ofCPU, ofTime float64) {
	b.Helper()
	underWay := 0
	lost := 0
	answered := 0
	buf := make([]byte, 512)
	began := time.Now()
	before := measure.CPUOf(b, p.pid)
	for asked := 0; answered+lost < times; {
		for ; underWay < 64 && asked < times; asked++ {
			_, err := p.client.Write(query)
			require.NoError(b, err)
			underWay++
		}
		require.NoError(b, p.client.SetReadDeadline(time.Now().Add(time.Second)))
		if _, err := p.client.Read(buf); err != nil {
			lost += underWay
			underWay = 0
			continue
		}
		answered++
		underWay--
	}
	require.Less(b, lost, times/100)
	return float64(answered) / (measure.CPUOf(b, p.pid) - before), float64(answered) / time.Since(began).Seconds()
}

// latency asks one question after the other, and returns the 99th percentile of the times to the
// answers, in ms.
func (p *process) latency(b *testing.B, query []byte, times int) float64 {
	b.Helper()
	buf := make([]byte, 512)
	all := make([]time.Duration, times)
	for i := range all {
		at := time.Now()
		_, err := p.client.Write(query)
		require.NoError(b, err)
		require.NoError(b, p.client.SetReadDeadline(at.Add(time.Second)))
		_, err = p.client.Read(buf)
		require.NoError(b, err)
		all[i] = time.Since(at)
	}
	slices.Sort(all)
	return all[times*99/100].Seconds() * 1000
}

// BenchmarkServer measures a server on one core that has read 10,000 imports, each with 5
// endpoints, from an API server. On a machine whose other cores are busy, answers in a second of
// the server's CPU time say more than answers in a second, and what is waited for an answer says
// something beside what is waited for an echo.
func BenchmarkServer(b *testing.B) {
	const imports = 10_000
	api := kubetest.Start(b)
	ns := createImports(b, api, imports)
	q := new(wire.Msg)
	q.SetQuestion(fmt.Sprintf("service-%d.%s.svc.clusterset.local.", imports-1, ns), wire.TypeA)
	query, err := q.Pack()
	require.NoError(b, err)
	for b.Loop() {
		server := startAlone(b, api.Kubeconfig())
		echoes := startAlone(b, "")
		o := Options{Listen: server.address}
		for o.ask(fmt.Sprintf("service-%d.%s", imports-1, ns)) != "NOERROR 10.96.39.15" {
			time.Sleep(look)
		}
		var ofCPU, ofTime measure.Values
		for range measure.Times(10) {
			c, t := server.answers(b, query, 20_000)
			ofCPU = append(ofCPU, c)
			ofTime = append(ofTime, t)
		}
		latency := measure.Compare(measure.Times(20), func() float64 { return server.latency(b, query, 2000) },
			func() float64 { return echoes.latency(b, query, 2000) })
		const name = "DNS server on one core with 10,000 imports: "
		measure.Record(
			b,
			measure.AtLeast(name+"answers in a second of CPU time", ofCPU, 30_000, ""),
			measure.Info(name+"answers in a second, with the client on the same machine", ofTime, ""),
			measure.AtMost(name+"99th percentile of the time to an answer", latency.Ours, 1, "ms"),
			measure.Info(name+"the same, of that to an echo", latency.Percent, "%"),
			measure.AtMost(name+"memory, without the program", measure.Values{server.memory(b, "RssAnon")}, 40, "MiB"),
			measure.Info(name+"memory", measure.Values{server.memory(b, "VmRSS")}, "MiB"),
			measure.Info(name+"memory, at most, when it has read all", measure.Values{server.memory(b, "VmHWM")},
				"MiB"),
		)
	}
}

// createImports creates imports, each with a slice of 5 endpoints, and returns their namespace.
func createImports(b *testing.B, api *kubetest.Server, imports int) (namespace string) {
	b.Helper()
	const workers = 16
	c := api.Client(b)
	installImports(b, c)
	ns := api.Namespace(b, "shop")
	g := new(errgroup.Group)
	for w := range workers {
		g.Go(func() error {
			for n := w; n < imports; n += workers {
				name := fmt.Sprintf("service-%d", n)
				i := newImport(ns, name, fmt.Sprintf("10.96.%d.%d", n>>8, n&255))
				for err := c.Create(b.Context(), i); err != nil; err = c.Create(b.Context(), i) {
					if !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
						return err
					}
					time.Sleep(100 * time.Millisecond) // not served yet
				}
				if err := c.Create(b.Context(), newSlice(ns, name, "west", manyAddresses(5)...)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(b, g.Wait())
	return ns
}
