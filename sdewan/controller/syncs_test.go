package controller

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/sdewan"
	"subctl/sdewan/rest"
)

// A pod that never answers, or sends one byte after another, keeps no change from the other pod of
// its CNF.
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

// scene is a CNF whose pods are synced when the test says so.
type scene struct {
	*testing.T
	*syncs
	cnf     types.NamespacedName
	pods    []*corev1.Pod
	to      revision // that pods should have
	clock   time.Time
	changes int // that are to be reported
}

func newScene(t *testing.T) *scene {
	s := &scene{T: t, cnf: types.NamespacedName{Namespace: "a", Name: "cnf"}, clock: time.Unix(1700000000, 0)}
	s.syncs = newSyncs(func() time.Time { return s.clock })
	s.changed = func(cnf types.NamespacedName) {
		require.Equal(t, s.cnf, cnf)
		s.changes++
	}
	s.add("good")
	s.add("slow")
	return s
}

// readyPod returns a pod that is ready.
func readyPod(name string) *corev1.Pod {
	p := &corev1.Pod{}
	p.Name = name
	p.UID = types.UID(name)
	p.Status.PodIP = "192.0.2.1"
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	return p
}

// add adds a pod.
func (s *scene) add(name string) { s.pods = append(s.pods, readyPod(name)) }

func (s *scene) key(name string) podKey { return podKey{s.cnf, name} }

// start starts a sync of a pod, and returns what ends it.
func (s *scene) start(name string) (end func(outcome)) {
	s.Helper()
	i := slices.IndexFunc(s.pods, func(p *corev1.Pod) bool { return p.Name == name })
	r := s.to
	ctx, p := s.begin(s.Context(), s.key(name), s.pods[i], r)
	return func(o outcome) {
		o.revision = r
		s.end(ctx, s.key(name), p, o)
	}
}

// sync syncs a pod.
func (s *scene) sync(name string, o outcome) {
	s.Helper()
	s.start(name)(o)
}

// look returns the states of the pods.
func (s *scene) look() []state {
	return s.states(s.cnf, s.pods, func(*corev1.Pod) revision { return s.to })
}

var stuck = problem{Unreachable, "it does not answer"}

// What a pod came to is known whatever another one does, and a pod is synced again if it lacks a
// change: also one that came while it was being synced.
func TestSyncsOfPods(t *testing.T) {
	s := newScene(t)
	states := s.look()
	require.True(t, states[0].due && states[1].due)
	slow := s.start("slow")
	require.False(t, s.look()[1].due, "it is being sent the change")
	s.sync("good", outcome{})
	require.Equal(t, 1, s.changes, "somebody must report the end")
	states = s.look()
	require.False(t, states[0].behind || states[0].due)
	require.True(t, states[1].behind && states[1].running)
	require.False(t, states[1].late)
	require.Equal(t, lateAfter, states[1].lateIn)

	s.to = revision{1}
	states = s.look()
	require.True(t, states[0].due && states[1].due, "the change")
	slow(outcome{problem: stuck})
	require.Equal(t, stuck, s.look()[1].last.problem)
	require.True(t, s.hasFailed(s.key("slow")))
	s.sync("slow", outcome{problem: stuck})
	require.False(t, s.look()[1].due, "back-off decides when what has failed is tried again")
	slow = s.start("slow")
	require.Equal(t, stuck, s.look()[1].last.problem, "what is wrong with it is known meanwhile")
	slow(outcome{})
	require.False(t, s.hasFailed(s.key("slow")))
}

// A pod that lacks a change is late some time after another one has it, however often something
// changes meanwhile.
func TestLatePods(t *testing.T) {
	s := newScene(t)
	s.start("slow")
	s.look()
	s.clock = s.clock.Add(time.Hour)
	require.False(t, s.look()[1].late, "no pod is quicker")
	for i := range lateAfter / time.Second {
		s.to = revision{byte(i)}
		s.look()
		s.sync("good", outcome{})
		require.False(t, s.look()[1].late)
		s.clock = s.clock.Add(time.Second)
	}
	state := s.look()[1]
	require.True(t, state.late)
	require.Contains(t, state.lateOn("slow").message, "answers slowly")
	state.running = false
	require.Contains(t, state.lateOn("slow").message, "waits for other pods")
	s.pods[1].Status.Conditions = nil
	require.False(t, s.look()[1].late, "it is not ready")
}

// The sync of a container that has ended is cancelled, and what was cancelled is no news; nothing
// is left of a CNF that is gone.
func TestSyncsOfPodsThatEnd(t *testing.T) {
	s := newScene(t)
	ctx, p := s.begin(t.Context(), s.key("slow"), s.pods[1], s.to)
	s.pods[1] = s.pods[1].DeepCopy()
	s.pods[1].Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "cnf", RestartCount: 1}}
	s.keep(s.cnf, s.pods)
	require.ErrorIs(t, ctx.Err(), context.Canceled)
	require.True(t, s.look()[1].due)
	s.end(ctx, s.key("slow"), p, outcome{problem: stuck})
	require.Nil(t, s.look()[1].last)
	require.False(t, s.look()[1].running)
	s.keep(s.cnf, nil)
	require.Empty(t, s.syncs.pods)
}

// What a pod refuses while its sync goes on is known, and forgotten when the sync ends.
func TestPartialOutcome(t *testing.T) {
	s := newScene(t)
	ctx, p := s.begin(t.Context(), s.key("good"), s.pods[0], s.to)
	a := id{rest.Policies, "a"}
	b := id{rest.Policies, "b"}
	s.refused(s.key("good"), p, aim{}, map[id]error{a: errDiffers})
	s.refused(s.key("good"), p, aim{}, map[id]error{b: errDiffers})
	require.Equal(t, map[id]error{a: errDiffers, b: errDiffers}, s.look()[0].partial.synced.refused)
	s.end(ctx, s.key("good"), p, outcome{})
	require.Nil(t, s.look()[0].partial)
}

// Many pods of a CNF with many rules share what became of the rules, so that they take little
// memory.
func TestHostileManyPods(t *testing.T) {
	const pods, rules = 300, 10_000
	s := newScene(t)
	var all []rule
	for i := range rules {
		x := rule{Rule: &batch.Mwan3Policy{}, kind: sdewan.Kinds()[0]}
		x.SetName(fmt.Sprint("x", i))
		x.SetUID(types.UID(x.GetName()))
		all = append(all, x)
	}
	before := heap()
	for i := range pods {
		name := fmt.Sprint("pod-", i)
		s.add(name)
		aim, _ := aimOf(all, nil, services{}, func(*rest.Collection, string) bool { return false })
		s.sync(name, outcome{aim: aim})
	}
	require.Less(t, heap()-before, 16, "MiB")
	require.True(t, s.look()[pods].last.aim.isFor(all[0], services{}))
	s.to = revision{1}
	s.sync("pod-0", outcome{})
	require.Nil(t, s.look()[2].last.aim.versions,
		"another revision, and not one that has failed before it came to rules")
}

// That a pod was given an object is known until a report has told it, also if the pod is synced
// again meanwhile.
func TestWrittenUntilReported(t *testing.T) {
	s := newScene(t)
	x := rule{Rule: &batch.Mwan3Policy{}, kind: sdewan.Kinds()[0]}
	x.SetName("x")
	key := id{x.kind.Collection, "x"}
	wrote := outcome{synced: synced{written: map[id]bool{key: true}}}
	s.sync("good", wrote)
	s.sync("good", outcome{})
	before := s.look()
	require.Contains(t, before[0].written, key)
	s.sync("good", wrote)
	s.reported(s.cnf, s.pods, before, []rule{x})
	after := s.look()
	require.Contains(t, after[0].written, key, "it was written once more")
	s.reported(s.cnf, s.pods, after, nil)
	require.Contains(t, s.look()[0].written, key, "nothing was known of the rule")
	s.reported(s.cnf, s.pods, after, []rule{x})
	require.Empty(t, s.look()[0].written)
}

// A rule is in sync if all pods have it, and is not said to be otherwise as long as nothing else is
// known.
func TestVerdictOnLatePod(t *testing.T) {
	p := &corev1.Pod{}
	p.Name = "slow"
	x := rule{Rule: &batch.Mwan3Policy{}, kind: sdewan.Kinds()[0]}
	j := judgement{cnf: cnf{pods: []*corev1.Pod{p}}, states: []state{{ready: true, behind: true}}}
	_, known := j.verdict(x, problem{})
	require.False(t, known)
	j.states[0].late = true
	v, known := j.verdict(x, problem{})
	require.True(t, known)
	require.False(t, v.gone)
	require.Equal(t, Unfinished, v.reason)
	require.True(t, strings.HasPrefix(v.message, "pod slow: "), v.message)
	v, known = j.verdict(x, stuck)
	require.True(t, known)
	require.Equal(t, stuck, v.problem)
	// What was synced before the rule was as it is says nothing about the rule.
	aim, _ := aimOf(nil, nil, services{}, nil)
	j.states = []state{{ready: true, last: &outcome{aim: aim}}}
	_, known = j.verdict(x, problem{})
	require.False(t, known)
}

// A pod that was synced with the address that the name of a CNFService had before says nothing
// about the rule, and is given the address.
func TestVerdictOnOldTarget(t *testing.T) {
	kinds := sdewan.Kinds()
	i := slices.IndexFunc(kinds, func(k sdewan.Kind) bool { return k.GVK.Kind == "CNFService" })
	x := rule{Rule: &batch.CNFService{}, kind: kinds[i]}
	to := func(address string) services {
		t := target{address: netip.MustParseAddr(address), proto: "tcp"}
		return services{dns: true, targets: map[types.UID]target{x.GetUID(): t}}
	}
	before := to("192.0.2.1")
	now := to("192.0.2.2")
	d := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: new(int32(1))}}
	d.Status.ReadyReplicas = 1
	key := types.NamespacedName{Namespace: "a", Name: "cnf"}
	c := cnf{key: key, deployments: []*appsv1.Deployment{d}, pods: []*corev1.Pod{readyPod("p")}, rules: []rule{x}}
	j := judgement{cnf: c, services: now}
	r := &cnfReconciler{}
	judge := func(was services) verdicts {
		aim, _ := aimOf(j.rules, nil, was, nil)
		j.states = []state{{ready: true, last: &outcome{aim: aim}}}
		return r.judge(j, func() bool { return true })
	}
	v := judge(now)
	require.Len(t, v.rules, 1)
	require.Empty(t, v.of(x).reason)
	require.Empty(t, judge(before).rules, "nothing is known of it")
	require.NotEqual(t, j.revisionOf(before)(j.pods[0]), j.revisionOf(now)(j.pods[0]), "the pod is synced again")
	backoff := workqueue.NewTypedItemExponentialFailureRateLimiter[podKey](time.Second, time.Minute)
	p := &podReconciler{o: Options{Resync: time.Hour}, backoff: backoff}
	require.LessOrEqual(t, p.pause(podKey{key, "p"}, false, now), dnsAgain)
}
