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

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
)

// leader holds a Lease of which a cluster has one for all agents of a role: the agent that holds it
// acts, and the others wait. An agent that loses it ends, as it must write nothing any more.
//
// Its holder is a pod. A container that starts again in its pod has the lease at once: the one
// before has ended, whatever ended it. An agent that ends in good order releases the lease. So only
// the agent of another pod may have to wait, for one whose node is dead.
type leader struct {
	lease       string // its name
	timing      Lease
	holder      string
	client      kubernetes.Interface
	trigger     func()
	consequence string                          // of losing the lease, for the message
	leading     atomic.Pointer[context.Context] // done when the lease is lost; nil: another agent has it
}

// quickLease lets an agent take over 12 s after it has started, if a node is dead: Kubernetes takes
// about a minute to start it. Shorter times would end agents whenever API servers are away for some
// seconds.
var quickLease = Lease{Duration: 10 * time.Second, Renew: 7 * time.Second, Retry: 2 * time.Second}

// newLeader returns the leader among the agents that replace gateway nodes.
func newLeader(o Options) (*leader, error) {
	c, err := kubernetes.NewForConfig(o.Config)
	if err != nil {
		return nil, err
	}
	return &leader{
		lease: submarinerv1.GatewayNodesLease, timing: quickLease, holder: leaseHolder(o),
		client: c, trigger: o.Trigger,
		consequence: "another agent may replace gateway nodes",
	}, nil
}

// leaseHolder returns the name of this agent on a lease: that of its pod, which no other pod of a
// Deployment ever gets; without a pod, one that is used once.
func leaseHolder(o Options) string {
	if o.Pod != "" {
		return o.Pod
	}
	return o.Node + "-" + string(uuid.NewUUID())
}

// Start holds the lease until ctx is done, and then releases it.
func (l *leader) Start(ctx context.Context) error {
	le, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &rareRenewals{every: l.timing.Retry * 3 / 2, Interface: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Name: l.lease, Namespace: submarinerv1.OperatorNamespace},
			Client:     l.client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: l.holder},
		}},
		LeaseDuration: l.timing.Duration, RenewDeadline: l.timing.Renew, RetryPeriod: l.timing.Retry,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				l.leading.Store(&ctx)
				l.trigger()
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
func (l *leader) Observe(*role.Snapshot) error {
	if ctx := l.leading.Load(); ctx == nil || (*ctx).Err() != nil {
		return ErrTooEarly
	}
	return nil
}
