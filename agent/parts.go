package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
}

// Start implements manager.Runnable. What goes wrong here is tried again: the
// traffic does not need the broker.
func (b *brokerSync) Start(ctx context.Context) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	var stop context.CancelFunc
	var ended chan error
	for {
		select {
		case <-ctx.Done():
			if stop != nil {
				stop()
				<-ended
			}
			return nil
		case err := <-ended:
			b.agent.Log.Error("exchange with the broker", "err", err)
			stop()
			stop, ended = nil, nil
			time.Sleep(time.Second)
		case <-tick.C:
			switch active := b.elector.isLeader(); {
			case active && stop == nil:
				s, err := b.syncer(ctx)
				if err != nil {
					b.agent.Log.Warn("exchange with the broker", "err", err)
					time.Sleep(time.Second)
					continue
				}
				var run context.Context
				run, stop = context.WithCancel(ctx)
				ended = make(chan error, 1)
				go func() { ended <- s.Run(run) }()
			case !active && stop != nil:
				stop()
				<-ended
				stop, ended = nil, nil
			}
		}
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
	sets := sub.Spec.ClusterSets
	if len(sets) == 0 {
		sets = []string{submarinerv1.DefaultClusterSet}
	}
	c := broker.SyncerConfig{
		ClusterID: sub.Spec.ClusterID, Namespace: submarinerv1.OperatorNamespace,
		Local: b.config, Broker: remote, Log: b.agent.Log,
	}
	for _, set := range sets {
		c.Sets = append(c.Sets, broker.Set{Name: set, Namespace: broker.NamespaceIn(sub.Spec.BrokerK8sRemoteNamespace, set)})
	}
	return broker.NewSyncer(c), nil
}

// podLabel says on the gateway's pod whether it is the active one, so that a
// Service can select it.
type podLabel struct {
	agent   *Agent
	elector *elector
	pod     string
}

// Start implements manager.Runnable.
func (p *podLabel) Start(ctx context.Context) error {
	said := ""
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		want := string(submarinerv1.HAStatusPassive)
		if p.elector.isLeader() {
			want = string(submarinerv1.HAStatusActive)
		}
		if want != said && p.pod != "" {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.pod, Namespace: submarinerv1.OperatorNamespace}}
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q,%q:%q}}}`,
				submarinerv1.GatewayStatusLabel, want, submarinerv1.GatewayPodNodeLabel, p.agent.Name)
			if err := p.agent.Client.Patch(ctx, pod, client.RawPatch("application/merge-patch+json", patch)); err != nil {
				p.agent.Log.Warn("labelling the gateway's pod", "err", err)
			} else {
				said = want
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
