package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
)

// backoff retries what failed soon at first and then ever more slowly.
func backoff() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](50*time.Millisecond, slowestRetry)
}

// podNetworks are the cluster's pod networks; none if the cluster is not joined.
func (s Snapshot) podNetworks() []netip.Prefix {
	for _, sub := range List[*v1alpha1.Submariner](s) {
		nets, err := parseCIDRs("clusterCIDR", sub.Spec.ClusterCIDR)
		if err == nil {
			return nets
		}
	}
	return nil
}

// serve answers probes and serves metrics on one port.
func serve(addr string, checks map[string]healthz.Checker, log *slog.Logger) manager.Runnable {
	return manager.RunnableFunc(func(ctx context.Context) error {
		mux := http.NewServeMux()
		mux.Handle("/metrics", promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{}))
		for path, check := range checks {
			mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
				if err := check(r); err != nil {
					http.Error(w, err.Error(), http.StatusServiceUnavailable)
					return
				}
				fmt.Fprintln(w, "ok")
			})
		}
		s := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
		if err != nil {
			return fmt.Errorf("serving metrics and probes: %w", err)
		}
		stop := context.AfterFunc(ctx, func() { _ = s.Close() })
		defer stop()
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serving metrics and probes: %w", err)
		}
		return nil
	})
}

// brokerSync runs the exchange with the broker on the active gateway.
type brokerSync struct {
	agent   *Agent
	elector *elector
	config  *rest.Config
	dir     string

	running atomic.Pointer[broker.Syncer]
	failed  atomic.Pointer[string] // why it does not run
}

// status is nil on a gateway that does not take part.
func (b *brokerSync) status() *broker.SyncStatus {
	if s := b.running.Load(); s != nil {
		st := s.Status()
		return &st
	}
	if why := b.failed.Load(); why != nil && b.elector.isLeader() {
		return &broker.SyncStatus{Errors: []string{*why}}
	}
	return nil
}

// Start implements manager.Runnable. What goes wrong here is tried again: the
// traffic does not need the broker.
func (b *brokerSync) Start(ctx context.Context) error {
	for ctx.Err() == nil {
		if !b.elector.isLeader() {
			sleep(ctx, 200*time.Millisecond)
			continue
		}
		if err := b.run(ctx); err != nil && ctx.Err() == nil {
			why := err.Error()
			b.failed.Store(&why)
			b.agent.Log.Warn("exchange with the broker", "err", err)
			sleep(ctx, time.Second)
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
			sleep(ctx, 200*time.Millisecond)
		}
		stop()
	}()
	b.running.Store(s)
	defer b.running.Store(nil)
	return s.Run(ctx)
}

// sleep waits, or until ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (b *brokerSync) syncer(ctx context.Context) (*broker.Syncer, error) {
	var sub v1alpha1.Submariner
	key := client.ObjectKey{Namespace: submarinerv1.OperatorNamespace, Name: v1alpha1.SubmarinerName}
	if err := b.agent.Client.Get(ctx, key, &sub); err != nil {
		return nil, fmt.Errorf("reading how this cluster is joined: %w", err)
	}
	remote, err := broker.RESTConfig(b.dir, sub.Spec.BrokerK8sApiServer, sub.Spec.BrokerK8sInsecure)
	if err != nil {
		return nil, err
	}
	c := broker.SyncerConfig{
		ClusterID: sub.Spec.ClusterID, Namespace: submarinerv1.OperatorNamespace,
		Local: b.config, Broker: remote, Log: b.agent.Log,
		Tell: b.agent.warn,
	}
	for _, set := range sub.Spec.Sets() {
		c.Sets = append(c.Sets, broker.Set{Name: set, Namespace: broker.NamespaceIn(sub.Spec.BrokerK8sRemoteNamespace, set)})
	}
	return broker.NewSyncer(c), nil
}
