package webhook

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/internal/kubetest"
	"subctl/internal/measure"
)

// What the webhooks add to a request, at 100 requests a second: the same rules are written, without
// effect, by a user who needs both webhooks, and by the controller, about whom the API server asks
// none.
func BenchmarkWebhooks(b *testing.B) {
	const rate, seconds = 100, 10
	e := env(b)
	ns := e.server.Namespace(b, "bench")
	e.create(b, policy(ns, "a", "cnf", "basic"))
	for i := range 20 {
		e.grant(b, ns, fmt.Sprintf("intent-%d", i), intentOnly, subject("User", "", "ann"))
	}
	ann := client.NewDryRunClient(e.as(b, "ann"))
	e.eventually(b, ann, rule(ns, "probe", "cnf", "app-intent", "a"))
	controller := client.NewDryRunClient(kubetest.Client(b, e.token(b, system, account)))

	for b.Loop() {
		var added, with measure.Values
		for range measure.Times(5) {
			took := map[bool][]time.Duration{}
			var mu sync.Mutex
			var wait sync.WaitGroup
			tick := time.NewTicker(time.Second / (2 * rate)) // one of either sort in turns
			for i := range 2 * rate * seconds / 5 {
				<-tick.C
				wait.Go(func() {
					asks := i%2 == 0
					c := controller
					if asks {
						c = ann
					}
					begin := time.Now()
					err := c.Create(b.Context(), rule(ns, fmt.Sprintf("r%d", i), "cnf", "app-intent", "a"))
					mu.Lock()
					defer mu.Unlock()
					took[asks] = append(took[asks], time.Since(begin))
					if err != nil {
						b.Error(err)
					}
				})
			}
			wait.Wait()
			tick.Stop()
			added = append(added, 1e3*(p99(took[true])-p99(took[false])).Seconds())
			with = append(with, 1e3*p99(took[true]).Seconds())
		}
		require.NotEmpty(b, added)
		measure.Record(b,
			measure.AtMost("SD-EWAN webhooks: what they add to a request, p99 at 100 a second", added, 20, "ms"),
			measure.Info("SD-EWAN webhooks: a request with them, p99 at 100 a second", with, "ms"))
	}
}

func p99(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)*99/100]
}
