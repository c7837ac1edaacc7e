package agent

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"subctl/agent/role"
	"subctl/agent/roles"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
	"subctl/dataplane/dataplanetest"
)

func (b *beside) Refresh(s *role.Snapshot) {
	s.Health = maps.Clone(s.Health)
	maps.Copy(s.Health, b.health)
}

// What the probes find is followed while the loop waits for the API server, and the next loop has
// nothing to change.
func TestReroute(t *testing.T) {
	w := newWorld(t, roles.Gateway(), "two-active-gateways")
	w.reroute(t.Context())
	require.Empty(t, w.holds(t, dataplane.GatewayOwner), "there is no snapshot yet")
	w.run(t)
	w.run(t)
	before := w.holds(t, dataplane.GatewayOwner)
	down := ""
	for name, target := range w.plan.Probes.Targets {
		if target.Fast {
			down = name
		}
	}
	require.NotEmpty(t, down)

	waiting := make(chan struct{}, 100)
	answers := make(chan struct{})
	w.Client = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		Apply: func(
			ctx context.Context,
			c client.WithWatch,
			o runtime.ApplyConfiguration,
			opts ...client.ApplyOption,
		) error {
			waiting <- struct{}{}
			<-answers
			return c.Apply(ctx, o, opts...)
		},
	})
	gw := get(t, w, &submarinerv1.Gateway{}, "gw")
	gw.SetReportedAt(gw.CreationTimestamp.Time) // so that there is something to report
	require.NoError(t, w.Client.Update(t.Context(), gw))
	looped := make(chan error)
	go func() {
		_, err := w.Reconcile(t.Context(), everything)
		looped <- err
	}()
	<-waiting
	w.health[down] = role.Health{Status: submarinerv1.ConnectionError}
	w.reroute(t.Context())
	after := w.holds(t, dataplane.GatewayOwner)
	require.NotEqual(t, before, after)
	close(answers)
	require.NoError(t, <-looped)
	w.run(t)
	require.Equal(t, after, w.holds(t, dataplane.GatewayOwner))
}

// watched is a kernel that notes what is done with it.
type watched struct {
	*dataplanetest.Fake
	done *[]string
}

func (w watched) Observe(ctx context.Context, kinds ...dataplane.Kind) (dataplane.State, error) {
	*w.done = append(*w.done, "observe")
	return w.Fake.Observe(ctx, kinds...)
}

func (w watched) Apply(ctx context.Context, op dataplane.Op) error {
	*w.done = append(*w.done, op.String())
	return w.Fake.Apply(ctx, op)
}

// Packets leave a gateway that does not answer before the kernel is read, which takes a while. The
// result is the same.
func TestRerouteAhead(t *testing.T) {
	var done []string
	kernel := &dataplanetest.Fake{}
	w := newWorld(t, roles.Gateway(), "two-active-gateways")
	w.Kernel.Target = func(dataplane.Owner) (dataplane.Target, error) { return watched{kernel, &done}, nil }
	w.run(t)
	for name, target := range w.plan.Probes.Targets {
		if target.Fast {
			w.health[name] = role.Health{Status: submarinerv1.Connected}
		}
	}
	w.run(t)
	var first, second role.Healths
	for name := range w.health {
		first = second
		second = role.Healths{name: {Status: submarinerv1.ConnectionError}}
	}
	require.NotNil(t, first, "there are several cables")
	for _, down := range []role.Healths{first, second} {
		for name := range w.health {
			w.health[name] = role.Health{Status: submarinerv1.Connected}
		}
		maps.Copy(w.health, down)
		done = nil
		w.reroute(t.Context())
		require.Greater(t, len(done), 1)
		require.Contains(t, done[0], "+ ip nexthop replace id ")
		require.Contains(t, done[0], " group ")
		require.NotContains(t, done[1:], done[0])
		require.Equal(t, "observe", done[1])
		done = nil
		w.run(t)
		require.Equal(t, []string{"observe"}, done, "the loop has nothing to change")
	}

	t.Log("another program has removed the group")
	for k := range w.plan.State {
		if k.Kind == dataplane.KindGroup {
			require.NoError(t, kernel.Remove(k))
		}
	}
	maps.Copy(w.health, first)
	w.reroute(t.Context())
	got, err := kernel.Observe(t.Context())
	require.NoError(t, err)
	w.run(t)
	require.Empty(t, dataplane.Diff(got, w.plan.State))
}

// A cable that can never be set up does not delay what follows the probes of other cables.
func TestRerouteAheadBesideFailure(t *testing.T) {
	var done []string
	kernel := &dataplanetest.Fake{Refuse: func(o dataplane.Object) error {
		if o.Key() == (dataplane.Key{Kind: dataplane.KindLink, Name: northDevice}) {
			return errors.New(portTaken)
		}
		return nil
	}}
	w := newWorld(t, roles.Gateway(), "two-active-gateways")
	w.withNorth(t)
	w.Kernel.Target = func(dataplane.Owner) (dataplane.Target, error) { return watched{kernel, &done}, nil }
	w.run(t)
	down := ""
	for name, target := range w.plan.Probes.Targets {
		if target.Fast && strings.HasPrefix(name, "submariner-cable-west-") {
			w.health[name] = role.Health{Status: submarinerv1.Connected}
			down = name
		}
	}
	require.NotEmpty(t, down)
	w.run(t)
	for _, status := range []submarinerv1.ConnectionStatus{submarinerv1.ConnectionError, submarinerv1.Connected} {
		w.health[down] = role.Health{Status: status}
		done = nil
		w.reroute(t.Context())
		require.Greater(t, len(done), 1)
		require.Contains(t, done[0], "+ ip nexthop replace id ")
		require.Contains(t, done[0], " group ")
		require.NotContains(t, done[1:], done[0], "it is done once")
		require.Contains(t, strings.Join(done, "\n"), northDevice, "the other cable is tried all the time")
	}
}

// Connections that wait for a gateway which does not answer do so no longer than they are to: the
// next loop does not wait for a change.
func TestLoopFollowsWhoIsAwaited(t *testing.T) {
	w := newWorld(t, roles.Route(), "two-active-gateways")
	w.Node = "worker"
	w.Kernel.Facts = workerFacts
	w.run(t)
	usual, err := w.Reconcile(t.Context(), everything)
	require.NoError(t, err)
	w.health["gateway/gw2"] = role.Health{Status: submarinerv1.ConnectionError, Since: time.Now()}
	soon, err := w.Reconcile(t.Context(), everything)
	require.NoError(t, err)
	require.Less(t, soon.RequeueAfter, min(usual.RequeueAfter, 3*time.Second))
	require.Positive(t, soon.RequeueAfter)
	before := w.holds(t, dataplane.RouteOwner)
	w.health["gateway/gw2"] = role.Health{Status: submarinerv1.ConnectionError, Since: time.Now().Add(-time.Minute)}
	later, err := w.Reconcile(t.Context(), everything)
	require.NoError(t, err)
	require.Equal(t, usual.RequeueAfter, later.RequeueAfter)
	require.NotEqual(t, before, w.holds(t, dataplane.RouteOwner), "they choose another one")
}

// They wait no longer, either, while the loop does not run: it may wait for an API server that does
// not answer.
func TestAwaitedWithoutLoop(t *testing.T) {
	for name, loop := range map[string]bool{"found by the probes": false, "found by the last loop": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, roles.Route(), "two-active-gateways")
				w.Node = "worker"
				w.Kernel.Facts = workerFacts
				w.run(t)
				gone := func() (gone int) {
					s, err := w.kernels[dataplane.RouteOwner.Name].Observe(t.Context())
					require.NoError(t, err)
					for _, g := range dataplanetest.ReturnGateways(s) {
						if g.Down {
							gone++
						}
					}
					return gone
				}
				run, ask := w.rerouting()
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- run.Start(ctx) }()
				w.health["gateway/gw2"] = role.Health{Status: submarinerv1.ConnectionError, Since: time.Now()}
				before := w.holds(t, dataplane.RouteOwner)
				if loop {
					w.run(t)
				} else {
					ask()
				}
				time.Sleep(time.Second)
				require.NotEqual(t, before, w.holds(t, dataplane.RouteOwner), "new connections choose another one")
				require.Zero(t, gone(), "it may answer again")
				time.Sleep(2 * time.Second)
				require.Equal(t, 1, gone())
				stop()
				require.NoError(t, <-done)
			})
		})
	}
}

// A member whose gateways answer and do not answer by turns cannot keep the agent busy.
func TestHostileFlapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const takes = 20 * time.Millisecond
		plans := 0
		a := &agent{last: &role.Snapshot{}, Role: role.Role{Plan: func(role.Snapshot) (role.Plan, error) {
			plans++
			time.Sleep(takes)
			return role.Plan{}, role.ErrNotJoined
		}}}
		run, ask := a.rerouting()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		start := time.Now()
		go func() { done <- run.Start(ctx) }()
		ask()
		synctest.Wait()
		require.Equal(t, 1, plans, "at once")
		for time.Since(start) < time.Minute {
			ask()
			time.Sleep(time.Millisecond)
		}
		stop()
		require.NoError(t, <-done)
		require.InDelta(t, float64(time.Minute+rerouteCredit)/float64(reroutePause*takes), plans, 2)
	})
}
