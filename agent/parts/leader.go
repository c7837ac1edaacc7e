package parts

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"subctl/agent/mesh"
	submarinerv1 "subctl/api/submariner/v1"
)

// leader holds a Lease of which a cluster has one for all agents of a role: the agent that holds it
// acts, and the others wait. An agent that loses it ends, as it must write nothing any more.
type leader struct {
	lease       string // its name
	timing      Lease
	node        string
	client      kubernetes.Interface
	nudge       func()
	consequence string                          // of losing the lease, for the message
	leading     atomic.Pointer[context.Context] // done when the lease is lost; nil: another agent has it
}

// quickLease lets another agent take over within 12 s of a crash.
var quickLease = Lease{Duration: 10 * time.Second, Renew: 7 * time.Second, Retry: 2 * time.Second}

// newLeader returns the leader among the agents that replace gateway nodes.
func newLeader(o Options) (*leader, error) {
	c, err := kubernetes.NewForConfig(o.Config)
	if err != nil {
		return nil, err
	}
	return &leader{
		lease: submarinerv1.GatewayNodesLease, timing: quickLease, node: o.Node, client: c, nudge: o.Nudge,
		consequence: "another agent may replace gateway nodes",
	}, nil
}

// Start holds the lease until ctx is done, and then releases it.
func (l *leader) Start(ctx context.Context) error {
	le, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &seldom{every: l.timing.Retry * 3 / 2, Interface: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Name: l.lease, Namespace: submarinerv1.OperatorNamespace},
			Client:     l.client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: l.node + "-" + string(uuid.NewUUID())},
		}},
		LeaseDuration: l.timing.Duration, RenewDeadline: l.timing.Renew, RetryPeriod: l.timing.Retry,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				l.leading.Store(&ctx)
				l.nudge()
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("setting up the lease %s: %w", l.lease, err)
	}
	if le.Run(ctx); ctx.Err() == nil {
		return fmt.Errorf("the lease %s could not be renewed, so %s: this one ends", l.lease, l.consequence)
	}
	return nil
}

// Observe implements Observer.
func (l *leader) Observe(*mesh.Snapshot) error {
	if ctx := l.leading.Load(); ctx == nil || (*ctx).Err() != nil {
		return ErrTooEarly
	}
	return nil
}
