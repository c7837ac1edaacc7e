package controller

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "subctl/api/sdewan/v1alpha1"
)

// A pod that is new is asked once it has its rules, and again a little later, long before all CNFs are. A controller that starts asks no pod whose report is known.
func TestNewPodReportsAtOnce(t *testing.T) {
	w := newWorld(t)
	stop := w.runWith(Options{StatusPeriod: time.Hour})
	var asked atomic.Int64
	s := &batch.CNFStatus{ObjectMeta: w.named("cnf-1")}
	known := func(n int) []*pod {
		t.Helper()
		var pods []*pod
		w.eventually(func() error {
			pods = w.pods("cnf-1")
			if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
				return err
			}
			for _, p := range pods {
				p.Answer(func(_ http.ResponseWriter, r *http.Request) bool {
					if strings.HasSuffix(r.URL.Path, "/sdewan/v1/status") {
						asked.Add(1)
					}
					return false
				})
				if !slices.ContainsFunc(s.Status.Information, func(i batch.CNFInformation) bool { return i.Name == p.name && i.Status != "" }) {
					return fmt.Errorf("pod %s has not reported: %+v", p.name, s.Status)
				}
			}
			if len(pods) != n {
				return fmt.Errorf("%d pods", len(pods))
			}
			return nil
		})
		return pods
	}
	w.create(w.deployment("cnf-1", "cnf-1", 2))
	pods := known(2)
	w.kill(pods[0])
	pods = known(2)
	first := asked.Load()
	w.eventually(func() error {
		if asked.Load() < first+2 {
			return fmt.Errorf("not asked again")
		}
		return nil
	})
	stop()
	asked.Store(0)
	logins := pods[0].Logins()
	w.runWith(Options{StatusPeriod: time.Hour})
	w.eventually(func() error {
		if pods[0].Logins() == logins {
			return fmt.Errorf("not synced yet")
		}
		return nil
	})
	time.Sleep(2 * firstTogether)
	require.Zero(t, asked.Load())
}

// One goroutine at a time has the turn of a CNF, and nothing is left of it.
func TestTurns(t *testing.T) {
	all := newCollector(Options{}, nil, nil)
	cnf := client.ObjectKey{Namespace: "a", Name: "b"}
	done := all.turns.take(cnf)
	all.turns.take(client.ObjectKey{Namespace: "a", Name: "c"})()
	second := make(chan func())
	go func() { second <- all.turns.take(cnf) }()
	select {
	case <-second:
		t.Fatal("two have the turn")
	case <-time.After(50 * time.Millisecond):
	}
	done()
	(<-second)()
	require.Empty(t, all.turns.cnfs)
}
