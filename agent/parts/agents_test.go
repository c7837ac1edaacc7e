package parts

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cluster"
)

// Agents that do not run are known after the second look, and at once when they run again. Only an
// active gateway looks.
func TestAgentsThatDoNotRun(t *testing.T) {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Namespace: submarinerv1.OperatorNamespace}
	}
	c := fake.NewClientset(&appsv1.DaemonSet{
		ObjectMeta: meta(cluster.RouteAgentName), Status: appsv1.DaemonSetStatus{NumberAvailable: 2},
	})
	triggered := 0
	a := &agents{apps: c.AppsV1(), log: slog.New(slog.DiscardHandler), trigger: func() { triggered++ }}
	observe := func(active bool) string {
		s := role.Snapshot{Standing: role.Standing{Active: active}}
		require.NoError(t, a.Observe(&s))
		return s.NotRunning
	}
	set := func(available, unavailable int32) {
		_, err := c.AppsV1().DaemonSets(submarinerv1.OperatorNamespace).Update(t.Context(), &appsv1.DaemonSet{
			ObjectMeta: meta(cluster.RouteAgentName),
			Status:     appsv1.DaemonSetStatus{NumberAvailable: available, NumberUnavailable: unavailable},
		}, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	look := func(ctx context.Context) string {
		a.refresh(ctx)
		return observe(true)
	}
	observe(false)
	a.refresh(t.Context())
	require.Empty(t, c.Actions())

	observe(true)
	require.Empty(t, look(t.Context()), "a cluster without a global network has no globalnet agent")
	set(1, 1)
	require.Empty(t, look(t.Context()), "it may just restart")
	require.Equal(t, "the route agents of some nodes", look(t.Context()))
	require.Equal(t, 1, triggered)

	_, err := c.AppsV1().Deployments(submarinerv1.OperatorNamespace).Create(t.Context(),
		&appsv1.Deployment{ObjectMeta: meta(cluster.GlobalnetName)}, metav1.CreateOptions{})
	require.NoError(t, err)
	set(0, 2)
	look(t.Context())
	require.Equal(t, "the globalnet agent and the route agents of all nodes", look(t.Context()))
	set(2, 0)
	look(t.Context())
	require.Equal(t, "the globalnet agent", look(t.Context()))
	_, err = c.AppsV1().Deployments(submarinerv1.OperatorNamespace).Update(
		t.Context(),
		&appsv1.Deployment{
			ObjectMeta: meta(cluster.GlobalnetName),
			Status:     appsv1.DeploymentStatus{AvailableReplicas: 1},
		},
		metav1.UpdateOptions{},
	)
	require.NoError(t, err)
	require.Empty(t, look(t.Context()), "at once")
	require.Equal(t, 4, triggered)
}
