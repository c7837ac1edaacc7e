package dns

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
)

// fill fills an index with imports in 100 namespaces, each with the slices of two clusters. It
// makes one object after the other, as a server receives them.
func fill(i *Index, imports int) {
	for n := range imports {
		name := fmt.Sprintf("service-%d.namespace-%d", n, n%100)
		i.SetImport(newImport(name, fmt.Sprintf("10.96.%d.%d", n>>8, n&255), "http/TCP/80", "metrics/TCP/9090"))
		for c := range 2 {
			i.SetSlice(
				newSlice(
					name,
					fmt.Sprintf("cluster-%d", c),
					[]string{"http/TCP/8080", "metrics/TCP/9090"},
					manyFrom(n*5, 5)...),
			)
		}
	}
}

// What 10,000 imports with 100,000 endpoints take in memory.
func TestMemory(t *testing.T) {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	i := newIndex(false)
	fill(i, 10_000)
	runtime.GC()
	runtime.ReadMemStats(&after)
	taken := float64(int64(after.HeapAlloc)-int64(before.HeapAlloc)) / (1 << 20)
	t.Logf("%.1f MiB", taken)
	require.Less(t, taken, 25.0, "MiB; a server has 40")
	runtime.KeepAlive(i)
}

func BenchmarkAnswer(b *testing.B) {
	i := newIndex(false, shop()...)
	fill(i, 1000)
	i.SetImport(newImport("large.shop", "None", "x/TCP/1"))
	i.SetSlice(newSlice("large.shop", "west", []string{"x/TCP/1"}, many(1000)...))
	for name, question := range map[string]string{
		"address":   "A service-7.namespace-7.svc.clusterset.local.",
		"headless":  "A db.shop.svc.clusterset.local.",
		"truncated": "A large.shop.svc.clusterset.local.",
		"srv":       "SRV _sql._tcp.db.shop.svc.clusterset.local.",
		"nxdomain":  "A none.shop.svc.clusterset.local.",
	} {
		b.Run(name, func(b *testing.B) {
			q := ask(question)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := i.Answer(q, false).Pack(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "answers/s")
		})
	}
}

// A change costs the same with few and with many imports.
func BenchmarkChange(b *testing.B) {
	for _, imports := range []int{10, 10_000} {
		b.Run(fmt.Sprint(imports), func(b *testing.B) {
			i := newIndex(false)
			fill(i, imports)
			s := newSlice("service-7.namespace-7", "cluster-1", []string{"http/TCP/8080"}, many(5)...)
			for b.Loop() {
				i.SetSlice(s)
			}
		})
	}
}

// Reading 10,000 imports at once.
func BenchmarkReplace(b *testing.B) {
	var imports []*mcsv1alpha1.ServiceImport
	var slices []*discoveryv1.EndpointSlice
	for n := range 10_000 {
		name := fmt.Sprintf("service-%d.namespace-%d", n, n%100)
		imports = append(imports, newImport(name, "10.96.0.1", "http/TCP/80"))
		slices = append(slices, newSlice(name, "east", []string{"http/TCP/8080"}, many(5)...))
	}
	for b.Loop() {
		i := NewIndex("east", false)
		i.ReplaceImports(imports)
		i.ReplaceSlices(slices)
	}
}
