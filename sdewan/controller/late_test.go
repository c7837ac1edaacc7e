package controller

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/sdewan"
	"subctl/sdewan/rest"
)

// What changes while a pod is being synced is not lost, whether the pod is late meanwhile or not;
// and what the sync came to is in statuses although the pod is being synced again.
func TestChangeDuringSlowSync(t *testing.T) {
	for name, pause := range map[string]time.Duration{"in time": 0, "late": lateAfter + 2*time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			pods := w.cnf("cnf-1", 2)
			gate := make(chan struct{})
			var asked atomic.Bool
			pods[1].Answer(func(_ http.ResponseWriter, r *http.Request) bool {
				if about(r) == "b" || about(r) == "c" {
					asked.Store(true)
					select {
					case <-gate:
					case <-r.Context().Done():
					}
				}
				return false
			})
			a := w.policy("cnf-1", "a")
			b := w.policy("cnf-1", "b")
			c := w.policy("cnf-1", "c")
			w.create(a)
			w.create(b)
			w.runWith(Options{Timeout: 10 * time.Minute, podTimeout: 10 * time.Minute})
			w.eventually(func() error {
				if !asked.Load() {
					return errors.New("the pod is not asked")
				}
				return nil
			})
			w.create(c)
			w.holds(pods[0], rest.Policies, "a", "b", "c")
			time.Sleep(pause)
			gate <- struct{}{}
			w.inSync(a, b)
			require.NoError(t, w.get(c))
			require.False(t, c.Status.InSync, "the pod does not have it")
			close(gate)
			w.holds(pods[1], rest.Policies, "a", "b", "c")
			w.inSync(c)
		})
	}
}

// What a pod says about a rule that is another CNF's by now is not in the status of the rule.
func TestRefusalOfMovedRule(t *testing.T) {
	for name, replicas := range map[string]int32{"the only pod": 1, "of two pods": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			from := w.cnf("cnf-1", replicas)
			w.cnf("cnf-2", 1)
			slow := from[replicas-1]
			refuse := make(chan struct{})
			var asked, refused atomic.Bool
			slow.Answer(func(wr http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodPost || about(r) != "x" {
					return false
				}
				asked.Store(true)
				<-refuse
				http.Error(wr, "it is full", http.StatusUnprocessableEntity)
				refused.Store(true)
				return true
			})
			x := w.policy("cnf-1", "x")
			w.create(x)
			w.runWith(Options{Timeout: 10 * time.Minute, podTimeout: 10 * time.Minute})
			w.eventually(func() error {
				if !asked.Load() {
					return errors.New("the pod is not asked")
				}
				return nil
			})
			require.NoError(t, retryConflict(func() error {
				require.NoError(t, w.get(x))
				x.Labels[sdewan.PurposeLabel] = "cnf-2"
				return w.client.Update(t.Context(), x)
			}))
			w.inSync(x)
			time.Sleep(reportEvery) // then a refusal is reported as soon as it is known
			close(refuse)
			w.eventually(func() error {
				if !refused.Load() {
					return errors.New("the pod has not answered")
				}
				return nil
			})
			w.never(3*time.Second, func() error {
				if err := w.get(x); err != nil || !x.Status.InSync {
					return fmt.Errorf("%v %+v", err, x.Status)
				}
				return nil
			})
		})
	}
}
