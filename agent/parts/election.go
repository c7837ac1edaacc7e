package parts

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"subctl/agent/mesh/members"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
	"subctl/internal/wake"
)

// Lease is the timing of the election of the speaker.
type Lease struct {
	Duration time.Duration // after which a holder that does not renew the lease can be replaced
	Renew    time.Duration // after which a holder that cannot renew the lease stops trying
	Retry    time.Duration // between attempts; the holder renews the lease with every second one: see seldom
}

// DefaultLease lets another gateway take over within 6 s of a crash.
var DefaultLease = Lease{Duration: 5 * time.Second, Renew: 3 * time.Second, Retry: time.Second}

// elector takes part in the election among the gateways of the cluster. The holder of the lease is
// the speaker, and the only active gateway unless Submariner.spec.multiActiveGatewayEnabled makes
// every gateway active. The others are standbys: see mesh.Standing and siblings.
//
// A gateway is deposed by being replaced, not by silence. If the API server cannot be reached
// nobody can renew the lease, and two gateways that take the role in turns would move the traffic
// for nothing. So a holder stays the holder until it sees another name on the lease. Until it has
// seen any name it is neither holder nor follower, and its agent leaves the node as it finds it.
// Where every gateway is active, it needs no lease for that.
//
// A gateway that is to be drained yields the lease to another one, if there is one that could take
// it, and does not take part until it is in service again; nor does the agent of a node that is no
// gateway node any more. An active gateway whose agent ends announces that it is a standby, and
// releases the lease: see handOver.
type elector struct {
	node     string
	lease    Lease
	client   kubernetes.Interface
	log      *slog.Logger
	changed  func()
	role     atomic.Int32
	siblings *siblings
	yields   atomic.Bool
	wake     wake.Signal // yields or role has changed
	announce func(context.Context, *submarinerv1.Endpoint) error
	last     atomic.Pointer[submarinerv1.Endpoint] // what the agent announces when it ends; nil: nothing

	// The loop alone uses these.
	multi    bool     // whether every gateway was active in the last snapshot
	led      bool     // whether this gateway held the lease in the last snapshot
	followed []string // the gateways that have followed this one since it got the lease
	// since when all gateways leave the traffic to one of them, or this one to another, if that
	// began while this agent runs
	single   time.Time
	standing role.Standing // of the last snapshot
}

const (
	unknown int32 = iota
	leading
	following
)

// standbyAfter is the time for which a gateway that leaves the traffic to another one is draining,
// and gets no new flows, before it is a standby. Nodes follow within a second. Other clusters
// follow once the speaker has written to the broker, which may take seconds.
const standbyAfter = 10 * time.Second

func newElector(o Options) (*elector, error) {
	cfg := rest.CopyConfig(o.Config)
	cfg.Timeout = o.Lease.Renew / 2 // a request without an answer must not use up the lease
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return &elector{
		node:     o.Node,
		lease:    o.Lease,
		client:   c,
		log:      o.Log,
		changed:  o.Trigger,
		siblings: newSiblings(o, c),
		wake:     wake.NewSignal(),
		announce: o.Announce,
	}, nil
}

// Observe implements Observer.
//
// On a node that is no gateway node any more, the agent is about to end, and the route agent
// removes what it has made once the node has other ways. An agent that repaired it meanwhile would
// interrupt the traffic of the node's pods. This agent does nothing else, either, and may not end
// for a long time if the kubelet does not run. So it leaves the lease at once, whether or not
// another gateway works.
func (e *elector) Observe(s *role.Snapshot) error {
	e.last.Store(nil)
	if members.LacksLabel(*s) {
		e.setYields(true)
		return ErrTooEarly
	}
	agentRole := e.role.Load()
	multi := e.multi
	if subs := role.List[*v1alpha1.Submariner](*s); len(subs) > 0 {
		multi = subs[0].Spec.MultiActiveGatewayEnabled
	}
	if agentRole == unknown && !multi {
		return ErrTooEarly // it keeps e.multi, because it has not followed the change yet
	}
	yields := yieldsTo(*s, e.node, agentRole == leading) != ""
	e.setYields(yields)
	handedOver := yields && e.led && agentRole == following
	e.led = agentRole == leading
	if !e.led || multi {
		e.followed = nil
	}
	switch {
	case multi:
		e.single = time.Time{}
	case e.multi, handedOver:
		e.single = s.Now
		time.AfterFunc(standbyAfter, e.changed)
	}
	e.multi = multi
	e.siblings.follow(*s, multi || agentRole == following || severalGateways(*s))
	leaving := s.Now.Sub(e.single) < standbyAfter
	switch {
	case multi:
		s.Standing = role.Standing{Active: true, Speaker: agentRole == leading, Gateways: e.siblings.presentNodes()}
	case agentRole == leading:
		s.Standing = role.Standing{Active: true, Speaker: true, Gateways: e.siblings.presentNodes()}
		if replaced := e.notYetFollowing(*s); !leaving { // until then, the others may not have announced it
			s.Standing.Replaced = replaced
		}
		e.last.Store(asStandby(*s, e.node))
	case leaving:
		s.Standing = role.Standing{Active: true, Drain: cable.Draining}
	default:
		s.Standing = role.Standing{Active: true, Drain: cable.Standby}
	}
	e.noteLease(s.Standing)
	return nil
}

// setYields sets whether this gateway leaves the lease to others.
func (e *elector) setYields(yields bool) {
	if e.yields.Swap(yields) != yields {
		e.wake.Send()
	}
}

// severalGateways reports whether the cluster has several gateway nodes.
func severalGateways(s role.Snapshot) bool {
	n := 0
	for _, node := range role.List[*corev1.Node](s) {
		if role.IsGatewayNode(node) {
			n++
		}
	}
	return n > 1
}

// noteLease logs changes of the standing.
func (e *elector) noteLease(now role.Standing) {
	was := e.standing
	e.standing = now
	if was.Active != now.Active || was.Speaker != now.Speaker || was.Drain != now.Drain ||
		!slices.Equal(was.Gateways, now.Gateways) ||
		!slices.Equal(was.Replaced, now.Replaced) {
		e.log.Info("standing", "active", now.Active, "speaker", now.Speaker, "drain", now.Drain.String(), "gateways",
			now.Gateways, "replaced", now.Replaced)
	}
}

func (e *elector) setStanding(role int32) {
	if e.role.Swap(role) != role {
		e.log.Info("election", "speaker", role == leading)
		e.wake.Send()
		e.changed()
	}
}

// identity is the name of this gateway on the lease.
func (e *elector) identity() string { return submarinerv1.LeaseHolder(e.node) }

// Start takes part until ctx is done, and then releases the lease. The Lease of the node stays: the
// node keeps its cables.
func (e *elector) Start(ctx context.Context) error {
	go e.siblings.run(ctx)
	lock := &rareRenewals{every: e.lease.Retry * 3 / 2, Interface: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Name: submarinerv1.GatewayLease, Namespace: submarinerv1.OperatorNamespace},
		Client:     e.client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: e.identity()},
	}}
	for ctx.Err() == nil {
		if e.yields.Load() {
			e.stayOut(ctx)
			continue
		}
		var le *leaderelection.LeaderElector
		var err error
		le, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: lock, LeaseDuration: e.lease.Duration, RenewDeadline: e.lease.Renew, RetryPeriod: e.lease.Retry,
			ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { e.setStanding(leading) },
				OnStoppedLeading: func() {}, // see elector
				OnNewLeader: func(who string) {
					// Callbacks run on goroutines of their own, in any order.
					if who != e.identity() && who != "" && !le.IsLeader() {
						e.setStanding(following)
					}
				},
			},
		})
		if err != nil {
			return fmt.Errorf("setting up the election among the gateways: %w", err)
		}
		e.elect(ctx, le)
	}
	return nil
}

// elect takes part in the election until ctx is done, or this gateway is to yield the lease.
func (e *elector) elect(ctx context.Context, le *leaderelection.LeaderElector) {
	taking, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil && taking.Err() == nil && !e.yields.Load() {
			select {
			case <-ctx.Done():
			case <-taking.Done(): // it has lost the lease
			case <-e.wake:
			}
		}
		if ctx.Err() != nil {
			e.handOver(ctx)
		}
		stop()
	}()
	le.Run(taking)
	stop()
	<-ended // so that it takes no signal from watch
}

// stayOut does not take part until ctx is done or this gateway may take part again. It reads the
// lease until another gateway holds it.
func (e *elector) stayOut(ctx context.Context) {
	for ctx.Err() == nil && e.yields.Load() {
		var again <-chan time.Time
		if e.role.Load() != following {
			l, err := e.client.CoordinationV1().Leases(
				submarinerv1.OperatorNamespace).Get(ctx, submarinerv1.GatewayLease, metav1.GetOptions{})
			if err == nil && l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != "" &&
				*l.Spec.HolderIdentity != e.identity() {
				e.setStanding(following)
				continue
			}
			again = time.After(e.lease.Retry / 2)
		}
		select {
		case <-ctx.Done():
		case <-again:
		case <-e.wake:
		}
	}
}
