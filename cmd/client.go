package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/internal/kube"
	"subctl/internal/progress"
)

// firstContact is how long an API server may take for its first answer, unless
// --request-timeout says otherwise: long enough for a slow VPN, and far less than
// the minutes TCP would try an address where nobody is.
const firstContact = 10 * time.Second

// client returns a client for the cluster of the context in use, after having
// heard from its API server.
func (g *globals) client(ctx context.Context) (client.Client, error) {
	return g.clientFor(ctx, *g.kube.Context)
}

// clientFor is client for a context; "" is the current one.
func (g *globals) clientFor(ctx context.Context, name string) (client.Client, error) {
	cfg, err := g.restConfigFor(name)
	if err != nil {
		return nil, err
	}
	cfg.QPS, cfg.Burst = 100, 200 // the default of 5 requests a second would take longer than all the rest
	c, err := g.connect(ctx, cfg)
	if err != nil {
		current, _ := g.contextName() // readable: restConfigFor has read it
		return nil, noAnswer(cfg, cmp.Or(name, current), err)
	}
	return c, nil
}

// dial makes a client and asks the API server for its version, so that what is
// wrong with the connection or the credentials comes to light at once.
func (*globals) dial(ctx context.Context, cfg *rest.Config) (client.Client, error) {
	first := rest.CopyConfig(cfg)
	first.Timeout = cmp.Or(cfg.Timeout, firstContact)
	versions, err := discovery.NewDiscoveryClientForConfig(first)
	if err != nil {
		return nil, err
	}
	if err := versions.RESTClient().Get().AbsPath("/version").Do(ctx).Error(); err != nil {
		return nil, err
	}
	scheme, err := kube.NewScheme()
	if err != nil {
		return nil, err
	}
	return client.New(cfg, client.Options{Scheme: scheme})
}

// noAnswer says in one line why an API server could not be used, and what to do.
func noAnswer(cfg *rest.Config, name string, err error) error {
	where := cfg.Host
	if name != "" {
		where = fmt.Sprintf("%s (context %q)", cfg.Host, name)
	}
	var refused apierrors.APIStatus
	var request *url.Error
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the API server at %s does not accept the credentials of the kubeconfig: log in again, or choose another user or context", where)
	case errors.As(err, &refused):
		return fmt.Errorf("asking the API server at %s: %w", where, err)
	case errors.As(err, &request):
		err = request.Err // without the URL, which is said already
	}
	return fmt.Errorf("reaching the API server at %s: %w: is the cluster up, and the context right?", where, err)
}

// apiWarnings prints the warnings that API servers send along, but for those
// that are of no use to who installs subctl's agents: they need a privileged pod
// and a Secret with a token, and are meant to.
type apiWarnings struct{ p *progress.Reporter }

// HandleWarningHeader implements rest.WarningHandler.
func (w apiWarnings) HandleWarningHeader(code int, _, text string) {
	if code != 299 || strings.Contains(text, "would violate PodSecurity") || strings.Contains(text, "secret-based service account token") {
		return
	}
	w.p.Warn("%s", text)
}
