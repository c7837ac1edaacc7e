// Package manager runs the controller of SD-EWAN, and its webhooks, against an API server: each is
// a manager of controller-runtime, in pods of its own. What they do is in packages controller and
// webhook.
package manager

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"subctl/internal/kube"
	"subctl/sdewan"
	"subctl/sdewan/controller"
	"subctl/sdewan/install"
	"subctl/sdewan/webhook"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Options are the settings of a manager.
type Options struct {
	Config *rest.Config // is not changed
	Log    *slog.Logger
	// MetricsAddr is the address that serves /metrics, and ProbeAddr the address that serves
	// /healthz and /readyz.
	MetricsAddr, ProbeAddr string
	// WebhookPort is the port that serves the webhooks; only for RunWebhooks.
	WebhookPort int
}

// stopWithin is the time that work that has begun may take after the pod is told to stop. Work that
// is cut off is done by the next leader.
const stopWithin = 5 * time.Second

// RunController runs the controller until ctx is done. Of several, the one that holds the Lease
// works.
func RunController(ctx context.Context, o Options) error {
	return o.run(ctx, controller.Cache(), true, func(ctx context.Context, mgr manager.Manager) error {
		return controller.Add(ctx, mgr, controller.Options{Log: o.Log})
	})
}

// RunWebhooks serves the webhooks until ctx is done. All replicas serve.
func RunWebhooks(ctx context.Context, o Options) error {
	where := install.WebhookOptions()
	where.Port = o.WebhookPort
	where.Log = o.Log
	return o.run(ctx, webhookCache(), false, func(ctx context.Context, mgr manager.Manager) error {
		return webhook.AddToManager(ctx, mgr, where)
	})
}

// webhookCache caches what the webhooks look up: rules and rights, without their managed fields.
func webhookCache() cache.Options {
	slim := func(obj any) (any, error) {
		if o, ok := obj.(client.Object); ok {
			o.SetManagedFields(nil)
		}
		return obj, nil
	}
	byObject := map[client.Object]cache.ByObject{
		&rbacv1.Role{}: {}, &rbacv1.ClusterRole{}: {}, &rbacv1.RoleBinding{}: {}, &rbacv1.ClusterRoleBinding{}: {},
	}
	for _, k := range sdewan.Kinds() {
		if obj, ok := k.New().(client.Object); ok {
			byObject[obj] = cache.ByObject{}
		}
	}
	return cache.Options{DefaultTransform: slim, ByObject: byObject}
}

func (o Options) run(
	ctx context.Context,
	cached cache.Options,
	elect bool,
	add func(context.Context, manager.Manager) error,
) error {
	log := logr.FromSlogHandler(o.Log.Handler())
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	scheme, err := kube.NewScheme()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(controller.Config(o.Config), manager.Options{
		Scheme:                        scheme,
		Cache:                         cached,
		Logger:                        log,
		Metrics:                       metricsserver.Options{BindAddress: o.MetricsAddr},
		HealthProbeBindAddress:        o.ProbeAddr,
		LeaderElection:                elect,
		LeaderElectionID:              install.ControllerName,
		LeaderElectionNamespace:       install.Namespace,
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       new(stopWithin),
	})
	if err != nil {
		return fmt.Errorf("connecting to the API server: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	if err := mgr.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	if err := add(ctx, mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}
