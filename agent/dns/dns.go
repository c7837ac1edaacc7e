// Package dns runs the DNS server for the names of imported Services: it keeps an index of names in
// step with an API server, and answers questions over UDP and TCP. What it answers is in package
// services/dns.
//
// The server needs the API server to start, and to follow changes. When the API server is gone, it
// goes on answering with what it knows. It never asks other DNS servers.
package dns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"subctl/internal/serving"
	"subctl/services/dns"
)

// Options are the settings of the server.
type Options struct {
	// ClusterID is the ID of this cluster. Its own endpoints go first where a name stands for
	// exporters.
	ClusterID string
	// ClusterNames specifies whether <cluster>.<service>.<namespace>.svc.clusterset.local has
	// addresses.
	ClusterNames bool

	// Listen is the address that serves DNS over UDP and TCP, MetricsAddr the address that serves
	// /metrics, and ProbeAddr the address that serves /healthz and /readyz.
	Listen, MetricsAddr, ProbeAddr string

	Config *rest.Config // is not changed
	Log    *slog.Logger
}

// leaveAfter is the time that a server goes on answering when it is told to stop: until
// kube-proxies send it no more questions. Those of a resolver that uses the same port again and
// again they send it until its probes say that it is not ready.
const leaveAfter = 7 * time.Second

// Run serves until ctx is done, and a little longer.
func Run(ctx context.Context, o Options) error {
	klog.SetLogger(logr.FromSlogHandler(o.Log.Handler()))
	index := dns.NewIndex(o.ClusterID, o.ClusterNames)
	c, err := newClient(o.Config)
	if err != nil {
		return fmt.Errorf("configuring the client of the API server: %w", err)
	}
	m := newMeters(index)
	s, err := listen(ctx, o.Listen, index, m)
	if err != nil {
		return fmt.Errorf("serving DNS: %w", err)
	}
	var leaving atomic.Bool
	probes := map[string]func(*http.Request) error{
		"/healthz": func(*http.Request) error { return nil },
		"/readyz": func(*http.Request) error {
			switch {
			case leaving.Load():
				return errors.New("the server is about to stop")
			case !index.Ready():
				return errors.New("the ServiceImports and EndpointSlices of the cluster have not been read yet")
			}
			return nil
		},
	}

	serve, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	g, serve := errgroup.WithContext(serve)
	for _, f := range []func(context.Context) error{
		s.serveUDP, s.serveTCP,
		serving.Metrics(o.MetricsAddr, m.registry, o.Log), serving.Probes(o.ProbeAddr, probes, o.Log),
		followImports(c, index), followSlices(c, index),
	} {
		g.Go(func() error { return f(serve) })
	}
	g.Go(func() error {
		defer stop()
		select {
		case <-ctx.Done():
		case <-serve.Done():
			return nil
		}
		leaving.Store(true)
		o.Log.Info("stopping", "after", leaveAfter)
		select {
		case <-time.After(leaveAfter):
		case <-serve.Done():
		}
		return nil
	})
	o.Log.Info("serving DNS", "address", s.packets.LocalAddr().String())
	return g.Wait()
}
