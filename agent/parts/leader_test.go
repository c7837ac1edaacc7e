package parts

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/kubetest"
)

// runLeader runs the agent of a pod until ctx is done. leads reports whether it holds the lease.
func runLeader(
	ctx context.Context,
	t *testing.T,
	config *rest.Config,
	pod string,
) (leads func() bool, ended <-chan error) {
	t.Helper()
	triggered := make(chan struct{}, 1)
	l, err := newLeader(Options{
		Node:    "n1",
		Pod:     pod,
		Config:  config,
		Log:     slog.New(slog.DiscardHandler),
		Trigger: func() { triggered <- struct{}{} },
	})
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- l.Start(ctx) }()
	return func() bool { return l.Observe(&role.Snapshot{}) == nil }, done
}

// leaderOf is the environment of the process that TestLeaderIsKilled kills: the name of its pod.
const leaderOf = "LEADER_OF_POD"

// An agent that is killed, and started again in its pod, acts at once. So does the agent of another
// pod if the one before has ended in good order. If it was killed with its node, the lease has to
// end first.
func TestLeaderIsKilled(t *testing.T) {
	if pod := os.Getenv(leaderOf); pod != "" {
		config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
		require.NoError(t, err)
		_, ended := runLeader(t.Context(), t, config, pod)
		t.Fatal(<-ended)
	}
	server := kubetest.Start(t)
	api := server.Client(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: submarinerv1.OperatorNamespace}}
	require.NoError(t, client.IgnoreAlreadyExists(api.Create(t.Context(), namespace)))
	holder := func() string {
		l := &coordinationv1.Lease{}
		key := client.ObjectKey{Namespace: submarinerv1.OperatorNamespace, Name: submarinerv1.GatewayNodesLease}
		if api.Get(t.Context(), key, l) != nil || l.Spec.HolderIdentity == nil {
			return ""
		}
		return *l.Spec.HolderIdentity
	}
	killed := func(pod string) {
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestLeaderIsKilled$")
		c.Env = append(os.Environ(), leaderOf+"="+pod, "KUBECONFIG="+server.Kubeconfig())
		require.NoError(t, c.Start())
		require.Eventually(t, func() bool { return holder() == pod }, time.Minute, 20*time.Millisecond)
		require.NoError(t, c.Process.Kill())
		var exit *exec.ExitError
		require.True(t, errors.As(c.Wait(), &exit))
		require.Equal(t, pod, holder())
	}
	takesOver := func(pod string) (after time.Duration, end func()) {
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		leads, ended := runLeader(ctx, t, server.Config(), pod)
		require.Eventually(t, leads, time.Minute, 10*time.Millisecond)
		after = time.Since(start)
		require.Equal(t, pod, holder())
		return after, func() {
			cancel()
			require.NoError(t, <-ended)
			require.Empty(t, holder(), "it is released")
		}
	}

	killed("a")
	after, end := takesOver("a")
	t.Logf("the container starts again: %v", after)
	require.Less(t, after, time.Second)
	end()
	after, end = takesOver("b")
	t.Logf("the pod is replaced: %v", after)
	require.Less(t, after, time.Second)
	end()
	killed("b")
	after, end = takesOver("c")
	t.Logf("the pod is replaced, and its node is dead: %v", after)
	require.GreaterOrEqual(t, after, quickLease.Duration-quickLease.Retry, "the other one may still act")
	require.Less(t, after, quickLease.Duration+3*quickLease.Retry)
	end()
}

// No two pods have one name on the lease, and agents without a pod have none twice.
func TestLeaseHolder(t *testing.T) {
	require.Equal(t, "agent-7x2kq", leaseHolder(Options{Node: "n1", Pod: "agent-7x2kq"}))
	require.NotEqual(t, leaseHolder(Options{Node: "n1"}), leaseHolder(Options{Node: "n1"}))
}
