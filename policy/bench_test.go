package policy

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/api/submariner/v1alpha1"
	"subctl/internal/measure"
)

// BenchmarkPairs resolves every pair of 1,000 clusters, from the objects on. No two
// clusters have the same labels, and most policies match some of them.
func BenchmarkPairs(b *testing.B) {
	b.Run("1000", func(b *testing.B) { pairs(b, 1_000, 1) })
	b.Run("10000", func(b *testing.B) { pairs(b, 10_000, 5) })
}

func pairs(b *testing.B, n int, most float64) {
	clusters := fleet(1000)
	policies := thousands(n)
	name := fmt.Sprintf("cable policies: resolve 499,500 pairs under %d policies", n)
	for b.Loop() {
		var took, allocated measure.Values
		for range measure.Times(5) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			began := time.Now()
			pairs := 0
			decided := 0
			for _, d := range Compile(policies, brokers).Pairs(clusters) {
				pairs++
				if d.Policy != "" && d.Policy != v1alpha1.DefaultCablePolicy {
					decided++
				}
			}
			took = append(took, time.Since(began).Seconds())
			runtime.ReadMemStats(&after)
			require.Equal(b, 499_500, pairs)
			require.Greater(b, decided, pairs/4)
			allocated = append(allocated, float64(after.TotalAlloc-before.TotalAlloc)/(1<<20))
		}
		measure.Record(b, measure.AtMost(name, took, most, "s"),
			measure.AtMost(name+": memory allocated", allocated, 256, "MiB"))
	}
	var took measure.Values
	for range measure.Times(5) {
		book := Compile(policies, brokers) // which remembers what it has decided
		began := time.Now()
		for _, c := range clusters[1:] {
			book.Decide(clusters[0], c)
		}
		took = append(took, time.Since(began).Seconds())
	}
	measure.Record(b,
		measure.Info(fmt.Sprintf("cable policies: one cluster with 999 others under %d policies", n), took, "s"))
}

// fleet returns clusters with labels as people give them, and one of their own each.
func fleet(n int) []Cluster {
	r := rand.New(rand.NewPCG(1, 2))
	out := make([]Cluster, n)
	for i := range out {
		out[i] = Cluster{
			ID: fmt.Sprintf("cluster-%d", i), Driver: "vxlan", Sets: []string{"default", fmt.Sprintf("set-%d", i%20)},
			Labels: map[string]string{
				"name":     fmt.Sprintf("cluster-%d", i),
				"env":      pick(r, []string{"production", "staging", "lab"}),
				"region":   fmt.Sprintf("region-%d", r.IntN(20)),
				"site":     fmt.Sprintf("site-%d", r.IntN(200)),
				"provider": pick(r, []string{"aws", "gcp", "azure", "own"}),
				"owner":    fmt.Sprintf("team-%d", r.IntN(50)),
			},
		}
	}
	return out
}

// thousands returns policies that select as people do: mostly by one to three labels.
func thousands(n int) []*v1alpha1.CablePolicies {
	r := rand.New(rand.NewPCG(3, 4))
	out := []*v1alpha1.CablePolicies{made(v1alpha1.DefaultCablePolicy, between("", "", "vxlan"))}
	for i := range n - 1 {
		p := made(
			fmt.Sprintf("policy-%d", i),
			v1alpha1.CablePolicySpec{
				LeftClusterSelector:  habit(r),
				RightClusterSelector: habit(r),
				CableDriver:          "vxlan",
			},
		)
		if r.IntN(10) == 0 {
			p.ConnectionPolicies[0].CableOptions = &v1alpha1.CableOptions{
				Data: map[string]string{v1alpha1.CableCustomConfig: fmt.Sprintf("mtu: %d", 1300+i%100)},
			}
		}
		if r.IntN(4) == 0 {
			p.Status.ClusterSets = []string{fmt.Sprintf("set-%d", r.IntN(20))}
		}
		out = append(out, p)
	}
	return out
}

func habit(r *rand.Rand) v1alpha1.ClusterSelector {
	one := func(key, prefix string, n int) string { return fmt.Sprintf("%s=%s-%d", key, prefix, r.IntN(n)) }
	parts := []string{
		"",
		"env=production",
		"env!=lab",
		"provider in (aws,gcp)",
		"!retired",
		one("region", "region", 20),
		one("site", "site", 200),
		one("name", "cluster", 1000),
		one("owner", "team", 50),
		one("region", "region", 20) + ",env=production",
		one("owner", "team", 50) + ",provider notin (own),env",
	}
	return parsed(parts[r.IntN(len(parts))])
}
