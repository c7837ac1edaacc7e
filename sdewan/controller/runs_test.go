package controller

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/sdewan"
	"subctl/sdewan/rest"
)

// A pod that never answers, or sends one byte after another, keeps no change from the other pod of its CNF.
func TestStallingPodDelaysNoOther(t *testing.T) {
	const limit = 12 * time.Second // of a request: how long the pod stalls at least
	for name, stall := range map[string]http.HandlerFunc{
		"never": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"trickles": func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				fmt.Fprint(w, " ")
				w.(http.Flusher).Flush()
				time.Sleep(100 * time.Millisecond)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			pods := w.cnf("cnf-1", 2)
			first := w.policy("cnf-1", "first")
			w.create(first)
			w.runWith(Options{Timeout: limit})
			w.inSync(first)
			pods[0].Fail(stall)
			began := time.Now()
			names := []string{"first"}
			for i := range 3 {
				p := w.policy("cnf-1", fmt.Sprint("p", i))
				w.create(p)
				names = append(names, p.Name)
				w.holds(pods[1], rest.Policies, names...)
				require.NoError(t, w.get(p))
				require.False(t, p.Status.InSync, "the other pod does not have it")
			}
			took := time.Since(began)
			t.Logf("three changes took %v", took)
			require.Less(t, took, limit, "they waited for the other pod")
			last := w.policy("cnf-1", "p2")
			var message string
			w.eventually(func() error {
				if err := w.get(last); err != nil {
					return err
				}
				if len(last.Status.Conditions) == 0 {
					return fmt.Errorf("no condition")
				}
				message = last.Status.Conditions[0].Message
				return nil
			})
			require.Contains(t, message, pods[0].name)
			// What is deleted stays until the pod that stalls has removed it, too.
			w.delete(first)
			w.holds(pods[1], rest.Policies, names[1:]...)
			require.NoError(t, w.get(first))
			pods[0].Fail(nil)
			w.inSync(last)
			w.gone(first)
			w.holds(pods[0], rest.Policies, names[1:]...)
		})
	}
}

// A pod that becomes ready has its rules although the only other one stalls.
func TestNewPodBesideStallingOne(t *testing.T) {
	const limit = 12 * time.Second
	w := newWorld(t)
	pods := w.cnf("cnf-1", 2)
	w.setReady(pods[1].name, false)
	var asked atomic.Bool
	pods[0].Fail(func(_ http.ResponseWriter, r *http.Request) {
		asked.Store(true)
		<-r.Context().Done()
	})
	p := w.policy("cnf-1", "p")
	w.create(p)
	w.runWith(Options{Timeout: limit})
	w.eventually(func() error {
		if !asked.Load() {
			return fmt.Errorf("the pod is not asked")
		}
		return nil
	})
	began := time.Now()
	w.setReady(pods[1].name, true)
	w.holds(pods[1], rest.Policies, "p")
	require.Less(t, time.Since(began), limit)
}

// scene is a CNF with two pods, whose syncs end when the test says so.
type scene struct {
	*testing.T
	*runs
	cnf    types.NamespacedName
	pods   []*corev1.Pod
	begun  chan string
	finish map[string]chan outcome
	asked  chan types.NamespacedName
}

func newScene(t *testing.T) *scene {
	s := &scene{
		T: t, runs: newRuns(newShares(4)), cnf: types.NamespacedName{Namespace: "a", Name: "cnf"}, begun: make(chan string, 100),
		finish: map[string]chan outcome{}, asked: make(chan types.NamespacedName, 100),
	}
	s.enqueue = func(cnf types.NamespacedName) { s.asked <- cnf }
	s.add("good")
	s.add("slow")
	t.Cleanup(s.close)
	return s
}

// attempt makes an attempt, and returns what it knows of the pods, after 20 s at the latest: a test that fails is not to wait for ever.
func (s *scene) attempt(meanwhile func()) []state {
	ctx, cancel := context.WithTimeout(s.Context(), 20*time.Second)
	defer cancel()
	require.True(s, s.begin(s.cnf))
	defer s.end(s.cnf)
	for _, p := range s.pods {
		s.start(s.Context(), s.cnf, p, func(ctx context.Context) outcome {
			s.begun <- p.Name
			select {
			case o := <-s.finish[p.Name]:
				return o
			case <-ctx.Done():
				return outcome{problem: problem{Unreachable, "cancelled"}}
			}
		})
	}
	go meanwhile()
	return s.wait(ctx, s.cnf, s.pods)
}

// begins waits until the syncs of pods have begun.
func (s *scene) begins(names ...string) {
	s.Helper()
	var got []string
	for range names {
		got = append(got, <-s.begun)
	}
	require.ElementsMatch(s, names, got)
}

var stuck = problem{Unreachable, "it does not answer"}

func TestRunsGoOn(t *testing.T) {
	s := newScene(t)
	states := s.attempt(func() {
		s.finish["good"] <- outcome{}
		s.changed(s.cnf, false)
	})
	s.begins("good", "slow")
	require.False(t, states[0].late)
	require.True(t, states[1].late)
	require.False(t, states[1].long)
	require.Equal(t, 1, s.slots.total, "a sync of the CNF is running")

	states = s.attempt(func() { // the change
		s.begins("good")
		s.finish["good"] <- outcome{}
		s.changed(s.cnf, false)
	})
	require.True(t, states[1].late)
	s.finish["slow"] <- outcome{problem: stuck}
	require.Equal(t, s.cnf, <-s.asked, "somebody must report the end")

	states = s.attempt(func() {
		s.begins("good")
		s.finish["good"] <- outcome{}
	})
	require.Equal(t, stuck, states[1].problem, "what has failed is reported, and not begun again at once")
	require.Empty(t, s.asked, "back-off decides")
	require.Zero(t, s.slots.total)

	states = s.attempt(func() {
		s.begins("good", "slow")
		s.finish["good"] <- outcome{}
		s.changed(s.cnf, false)
	})
	require.Equal(t, stuck, states[1].last, "what is wrong with it is known meanwhile")
	s.finish["slow"] <- outcome{}
	<-s.asked
	states = s.attempt(func() {
		s.begins("good")
		s.finish["good"] <- outcome{}
	})
	require.False(t, states[0].late || states[1].late)
	s.follows() // slow does not have the change
	states = s.attempt(func() {
		s.begins("good", "slow")
		s.finish["good"] <- outcome{}
		s.finish["slow"] <- outcome{}
	})
	require.False(t, states[0].late || states[1].late)
	require.Empty(t, s.asked)
}

func TestRunsOfPodsThatEnd(t *testing.T) {
	s := newScene(t)
	s.attempt(func() {
		s.finish["good"] <- outcome{}
		s.changed(s.cnf, false)
	})
	s.begins("good", "slow")
	s.pods[1].Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "cnf", RestartCount: 1}}
	s.keep(s.cnf, s.pods)
	require.Equal(t, s.cnf, <-s.asked, "the sync of the container that has ended is over")
	states := s.attempt(func() {
		s.begins("good", "slow")
		s.finish["good"] <- outcome{}
		s.finish["slow"] <- outcome{}
	})
	require.False(t, states[1].late)
	require.Empty(t, states[1].problem, "what was cancelled is no news")
	require.True(t, s.begin(s.cnf))
	s.keep(s.cnf, nil)
	s.end(s.cnf)
	require.Empty(t, s.cnfs, "nothing is left of a CNF that is gone")
	require.Zero(t, s.slots.total)
}

// A rule is in sync if all pods have it, and is not said to be otherwise as long as nothing else is known.
func TestVerdictOnLatePod(t *testing.T) {
	p := &corev1.Pod{}
	p.Name = "slow"
	x := rule{Rule: &batch.Mwan3Policy{}, kind: sdewan.Kinds()[0]}
	j := judgement{cnf: cnf{pods: []*corev1.Pod{p}}, states: []state{{late: true}}}
	_, known, _ := j.verdict(x, problem{})
	require.False(t, known)
	j.states[0].long = true
	v, known, again := j.verdict(x, problem{})
	require.True(t, known)
	require.False(t, again, "the end of its sync is an event")
	require.False(t, v.gone)
	require.Equal(t, Unfinished, v.reason)
	require.True(t, strings.HasPrefix(v.message, "pod slow: "), v.message)
	v, known, _ = j.verdict(x, stuck)
	require.True(t, known)
	require.Equal(t, stuck, v.problem)
	// What was synced before the rule was as it is says nothing about the rule.
	aim, _ := aimOf(nil, nil, services{}, nil)
	j.states = []state{{outcome: outcome{aim: aim}}}
	_, known, _ = j.verdict(x, problem{})
	require.False(t, known)
}
