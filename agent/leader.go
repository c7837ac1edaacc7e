package agent

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	submarinerv1 "subctl/api/submariner/v1"
)

// Lease says how the gateways of a cluster agree on the active one.
type Lease struct {
	Duration time.Duration // a leader not heard of for so long may be replaced
	Renew    time.Duration // a leader that could not renew for so long stops trying
	Retry    time.Duration // between tries
}

// DefaultLease lets another gateway take over within 6 s of a crash.
var DefaultLease = Lease{Duration: 5 * time.Second, Renew: 3 * time.Second, Retry: time.Second}

// elector takes part in the election of the active gateway.
//
// A gateway is deposed by being replaced, not by silence: if the API server
// cannot be reached nobody can renew the lease, and tearing the cables down would
// make an outage of the control plane one of the network. So a leader stays one
// until it sees another's name on the lease. Until it has seen any name it is
// neither leader nor follower, and its agent leaves the node as it finds it.
type elector struct {
	identity string
	lease    Lease
	client   kubernetes.Interface
	log      *slog.Logger
	changed  func()
	role     atomic.Int32
}

const (
	unknown int32 = iota
	leading
	following
)

func newElector(cfg *rest.Config, node string, lease Lease, log *slog.Logger, changed func()) (*elector, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = lease.Renew / 2 // a call that hangs must not use up the lease
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return &elector{identity: node + "-submariner-gateway", lease: lease, client: c, log: log, changed: changed}, nil
}

func (e *elector) isLeader() bool { return e.role.Load() == leading }

func (e *elector) isKnown() bool { return e.role.Load() != unknown }

func (e *elector) set(role int32) {
	if e.role.Swap(role) != role {
		e.log.Info("election", "active", role == leading)
		e.changed()
	}
}

// Start takes part until ctx is done, and then releases the lease.
func (e *elector) Start(ctx context.Context) error {
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Name: submarinerv1.GatewayLease, Namespace: submarinerv1.OperatorNamespace},
		Client:     e.client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: e.identity},
	}
	for ctx.Err() == nil {
		var le *leaderelection.LeaderElector
		var err error
		le, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: lock, LeaseDuration: e.lease.Duration, RenewDeadline: e.lease.Renew, RetryPeriod: e.lease.Retry,
			ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { e.set(leading) },
				OnStoppedLeading: func() {}, // see the type's comment
				OnNewLeader: func(who string) {
					// Callbacks come on goroutines of their own, in any order.
					if who != e.identity && who != "" && !le.IsLeader() {
						e.set(following)
					}
				},
			},
		})
		if err != nil {
			return fmt.Errorf("setting up the election of the active gateway: %w", err)
		}
		le.Run(ctx)
	}
	return nil
}
