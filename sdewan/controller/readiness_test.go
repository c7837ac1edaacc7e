package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/internal/kubetest"
	"subctl/sdewan"
	"subctl/sdewan/controller/fair"
)

// flapping is a CNF with one rule and two pods, whose readiness changes every second.
type flapping struct {
	*cnfReconciler
	judgement
	now    time.Time
	x      rule
	writes int // of the status of the rule
}

func newFlapping(t *testing.T) *flapping {
	f := &flapping{now: time.Unix(1700000000, 0)}
	f.cnfReconciler = &cnfReconciler{
		o: Options{
			Log:    slog.New(slog.DiscardHandler),
			Resync: time.Hour,
			now:    func() time.Time { return f.now },
		},
		faults:    map[types.NamespacedName]problem{},
		told:      map[types.NamespacedName]news{},
		readiness: map[types.NamespacedName]readiness{},
	}
	kinds := sdewan.Kinds()
	f.x = rule{
		Rule: &batch.CNFService{},
		kind: kinds[slices.IndexFunc(kinds, func(k sdewan.Kind) bool { return k.GVK.Kind == "CNFService" })],
	}
	key := types.NamespacedName{Namespace: "a", Name: "cnf"}
	f.x.SetNamespace(key.Namespace)
	f.x.SetLabels(map[string]string{sdewan.PurposeLabel: key.Name})
	d := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: new(int32(2))}}
	d.Name = key.Name
	f.cnf = cnf{
		key:         key,
		deployments: []*appsv1.Deployment{d},
		pods:        []*corev1.Pod{readyPod("first"), readyPod("second")},
		rules:       []rule{f.x},
	}
	f.setTarget(true)
	return f
}

// second lets a second pass in which pods are ready, or not, and writes the status of the rule if
// it changes.
func (f *flapping) second(ready ...bool) verdicts {
	f.now = f.now.Add(time.Second)
	f.states = make([]state, len(ready))
	f.deployments[0].Status.ReadyReplicas = 0
	for i, is := range ready {
		status := corev1.ConditionFalse
		if is {
			status = corev1.ConditionTrue
			aim, _ := aimOf(f.rules, nil, f.services, nil)
			f.states[i] = state{ready: true, last: &outcome{aim: aim}}
			f.deployments[0].Status.ReadyReplicas++
		}
		f.pods[i].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
	}
	a := f.judge(f.judgement, sync.OnceValue(func() bool { return f.mayTell(f.key) }))
	if v := a.of(f.x); len(a.rules) == 1 && f.toReport(f.x, v) {
		*f.x.RuleStatus(), _ = status(f.x, v, "1", f.now)
		f.x.SetFinalizers([]string{Finalizer})
		f.writes++
	}
	return a
}

// problem returns the problem that the status of the rule has.
func (f *flapping) problem() problem {
	c := meta.FindStatusCondition(f.x.RuleStatus().Conditions, batch.ConditionApplied)
	return problem{c.Reason, c.Message}
}

// turn lets the pods be not ready, and then ready again.
func (f *flapping) turn() verdicts {
	f.second(true, false)
	return f.second(true, true)
}

// turnTooOften lets the pods be not ready so often that their rules keep NotReady for a while.
func (f *flapping) turnTooOften() {
	for f.turn().after == 0 {
	}
}

// rollOut changes the Deployment, which then replaces its pods one after another: each new one
// becomes ready before the next one is created.
func (f *flapping) rollOut() (last verdicts) {
	f.deployments[0].Generation++
	f.second(true, true)
	f.deployments[0].Status.ObservedGeneration++
	f.second(true, true)
	for range f.pods {
		last = f.turn()
	}
	return last
}

// setTarget makes the Service of the rule exist, or not.
func (f *flapping) setTarget(exists bool) {
	to := target{address: netip.MustParseAddr("192.0.2.1"), proto: "tcp"}
	if !exists {
		to = target{err: errors.New("there is no Service")}
	}
	f.services = services{targets: map[types.UID]target{"": to}}
}

// Pods whose readiness changes all the time make the controller write the statuses of the rules
// seldom. No rule is in sync while one is not ready.
func TestHostileReadiness(t *testing.T) {
	const replicas = 2 // as many turns are spared
	for name, test := range map[string]struct {
		ready  func(second int) []bool
		writes int // in 2 h, at most
	}{
		"every few seconds":   {func(s int) []bool { return []bool{true, s%4 != 0} }, 1 + 2*(newsPer+replicas)},
		"every minute":        {func(s int) []bool { return []bool{true, s%60 > 10} }, 1 + 2*(newsPer+replicas+2)},
		"every ten minutes":   {func(s int) []bool { return []bool{true, s%600 > 60} }, 2 * 12},
		"one after the other": {func(s int) []bool { return []bool{s%2 == 0, s%2 != 0} }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFlapping(t)
			for s := range 7200 {
				ready := test.ready(s)
				f.second(ready...)
				require.False(t, f.x.inSync() && slices.Contains(ready, false))
			}
			require.LessOrEqual(t, f.writes, test.writes)
			for range int(readyUntil/time.Second) + 1 {
				f.second(true, true)
			}
			require.True(t, f.x.inSync(), "it has been ready for a while")
		})
	}
}

// A CNF that was not ready a few times is in sync at once, and so is a change of a rule, or its
// deletion, on a CNF that keeps others waiting.
func TestReadiness(t *testing.T) {
	f := newFlapping(t)
	for range newsPer + len(f.pods) {
		f.second(true, false)
		require.Equal(t, NotReady, f.problem().reason)
		require.Contains(t, f.problem().message, "not all pods of Deployment cnf are ready")
		require.Zero(t, f.second(true, true).after)
		require.True(t, f.x.inSync())
	}
	f.second(true, false)
	told := f.problem()
	require.Contains(t, told.message,
		"Deployment cnf were not ready too often: the rule is reported in sync when all of them have stayed ready for 15s")
	a := f.second(true, true)
	require.Equal(t, told, f.problem())
	require.Equal(t, readyFrom, a.after)
	require.Equal(t, readyFrom-time.Second, f.second(true, true).after)
	f.x.SetGeneration(2)
	f.second(true, true)
	require.True(t, f.x.inSync())
	for f.second(true, true).after > 0 {
	}
	f.second(true, false)
	require.False(t, f.x.inSync())
	require.Equal(t, 2*readyFrom, f.second(true, true).after, "longer each time")
	for range int(readyForget / time.Second) {
		f.second(true, true)
	}
	require.Empty(t, f.readiness)
	f.second(true, false)
	f.second(true, true)
	require.True(t, f.x.inSync(), "that is forgotten")
}

// A rollout counts as one time, and any pod that is not ready after it as another one.
func TestReadinessInRollouts(t *testing.T) {
	f := newFlapping(t)
	for range newsPer {
		require.Zero(t, f.rollOut().after)
		require.True(t, f.x.inSync())
	}
	require.Positive(t, f.turn().after)
	f.rollOut()
	require.False(t, f.x.inSync(), "rollouts without end write no statuses")
	writes := f.writes
	for range 100 {
		f.rollOut()
	}
	require.Equal(t, writes, f.writes)
}

// What else is wrong with a rule is in its status although a pod is not ready, or its CNF keeps it
// waiting.
func TestMistakeWhileNotReady(t *testing.T) {
	f := newFlapping(t)
	f.turnTooOften()
	f.second(true, false)
	for range newsPer {
		require.Equal(t, NotReady, f.problem().reason)
		f.setTarget(false)
		f.second(true, false)
		require.Equal(t, problem{Invalid, "there is no Service"}, f.problem())
		f.setTarget(true)
		f.second(true, false)
	}
	f.setTarget(false)
	require.Positive(t, f.second(true, true).after, "then it may be told")
	require.Equal(t, NotReady, f.problem().reason, "the statuses have changed as often as they may within a minute")
	for range int(newsTime / time.Second) {
		f.second(true, false)
	}
	require.Equal(t, Invalid, f.problem().reason)
}

// Mistakes in rules of a CNF none of whose pods is ready now and then make the controller write
// their statuses seldom.
func TestHostileMistakes(t *testing.T) {
	f := newFlapping(t)
	f.setTarget(false)
	const minutes = 30
	for s := range minutes * 60 {
		f.second(s%2 == 0, false)
	}
	require.LessOrEqual(t, f.writes, 2*newsPer*(minutes+1))
}

// The statuses of many rules of one namespace leave those of others room.
func TestHostileReports(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	begun := make(chan struct{}, 2*maxWrites)
	c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(kubetest.Scheme(t)).Build(), interceptor.Funcs{
		SubResourcePatch: func(
			ctx context.Context,
			_ client.Client,
			_ string,
			obj client.Object,
			_ client.Patch,
			_ ...client.SubResourcePatchOption,
		) error {
			if obj.GetNamespace() == "hostile" {
				begun <- struct{}{}
				<-ctx.Done()
			}
			return ctx.Err()
		},
	})
	r := &cnfReconciler{o: Options{now: time.Now}, client: c, writes: fair.NewSlots(maxWrites)}
	report := func(namespace string, count int) error {
		f := newFlapping(t)
		var rules []rule
		for i := range count {
			x := f.x.DeepCopyObject().(*batch.CNFService)
			x.Namespace = namespace
			x.Name = fmt.Sprint(i)
			rules = append(rules, rule{x, f.x.kind})
		}
		return r.report(ctx, rules, func(rule) verdict { return verdict{problem: problem{NotReady, "x"}} })
	}
	done := make(chan error)
	go func() { done <- report("hostile", 2*maxWrites) }()
	for range maxWrites / 2 {
		<-begun
	}
	require.NoError(t, report("other", maxWrites))
	require.Empty(t, begun)
	cancel()
	require.Error(t, <-done)
}
