package connect

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/internal/look"
)

// Targets returns the clusters to look at: the clusters of contexts, or else the cluster of
// --context, or else all clusters of the kubeconfig.
func (k *Kubeconfig) Targets(contexts []string) ([]*look.Target, error) {
	if len(contexts) == 0 && *k.Flags.Context == "" {
		return k.AllTargets()
	}
	if len(contexts) == 0 {
		contexts = []string{*k.Flags.Context}
	}
	var out []*look.Target
	for i, name := range contexts {
		if slices.Contains(contexts[:i], name) {
			continue
		}
		t, _, err := k.target(name)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// AllTargets returns each API server of the kubeconfig once. If several contexts are for
// the same server, it uses the current context, or else the first by name.
func (k *Kubeconfig) AllTargets() ([]*look.Target, error) {
	raw, err := k.Raw()
	if err != nil {
		return nil, err
	}
	names, err := k.Contexts()
	if err != nil {
		return nil, err
	}
	if len(names) == 0 { // in a pod, or with --server
		t, _, err := k.target("")
		return []*look.Target{t}, err
	}
	var out []*look.Target
	at := map[server]int{}
	for _, name := range names {
		t, cfg, err := k.target(name)
		if err != nil { // one broken context must not hide the other clusters
			out = append(out, &look.Target{Context: name, Cluster: name, Err: err})
			continue
		}
		key := serverOf(cfg)
		i, again := at[key]
		switch {
		case !again:
			at[key] = len(out)
			out = append(out, t)
		case name == raw.CurrentContext:
			out[i] = t
		}
	}
	return out, nil
}

// server tells API servers apart. Behind a tunnel or a proxy, several may have the same address.
type server struct{ host, name, proxy string }

func serverOf(cfg *rest.Config) server {
	s := server{host: cfg.Host, name: cfg.ServerName}
	if cfg.Proxy == nil {
		return s
	}
	if u, err := url.Parse(cfg.Host); err == nil {
		if via, err := cfg.Proxy(&http.Request{URL: u}); err == nil && via != nil {
			s.proxy = via.Host
		}
	}
	return s
}

// target returns the cluster of a context, and its configuration; "" is the current context.
func (k *Kubeconfig) target(name string) (t *look.Target, cfg *rest.Config, err error) {
	if cfg, err = k.RestConfigFor(name); err != nil {
		return nil, nil, err
	}
	raw, err := k.Raw()
	if err != nil {
		return nil, nil, err
	}
	t = &look.Target{Context: name, Clock: &look.Clock{Local: k.Now}}
	if c := raw.Contexts[cmp.Or(name, raw.CurrentContext)]; c != nil {
		t.Cluster = c.Cluster
	}
	t.Cluster = cmp.Or(t.Cluster, name, cfg.Host)
	cfg.Wrap(t.Clock.Wrap)
	t.Connect = func(ctx context.Context) (client.Client, error) {
		c, err := k.Connect(ctx, cfg)
		if err != nil {
			return nil, NoAnswer(cfg, name, err)
		}
		return c, nil
	}
	return t, cfg, nil
}
