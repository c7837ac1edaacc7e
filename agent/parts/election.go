package parts

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

	"subctl/agent/mesh"
	submarinerv1 "subctl/api/submariner/v1"
)

// Lease is the timing of the election of the active gateway.
type Lease struct {
	Duration time.Duration // after which a holder that does not renew the lease can be replaced
	Renew    time.Duration // after which a holder that cannot renew the lease stops trying
	Retry    time.Duration // between attempts
}

// DefaultLease lets another gateway take over within 6 s of a crash.
var DefaultLease = Lease{Duration: 5 * time.Second, Renew: 3 * time.Second, Retry: time.Second}

// elector takes part in the election among the gateways of the cluster. One lease answers
// both questions of mesh.Standing: its holder is the only active gateway, and the speaker.
//
// A gateway is deposed by being replaced, not by silence. If the API server cannot be
// reached nobody can renew the lease, and tearing the cables down would turn an outage of
// the control plane into one of the network. So a holder stays the holder until it sees
// another name on the lease. Until it has seen any name it is neither holder nor
// follower, and its agent leaves the node as it finds it.
type elector struct {
	node    string
	lease   Lease
	client  kubernetes.Interface
	log     *slog.Logger
	changed func()
	role    atomic.Int32
}

const (
	unknown int32 = iota
	leading
	following
)

func newElector(o Options) (*elector, error) {
	cfg := rest.CopyConfig(o.Config)
	cfg.Timeout = o.Lease.Renew / 2 // a request without an answer must not use up the lease
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return &elector{node: o.Node, lease: o.Lease, client: c, log: o.Log, changed: o.Nudge}, nil
}

// Observe implements Observer.
func (e *elector) Observe(s *mesh.Snapshot) error {
	switch e.role.Load() {
	case unknown:
		return ErrTooEarly
	case leading:
		s.Standing = mesh.Standing{Active: true, Speaker: true, Gateways: []string{e.node}}
	}
	return nil
}

func (e *elector) set(role int32) {
	if e.role.Swap(role) != role {
		e.log.Info("election", "active", role == leading)
		e.changed()
	}
}

// identity is the name of this gateway on the lease.
func (e *elector) identity() string { return submarinerv1.LeaseHolder(e.node) }

// Start takes part until ctx is done, and then releases the lease.
func (e *elector) Start(ctx context.Context) error {
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Name: submarinerv1.GatewayLease, Namespace: submarinerv1.OperatorNamespace},
		Client:     e.client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: e.identity()},
	}
	for ctx.Err() == nil {
		var le *leaderelection.LeaderElector
		var err error
		le, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: lock, LeaseDuration: e.lease.Duration, RenewDeadline: e.lease.Renew, RetryPeriod: e.lease.Retry,
			ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { e.set(leading) },
				OnStoppedLeading: func() {}, // see elector
				OnNewLeader: func(who string) {
					// Callbacks run on goroutines of their own, in any order.
					if who != e.identity() && who != "" && !le.IsLeader() {
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
