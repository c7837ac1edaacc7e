package controller

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

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
