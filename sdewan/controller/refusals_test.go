package controller

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/sdewan/rest"
)

// A CNF that refuses objects slowly delays no report: each rule has the reason as soon as it is
// known.
func TestHostileSlowRefusals(t *testing.T) {
	w := newWorld(t)
	pod := w.cnf("cnf-1", 1)[0]
	var refused atomic.Int64
	pod.Answer(func(wr http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost || r.URL.Path != rest.Policies.Path() {
			return false
		}
		select {
		case <-time.After(2 * time.Second):
		case <-r.Context().Done():
		}
		http.Error(wr, "it is full", http.StatusUnprocessableEntity)
		refused.Add(1)
		return true
	})
	var rules []*batch.Mwan3Policy
	for i := range 6 {
		p := w.policy("cnf-1", fmt.Sprint("p", i))
		w.create(p)
		rules = append(rules, p)
	}
	w.run()
	for i, p := range rules[:3] {
		require.Contains(t, w.waits(p, Rejected), "pod "+pod.name+": the CNF answers 422: it is full")
		require.LessOrEqual(t, int(refused.Load()), i+2, "reported while the sync goes on")
	}
	require.Contains(t, w.event(Rejected), "it is full")
	for _, p := range rules {
		w.waits(p, Rejected)
	}
	pod.Answer(nil)
}

// A CNF that refuses very many objects slowly, or fails to store them, gets all others
// nevertheless, and what it has applied and has not changed stays in sync.
func TestHostileManySlowRefusals(t *testing.T) {
	for _, code := range []int{422, 500} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			pod := w.cnf("cnf-1", 1)[0]
			pod.Answer(func(wr http.ResponseWriter, r *http.Request) bool {
				if !strings.HasPrefix(about(r), "bad") {
					return false
				}
				time.Sleep(300 * time.Millisecond)
				http.Error(wr, "no", code)
				return true
			})
			ok := w.policy("cnf-1", "ok")
			w.create(ok)
			stop := w.runWith(
				Options{
					podTimeout: 3 * time.Second,
					RetryUntil: 200 * time.Millisecond,
					RetryFrom:  50 * time.Millisecond,
				},
			)
			w.inSync(ok)
			stop()
			var bad []*batch.Mwan3Policy
			for i := range 16 { // for 5 s
				p := w.policy("cnf-1", fmt.Sprintf("bad%02d", i))
				w.create(p)
				bad = append(bad, p)
			}
			last := w.policy("cnf-1", "zok")
			zone := &batch.FirewallZone{
				ObjectMeta: w.meta("cnf-1", "z"),
				Spec:       batch.FirewallZoneSpec{Network: []batch.NetworkName{"wan1"}},
			}
			time.Sleep(time.Second) // times of creation have seconds
			w.create(last)
			w.create(zone)
			w.runWith(
				Options{
					podTimeout: 3 * time.Second,
					RetryUntil: 200 * time.Millisecond,
					RetryFrom:  50 * time.Millisecond,
				},
			)
			steady := func() error {
				if err := w.get(ok); err != nil || !ok.Status.InSync {
					return fmt.Errorf("%v %+v", err, ok.Status)
				}
				return nil
			}
			require.Contains(t, w.waits(last, Unfinished), "pod "+pod.name+": ")
			require.NotEmpty(t, w.event(Unfinished))
			for deadline := time.Now().Add(time.Minute); !last.Status.InSync; {
				require.True(t, time.Now().Before(deadline), "it waits for those that are refused")
				require.NoError(t, w.get(last))
				require.NoError(t, steady())
				require.False(
					t,
					slices.ContainsFunc(last.Status.Conditions,
						func(c metav1.Condition) bool { return c.Reason == Unreachable }),
				)
				time.Sleep(20 * time.Millisecond)
			}
			w.inSync(last, zone)
			w.holds(pod, rest.Policies, "ok", "zok")
			for _, p := range bad {
				require.Contains(t, w.waits(p, Rejected), "no")
			}
			w.never(2*time.Second, steady)
			further := w.policy("cnf-1", "further")
			w.create(further)
			w.inSync(further)
			// What is accepted from now on is found out in turn.
			pod.Fail(nil)
			for _, p := range bad {
				w.inSync(p)
			}
		})
	}
}

// The status of a rule that a CNF refuses at first, and accepts in the same sync, never says so,
// nor does an Event.
func TestHealedRefusalIsNotReported(t *testing.T) {
	w := newWorld(t)
	pod := w.cnf("cnf-1", 1)[0]
	pod.Put(rest.Policies, policy("old"))
	var refused atomic.Int64
	pod.Answer(func(wr http.ResponseWriter, r *http.Request) bool {
		if about(r) != "p" || !slices.Contains(pod.Names(rest.Policies), "old") {
			return false
		}
		time.Sleep(reportEvery + 100*time.Millisecond)
		http.Error(wr, "it is full", http.StatusUnprocessableEntity)
		refused.Add(1)
		return true
	})
	p := w.policy("cnf-1", "p")
	w.create(p)
	w.run()
	rejected := false
	require.Eventually(t, func() bool {
		if w.get(p) != nil {
			return false
		}
		rejected = rejected ||
			slices.ContainsFunc(p.Status.Conditions, func(c metav1.Condition) bool { return c.Reason == Rejected })
		return rejected || p.Status.InSync
	}, time.Minute, 5*time.Millisecond)
	require.False(t, rejected)
	require.NotZero(t, refused.Load())
	w.never(time.Second, func() error {
		var list corev1.EventList
		if err := w.client.List(t.Context(), &list, client.InNamespace(w.namespace)); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Reason == Rejected {
				return errors.New(e.Message)
			}
		}
		return nil
	})
}

// A rule about which its CNF does not answer has a status that says so, and is the only one that is
// not in sync.
func TestHangingObjectIsReported(t *testing.T) {
	w := newWorld(t)
	pod := w.cnf("cnf-1", 1)[0]
	pod.Answer(func(_ http.ResponseWriter, r *http.Request) bool {
		if about(r) != "bad" {
			return false
		}
		<-r.Context().Done()
		return true
	})
	bad := w.policy("cnf-1", "bad")
	good := w.policy("cnf-1", "good")
	w.create(bad)
	w.create(good)
	w.runWith(Options{Timeout: time.Second, RetryFrom: 20 * time.Millisecond, RetryUntil: 20 * time.Millisecond})
	require.Contains(t, w.waits(bad, Rejected), "pod "+pod.name+": the CNF does not answer: it took too long")
	w.inSync(good)
	w.never(5*time.Second, func() error {
		if err := w.get(good); err != nil || !good.Status.InSync {
			return fmt.Errorf("%v %+v", err, good.Status)
		}
		return nil
	})
	pod.Fail(nil)
	w.inSync(bad)
}
