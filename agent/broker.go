package agent

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/exchange"
	"subctl/internal/wake"
)

// Times of the exchange with the broker.
const (
	leaderPoll  = 200 * time.Millisecond // how often it looks whether this is the active gateway
	brokerRetry = time.Second            // after it could not be set up
)

// brokerSync runs the exchange with the broker on the active gateway.
type brokerSync struct {
	local   client.Reader
	elector *elector
	config  *rest.Config // of this cluster
	dir     string       // with the broker's credentials
	log     *slog.Logger
	warn    func(about client.Object, c metav1.Condition)

	running atomic.Pointer[exchange.Exchange]
	failed  atomic.Pointer[string] // why it does not run
}

// status is nil on a gateway that does not take part.
func (b *brokerSync) status() *exchange.Status {
	if s := b.running.Load(); s != nil {
		st := s.Status()
		return &st
	}
	if why := b.failed.Load(); why != nil && b.elector.isLeader() {
		return &exchange.Status{Errors: []string{*why}}
	}
	return nil
}

// Start implements manager.Runnable. What goes wrong here is tried again: the
// traffic does not need the broker.
func (b *brokerSync) Start(ctx context.Context) error {
	for ctx.Err() == nil {
		if !b.elector.isLeader() {
			_ = wake.After(ctx, leaderPoll)
			continue
		}
		if err := b.run(ctx); err != nil && ctx.Err() == nil {
			why := err.Error()
			b.failed.Store(&why)
			b.log.Warn("exchange with the broker", "err", err)
			_ = wake.After(ctx, brokerRetry)
		}
	}
	return nil
}

// run syncs for as long as this is the active gateway.
func (b *brokerSync) run(ctx context.Context) error {
	s, err := b.syncer(ctx)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		for ctx.Err() == nil && b.elector.isLeader() {
			_ = wake.After(ctx, leaderPoll)
		}
		stop()
	}()
	b.running.Store(s)
	defer b.running.Store(nil)
	return s.Run(ctx)
}

func (b *brokerSync) syncer(ctx context.Context) (*exchange.Exchange, error) {
	var sub v1alpha1.Submariner
	key := client.ObjectKey{Namespace: submarinerv1.OperatorNamespace, Name: v1alpha1.SubmarinerName}
	if err := b.local.Get(ctx, key, &sub); err != nil {
		return nil, fmt.Errorf("reading how this cluster is joined: %w", err)
	}
	remote, err := broker.RESTConfig(b.dir, sub.Spec.BrokerK8sApiServer, sub.Spec.BrokerK8sInsecure)
	if err != nil {
		return nil, err
	}
	c := exchange.Config{
		ClusterID: sub.Spec.ClusterID, Namespace: submarinerv1.OperatorNamespace,
		Local: b.config, Broker: remote, Log: b.log,
		Warn: b.warn,
	}
	for _, set := range sub.Spec.Sets() {
		c.Sets = append(c.Sets, exchange.Set{Name: set, Namespace: broker.NamespaceIn(sub.Spec.BrokerK8sRemoteNamespace, set)})
	}
	return exchange.New(c), nil
}
