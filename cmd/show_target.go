package cmd

import (
	"cmp"
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// target is a cluster to show.
type target struct {
	context string
	cluster string // its name in the kubeconfig
	config  *rest.Config
	err     error // why it cannot be reached
	clock   *serverClock
	client  client.Client // nil until there was a first answer
}

// targets returns the clusters to show: those of --contexts, that of --context, or
// all of the kubeconfig.
func (s *show) targets() ([]*target, error) {
	names := s.contexts
	if len(names) == 0 && *s.kube.Context == "" {
		return s.everyCluster()
	}
	if len(names) == 0 {
		names = []string{*s.kube.Context}
	}
	out := make([]*target, len(names))
	for i, name := range names {
		t, err := s.target(name)
		if err != nil {
			return nil, err
		}
		out[i] = t
	}
	return out, nil
}

// everyCluster returns each API server of the kubeconfig once. Of several contexts
// for one server the current one is taken, or else the first by name.
func (s *show) everyCluster() ([]*target, error) {
	raw, err := s.kubeconfig()
	if err != nil {
		return nil, err
	}
	names, err := s.globals.contexts()
	if err != nil {
		return nil, err
	}
	if len(names) == 0 { // in a pod, or with --server
		t, err := s.target("")
		return []*target{t}, err
	}
	var out []*target
	at := map[string]int{}
	for _, name := range names {
		t, err := s.target(name)
		if err != nil { // one broken context must not hide the other clusters
			out = append(out, &target{context: name, cluster: name, err: err})
			continue
		}
		i, again := at[t.config.Host]
		switch {
		case !again:
			at[t.config.Host] = len(out)
			out = append(out, t)
		case name == raw.CurrentContext:
			out[i] = t
		}
	}
	return out, nil
}

// target returns the cluster of a context; "" is the current one.
func (s *show) target(name string) (*target, error) {
	cfg, err := s.restConfigFor(name)
	if err != nil {
		return nil, err
	}
	raw, err := s.kubeconfig()
	if err != nil {
		return nil, err
	}
	t := &target{context: name, config: cfg, clock: &serverClock{local: s.now}}
	if c := raw.Contexts[cmp.Or(name, raw.CurrentContext)]; c != nil {
		t.cluster = c.Cluster
	}
	t.cluster = cmp.Or(t.cluster, name, cfg.Host)
	cfg.Wrap(t.clock.wrap)
	return t, nil
}

// connect makes the client, unless that was done before.
func (t *target) connect(ctx context.Context, g *globals) error {
	if t.err != nil || t.client != nil {
		return t.err
	}
	c, err := g.connect(ctx, t.config)
	if err != nil {
		return noAnswer(t.config, t.context, err)
	}
	t.client = c
	return nil
}

// serverClock tells the time of an API server: what the clusters' agents write
// must not look old because this machine's clock is wrong.
type serverClock struct {
	local func() time.Time
	skew  atomic.Int64 // of the server's clock, in nanoseconds
}

// now returns the server's time, or the local time before its first answer.
func (c *serverClock) now() time.Time { return c.local().Add(time.Duration(c.skew.Load())) }

// wrap returns a transport that reads the time off every answer.
func (c *serverClock) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err != nil {
			return resp, err
		}
		if date, bad := http.ParseTime(resp.Header.Get("Date")); bad == nil {
			c.skew.Store(int64(date.Sub(c.local())))
		}
		return resp, nil
	})
}

// roundTripper is a function that is a http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
