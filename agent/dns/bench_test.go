package dns

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	wire "github.com/miekg/dns"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"subctl/internal/kubetest"
)

// serveOnly is the environment variable that makes the test binary serve an example on one core, and nothing else.
const serveOnly = "SUBCTL_TEST_DNS"

// serveExample serves until the process is killed, and prints the address.
func serveExample() error {
	runtime.GOMAXPROCS(1)
	ctx := context.Background()
	index := exampleIndex(100)
	s, err := listen(ctx, "127.0.0.1:0", index, newMeters(index))
	if err != nil {
		return err
	}
	fmt.Println(s.address())
	return s.serveUDP(ctx)
}

// cpuTime returns the time that a process has run, in the kernel, too.
func cpuTime(t testing.TB, pid int) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	fields := strings.Fields(string(b)[strings.LastIndexByte(string(b), ')')+1:])
	var user, system int
	_, err = fmt.Sscan(fields[11]+" "+fields[12], &user, &system)
	require.NoError(t, err)
	return time.Duration(user+system) * 10 * time.Millisecond
}

// A server on one core, with a client in another process that always has 64 questions under way. On a machine whose other cores are
// busy, answers per second of the server's own time say more than answers per second.
func BenchmarkUDP(b *testing.B) {
	server := exec.Command(os.Args[0])
	server.Env = append(os.Environ(), serveOnly+"=1")
	server.Stderr = os.Stderr
	out, err := server.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, server.Start())
	b.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	var address string
	_, err = fmt.Fscan(out, &address)
	require.NoError(b, err)

	q := new(wire.Msg)
	q.SetQuestion(web, wire.TypeA)
	query, err := q.Pack()
	require.NoError(b, err)
	c, err := net.Dial("udp", address)
	require.NoError(b, err)
	defer c.Close()
	underWay, lost := 0, 0
	buf := make([]byte, 512)
	before := cpuTime(b, server.Process.Pid)
	b.ResetTimer()
	for asked, answered := 0, 0; answered+lost < b.N; {
		for ; underWay < 64 && asked < b.N; asked++ {
			_, err := c.Write(query)
			require.NoError(b, err)
			underWay++
		}
		require.NoError(b, c.SetReadDeadline(time.Now().Add(time.Second)))
		if _, err := c.Read(buf); err != nil {
			lost += underWay
			underWay = 0
			continue
		}
		answered++
		underWay--
	}
	b.StopTimer()
	used := cpuTime(b, server.Process.Pid) - before
	b.ReportMetric(float64(b.N-lost)/b.Elapsed().Seconds(), "answers/s")
	b.ReportMetric(float64(b.N-lost)/used.Seconds(), "answers/cpu-s")
	b.ReportMetric(float64(lost), "lost")
}

// The memory of a server that has read 10,000 imports and their slices from an API server. The test's own client is in it.
func BenchmarkMemory(b *testing.B) {
	const imports, workers = 10_000, 16
	api := kubetest.Start(b)
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
	b.ResetTimer()
	var most uint64
	for range b.N {
		o, end, ended := run(b, Options{Config: api.Config()})
		for o.ask(fmt.Sprintf("service-%d.%s", imports-1, ns)) != "NOERROR 10.96.39.15" {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapInuse)
			time.Sleep(look)
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		b.ReportMetric(float64(m.HeapInuse)/(1<<20), "MiB")
		b.ReportMetric(float64(most)/(1<<20), "MiB-at-most")
		end()
		require.NoError(b, <-ended)
	}
}
