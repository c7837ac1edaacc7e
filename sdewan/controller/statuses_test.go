package controller

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	batch "subctl/api/sdewan/v1alpha1"
	restclient "subctl/sdewan/rest/client"
)

// A pod that is new is asked once it has its rules, and again a little later, long before all CNFs
// are. A controller that starts asks no pod whose report is known.
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
				if !slices.ContainsFunc(s.Status.Information,
					func(i batch.CNFInformation) bool { return i.Name == p.name && i.Status != "" }) {
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

// A pod whose rules are not in effect yet has nothing to report.
func TestNewPodReportsAllRules(t *testing.T) {
	w := newWorld(t)
	pod := w.cnf("cnf-1", 1)[0]
	pod.BreakService("mwan3", true)
	p := w.policy("cnf-1", "p")
	w.create(p)
	w.runWith(Options{StatusPeriod: time.Hour})
	w.waits(p, RestartFailed)
	s := &batch.CNFStatus{ObjectMeta: w.named("cnf-1")}
	read := func() error { return w.client.Get(t.Context(), client.ObjectKeyFromObject(s), s) }
	w.never(2*firstTogether, func() error {
		if err := read(); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%v: %+v", err, s.Status)
		}
		return nil
	})
	pod.BreakService("mwan3", false)
	w.eventually(read)
	w.inSync(p)
}

// statuses returns a controller of statuses of the world's CNFs that has access to no pod.
func (w *world) statuses(period time.Duration) *statusReconciler {
	w.Helper()
	c := client.NewNamespacedClient(w.client, w.namespace)
	o := Options{Log: slog.New(slog.NewTextHandler(w.log, nil)), StatusPeriod: period}
	require.NoError(w, o.complete())
	return newStatusReconciler(o, c, newFleet(c, o))
}

// reported reads the CNFStatus of a CNF.
func (w *world) reported(name string) (*batch.CNFStatus, error) {
	s := &batch.CNFStatus{ObjectMeta: w.named(name)}
	return s, w.client.Get(w.Context(), client.ObjectKeyFromObject(s), s)
}

// A CNF whose pods cannot be asked, as its namespace has no slots left, keeps its worker for a
// while only.
func TestAskingEnds(t *testing.T) {
	w := newWorld(t)
	pod := w.cnf("cnf-1", 1)[0]
	c := w.statuses(500 * time.Millisecond)
	cnf := client.ObjectKey{Namespace: w.namespace, Name: "cnf-1"}
	p := &corev1.Pod{ObjectMeta: w.named(pod.name)}
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKeyFromObject(p), p))
	c.fleet.members[cnf] = map[types.UID]*member{p.UID: {client: &restclient.Client{}}}
	for range askAtOnce / 2 {
		require.NoError(t, c.slots.Take(t.Context(), w.namespace))
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = c.Reconcile(t.Context(), reconcile.Request{NamespacedName: cnf})
	}()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("it waits without end")
	}
}

// What the pods of a Deployment answer is not written if the Deployment was deleted, or created
// anew, meanwhile: the CNFStatus would be removed with the old one.
func TestStatusOfNewDeployment(t *testing.T) {
	w := newWorld(t)
	w.cnf("cnf-1", 1)
	c := w.statuses(time.Hour)
	ask := func() {
		t.Helper()
		_, err := c.Reconcile(t.Context(), requestFor(w.namespace, "cnf-1"))
		require.NoError(t, err)
	}
	ask()
	before, err := w.reported("cnf-1")
	require.NoError(t, err)
	old := &appsv1.Deployment{ObjectMeta: w.named("cnf-1")}
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKeyFromObject(old), old))
	require.True(t, metav1.IsControlledBy(before, old))
	w.delete(old)
	require.NoError(t, client.IgnoreNotFound(w.client.Delete(t.Context(), before)))
	nothing := func() {
		t.Helper()
		_, err := c.one(t.Context(), old)
		require.NoError(t, err)
		_, err = w.reported("cnf-1")
		require.True(t, apierrors.IsNotFound(err), err)
	}
	nothing()
	w.create(w.deployment("cnf-1", "cnf-1", 1))
	nothing()
	ask()
	after, err := w.reported("cnf-1")
	require.NoError(t, err)
	now := &appsv1.Deployment{ObjectMeta: w.named("cnf-1")}
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKeyFromObject(now), now))
	require.True(t, metav1.IsControlledBy(after, now))
}
