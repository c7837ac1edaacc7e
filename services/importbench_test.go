package services

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/api/submariner/v1alpha1"
	"subctl/internal/measure"
)

// fleet returns a settled view of many clusters, each of which exports Services with pods. If
// shared, all clusters export the same Services.
func fleet(tb testing.TB, clusters, services, pods int, shared bool) View {
	w := newFleet(tb, clusters, services, pods, shared)
	for range 4 {
		w.apply(w.plan())
	}
	require.True(tb, w.plan().empty())
	return w.view
}

// newFleet is the world of fleet before anything is imported.
func newFleet(tb testing.TB, clusters, services, pods int, shared bool) *world {
	w := &world{apiServer: newAPIServer(tb), view: View{
		ClusterID:  "east",
		Now:        time.Unix(1_800_000_000, 0),
		Namespaces: map[string]bool{"shop": true},
		Forbidden:  prefixes("172.30.0.0/16"),
		Zones:      []string{"a", "b"},
		Hints:      true,
	}}
	for n := range 200 { // nodes
		w.view.Forbidden = append(w.view.Forbidden, prefixes(fmt.Sprintf("192.0.2.%d/32", n))...)
	}
	for c := range clusters {
		id := fmt.Sprintf("c%04d", c)
		network := fmt.Sprintf("10.%d.%d.0/24", c/250, c%250)
		m := Member{ID: id, PodNetworks: prefixes(network), ServiceNetworks: prefixes(network)}
		var records []v1alpha1.ExportedService
		for s := range services {
			name := fmt.Sprintf("s-%s-%d", id, s)
			if shared {
				name = fmt.Sprintf("s-%d", s)
			}
			r := webOf("west", named("shop", name), exportedAt(int64(c)))
			r.Address = fmt.Sprintf("10.%d.%d.1", c/250, c%250)
			r.Endpoints[0].Pods = nil
			for p := range pods {
				r.Endpoints[0].Pods = append(r.Endpoints[0].Pods,
					v1alpha1.ExportedEndpoint{IP: fmt.Sprintf("10.%d.%d.%d", c/250, c%250, p+2), Zone: "a"})
			}
			records = append(records, r)
		}
		m.Pages = append(m.Pages, page(id, 0, 1, records...))
		w.view.Members = append(w.view.Members, m)
	}
	return w
}

// BenchmarkImportFleet measures plans of what many clusters export.
func BenchmarkImportFleet(b *testing.B) {
	for _, c := range []struct{ clusters, services int }{{1000, 10}, {10, 1000}} {
		name := fmt.Sprintf("plan of imports, %d clusters of %d Services of 5 pods: ", c.clusters, c.services)
		b.Run(strconv.Itoa(c.clusters), func(b *testing.B) {
			first := newFleet(b, c.clusters, c.services, 5, false).view
			settled := fleet(b, c.clusters, c.services, 5, false)
			for b.Loop() {
				var nothing, all, known measure.Values
				again := settled
				again.Settled = Import(settled).Settled
				for range measure.Times(5) {
					nothing = append(nothing, measure.CPU(b, func() { require.Len(b, Import(first).Imports, 10_000) }))
					all = append(all, measure.CPU(b, func() { require.True(b, Import(settled).empty()) }))
					known = append(known, measure.CPU(b, func() { require.True(b, Import(again).empty()) }))
				}
				measure.Record(b,
					measure.AtMost(name+"from nothing, CPU time", nothing, 5, "s"),
					measure.AtMost(name+"nothing to do after a start, CPU time", all, 5, "s"),
					measure.AtMost(name+"nothing to do, CPU time", known.Per(1e-3), 500, "ms"),
				)
			}
		})
	}
}

func BenchmarkImport(b *testing.B) {
	for name, c := range map[string]struct {
		clusters, services int
		shared             bool
	}{
		"10 clusters of 1000 Services":          {10, 1000, false},
		"1000 clusters of 10 Services":          {1000, 10, false},
		"1000 clusters of the same 10 Services": {1000, 10, true},
	} {
		b.Run(name, func(b *testing.B) {
			v := fleet(b, c.clusters, c.services, 5, c.shared)
			for b.Loop() {
				require.True(b, Import(v).empty())
			}
		})
	}
	b.Run("1000 clusters without pages", func(b *testing.B) {
		v := fleet(b, 1000, 10, 5, true)
		for n := range v.Members {
			v.Members[n].Pages = nil
		}
		for b.Loop() {
			require.True(b, Import(v).empty())
		}
	})
}
