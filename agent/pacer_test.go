package agent

import (
	"context"
	"fmt"
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
)

// A member whose gateways answer and do not answer by turns makes agents write few reports after
// the first ones. What changes about other clusters, or about this one, is reported at once all the
// same, and what lasts of its changes soon.
func TestHostileReports(t *testing.T) {
	for _, role := range []role.Role{roles.Gateway(), roles.Route()} {
		t.Run(role.Name, func(t *testing.T) {
			w := newWorld(t, role, "two-clusters")
			if role.Name == roles.Route().Name {
				w.Node = "worker"
				w.Kernel.Facts = workerFacts
				ra := get(t, w, &submarinerv1.RouteAgent{}, "worker")
				ra.Status.Node = nil // as the agent of this test reports it
				require.NoError(t, w.Client.Update(t.Context(), ra))
			}
			w.withNorth(t)
			synctest.Test(t, func(t *testing.T) { testHostileReports(t, w) })
		})
	}
}

func testHostileReports(t *testing.T, w *world) {
	const loops = 300 // a minute
	writes := 0
	w.Client = interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
		Apply: func(
			ctx context.Context,
			c client.WithWatch,
			o runtime.ApplyConfiguration,
			opts ...client.ApplyOption,
		) error {
			writes++
			return c.Apply(ctx, o, opts...)
		},
	})
	flips := 0
	flip := func(name string) {
		flips++
		w.health[name] = role.Health{Status: submarinerv1.ConnectionError, Message: fmt.Sprint("no answer ", flips)}
	}
	wrote := func() int {
		before := writes
		w.run(t)
		return writes - before
	}
	w.health[westCable] = role.Health{Status: submarinerv1.Connected}
	w.health[northCable] = role.Health{Status: submarinerv1.Connected}
	for range 5 {
		w.run(t)
	}
	time.Sleep(time.Minute)
	w.run(t)
	require.Zero(t, wrote(), "nothing has changed")
	for range pacedBurst {
		flip(westCable)
		require.Equal(t, 1, wrote(), "the first changes are reported at once")
	}
	total := writes
	for range loops {
		flip(westCable)
		w.run(t)
		time.Sleep(loopPause)
	}
	lasts := loops * loopPause
	require.LessOrEqual(t, writes-total, int(lasts/pacedEvery+lasts/(5*time.Second))+1)
	require.Greater(t, writes-total, int(lasts/pacedEvery)/2)

	for flip(westCable); wrote() > 0; {
		flip(westCable) // until one has to wait
	}
	flip(northCable)
	require.Equal(t, 1, wrote(), "of another cluster")
	flip(westCable)
	require.Zero(t, wrote())
	facts := w.Kernel.Facts
	w.Kernel.Facts = func() (dataplane.Facts, error) {
		f, err := facts()
		f.IPsec.Missing = "it was uninstalled"
		return f, err
	}
	require.Positive(t, wrote(), "of this cluster")

	flip(westCable)
	require.Zero(t, wrote())
	again, err := w.Reconcile(t.Context(), everything)
	require.NoError(t, err)
	require.LessOrEqual(t, again.RequeueAfter, pacedEvery)
	time.Sleep(again.RequeueAfter)
	require.Equal(t, 1, wrote(), "what lasts")
}
