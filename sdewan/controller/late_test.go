package controller

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/sdewan"
	"subctl/sdewan/rest"
)

// What changes while a pod is being synced is not lost, whether an attempt sees the end of that sync or not; and what the sync came to is in statuses although
// the pod is being synced again.
func TestChangeDuringSlowSync(t *testing.T) {
	for name, pause := range map[string]time.Duration{"attended": 0, "unattended": lateAfter + 2*time.Second} {
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
			a, b, c := w.policy("cnf-1", "a"), w.policy("cnf-1", "b"), w.policy("cnf-1", "c")
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
	for name, replicas := range map[string]int32{"attempt goes on": 1, "attempt is over": 2} {
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

// add adds a pod.
func (s *scene) add(name string) {
	p := &corev1.Pod{}
	p.Name, p.UID, p.Status.PodIP = name, types.UID(name), "192.0.2.1"
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	s.pods = append(s.pods, p)
	s.finish[name] = make(chan outcome)
}

// follows waits until another attempt is asked for.
func (s *scene) follows() {
	s.Helper()
	select {
	case cnf := <-s.asked:
		require.Equal(s, s.cnf, cnf)
	case <-time.After(10 * time.Second):
		s.Fatal("no attempt follows")
	}
}

// An attempt that sees the end of a sync that lacks a change does not wait for a third pod: the change would wait, too.
func TestRunsThatLackAChange(t *testing.T) {
	for _, attended := range []bool{true, false} {
		t.Run(fmt.Sprintf("attended=%v", attended), func(t *testing.T) {
			s := newScene(t)
			s.add("stuck")
			s.attempt(func() {
				s.finish["good"] <- outcome{}
				s.changed(s.cnf, false)
			})
			s.begins("good", "slow", "stuck")
			if !attended {
				s.finish["slow"] <- outcome{}
				s.follows()
			}
			began := time.Now()
			states := s.attempt(func() {
				s.begins("good")
				s.finish["good"] <- outcome{}
				if attended {
					s.finish["slow"] <- outcome{}
				}
			})
			require.Less(t, time.Since(began), lateAfter)
			require.False(t, states[0].late || states[1].late, "what the sync came to is known")
			require.True(t, states[2].late)
			s.follows()
			states = s.attempt(func() {
				s.begins("good", "slow")
				s.finish["good"] <- outcome{}
				s.finish["slow"] <- outcome{}
			})
			require.False(t, states[0].late || states[1].late)
			require.Empty(t, s.asked, "nothing has changed since")
		})
	}
}

// A sync that is cancelled at its very end is no news, and nothing is left of it.
func TestRunsCancelledAtTheEnd(t *testing.T) {
	s := newScene(t)
	s.attempt(func() {
		s.finish["good"] <- outcome{}
		s.changed(s.cnf, false)
	})
	s.begins("good", "slow")
	s.mu.Lock()
	s.finish["slow"] <- outcome{}
	time.Sleep(100 * time.Millisecond) // it is about to record what it came to
	s.cnfs[s.cnf].pods["slow"].cancel()
	s.mu.Unlock()
	s.follows()
	s.mu.Lock()
	left := s.cnfs[s.cnf].pods["slow"]
	s.mu.Unlock()
	require.Nil(t, left)
}

// A pod that was synced with the address that the name of a CNFService had before says nothing about the rule, and is given the address soon.
func TestVerdictOnOldTarget(t *testing.T) {
	scene := newScene(t)
	kinds := sdewan.Kinds()
	x := rule{Rule: &batch.CNFService{}, kind: kinds[slices.IndexFunc(kinds, func(k sdewan.Kind) bool { return k.GVK.Kind == "CNFService" })]}
	to := func(address string) services {
		return services{dns: true, targets: map[types.UID]target{x.GetUID(): {address: netip.MustParseAddr(address), proto: "tcp"}}}
	}
	before, now := to("192.0.2.1"), to("192.0.2.2")
	d := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: new(int32(1))}, Status: appsv1.DeploymentStatus{ReadyReplicas: 1}}
	j := judgement{cnf: cnf{key: scene.cnf, deployments: []*appsv1.Deployment{d}, pods: scene.pods[:1], rules: []rule{x}}, services: now}
	r := &reconciler{o: Options{Resync: time.Hour}}
	judge := func(was services) attempt {
		aim, _ := aimOf(j.rules, nil, was, nil)
		j.states = []state{{outcome: outcome{aim: aim}}}
		return r.judge(j, func() bool { return true })
	}
	a := judge(now)
	require.Len(t, a.rules, 1)
	require.Empty(t, a.of(x).reason)
	require.Equal(t, dnsAgain, a.after)
	a = judge(before)
	require.Empty(t, a.rules, "nothing is known of it")
	require.Equal(t, dnsSoon, a.after)
}

// Pods that stall keep the others waiting for their slots at most once, and a pod that waits is not called slow.
func TestRunsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		good := s.pods[:1]
		s.pods = nil
		for i := range podsAtOnce {
			s.add(fmt.Sprint("stalls-", i))
		}
		begun := func() (names []string) {
			for {
				synctest.Wait()
				select {
				case name := <-s.begun:
					names = append(names, name)
				default:
					return names
				}
			}
		}
		soon := func() { s.changed(s.cnf, true) }
		s.attempt(soon)
		require.Len(t, begun(), podsAtOnce)
		s.pods = append(s.pods, good...)
		state := s.attempt(soon)[podsAtOnce]
		require.True(t, state.waits && !state.long)
		require.Contains(t, lateOn("good", state.waits).message, "waits for other pods")
		time.Sleep(lateAfter)
		require.True(t, s.attempt(soon)[podsAtOnce].long, "the rule must not count as applied")
		s.keep(s.cnf, s.pods[:podsAtOnce])
		require.Equal(t, s.cnf, <-s.asked, "a pod that is gone waits for nothing")

		s.attempt(soon)
		require.Empty(t, begun())
		time.Sleep(lateAfter)
		s.finish[s.pods[0].Name] <- outcome{problem: stuck}
		<-s.asked
		require.Equal(t, []string{"good"}, begun())
		state = s.attempt(soon)[podsAtOnce]
		require.False(t, state.waits || state.long, "it was not slow")
		for _, p := range s.pods[1:podsAtOnce] {
			s.finish[p.Name] <- outcome{problem: stuck}
			<-s.asked
		}
		s.finish["good"] <- outcome{}
		<-s.asked
		begun()
		s.attempt(soon) // takes what they came to
		s.attempt(soon)
		names := begun()
		require.Len(t, names, failedAtOnce+1)
		require.Contains(t, names, "good")
	})
}
