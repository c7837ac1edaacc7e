package agent

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/role"
	"subctl/api/submariner/v1alpha1"
	"subctl/dataplane"
	"subctl/dataplane/dataplanetest"
	"subctl/globalnet/allocator"
)

// An agent follows the global network of its cluster without being started again: each plan of a
// cluster with one has all the objects that it depends on, the first plan too, and a plan of a
// cluster without one has none.
func TestGlobalWatches(t *testing.T) {
	admin, config := globalnetServer(t)
	config.Impersonate.UserName = ""
	config.Impersonate.Groups = nil
	pods := 0
	pod := func() {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("pod-", pods)},
			Spec: corev1.PodSpec{
				AutomountServiceAccountToken: new(
					false),
				Containers: []corev1.Container{{Name: "c", Image: "none.invalid/none"}},
			},
		}
		require.NoError(t, admin.Create(t.Context(), p))
		pods++
	}
	setGlobal := func(network string) {
		sub := &v1alpha1.Submariner{
			ObjectMeta: metav1.ObjectMeta{Namespace: "submariner-operator", Name: v1alpha1.SubmarinerName},
		}
		require.NoError(
			t,
			admin.Patch(
				t.Context(),
				sub,
				client.RawPatch("application/merge-patch+json",
					fmt.Appendf(nil, `{"spec":{"globalCIDR":%q}}`, network)),
			),
		)
	}
	for range 3 {
		pod()
	}

	type planned struct {
		global bool
		pods   int
	}
	var mu sync.Mutex
	var plans []planned
	role := role.Role{
		Name:          "toy",
		Owner:         dataplane.RouteOwner,
		Resync:        time.Hour,
		Watches:       []role.Object{&v1alpha1.Submariner{}},
		GlobalWatches: []role.Object{&corev1.Pod{}},
		Plan: func(s role.Snapshot) (role.Plan, error) {
			mu.Lock()
			defer mu.Unlock()
			n := 0
			for _, p := range role.List[*corev1.Pod](s) {
				if p.Namespace == "default" {
					n++
				}
			}
			plans = append(plans, planned{allocator.HasGlobalNetwork(s), n})
			return role.Plan{State: dataplane.State{}}, nil
		},
		Report: func(role.Snapshot, role.Plan, role.Outcome) role.Report { return role.Report{} },
	}
	// next returns the first plan from now on with or without a global network.
	next := func(from int, global bool) planned {
		t.Helper()
		var found planned
		require.Eventually(t, func() bool {
			mu.Lock()
			defer mu.Unlock()
			for _, p := range plans[from:] {
				if p.global == global {
					found = p
					return true
				}
			}
			return false
		}, time.Minute, 10*time.Millisecond)
		return found
	}
	sofar := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(plans)
	}
	o := Options{Role: role, Config: config, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	mgr, err := newManager(o, scopeOf(role))
	require.NoError(t, err)
	a := &agent{
		scope:  scopeOf(role),
		Role:   role,
		Node:   "node",
		Client: mgr.GetClient(),
		Log:    o.Log,
		meters: newMeters(role.Name, prometheus.NewRegistry()),
		pace:   rate.NewLimiter(rate.Inf, 0),
		Kernel: Kernel{
			Facts:  func() (dataplane.Facts, error) { return dataplane.Facts{}, nil },
			Target: func(dataplane.Owner) (dataplane.Target, error) { return &dataplanetest.Fake{}, nil },
		},
	}
	triggers, trigger := newTriggers()
	require.NoError(t, a.watch(mgr, triggers, trigger))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})

	require.Equal(t, planned{true, pods}, next(0, true), "the first plan")
	for range 3 {
		from := sofar()
		setGlobal("")
		require.Equal(t, planned{false, 0}, next(from, false), "without a global network")
		pod() // of which nobody tells the agent
		from = sofar()
		setGlobal("242.7.0.0/16")
		require.Equal(t, planned{true, pods}, next(from, true), "with one again")
	}
	pod()
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return plans[len(plans)-1].pods == pods
	}, time.Minute, 10*time.Millisecond, "a new pod leads to a plan")
}
