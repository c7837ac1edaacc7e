package connect

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/broker"
	"subctl/cluster"
	"subctl/internal/kube"
	"subctl/internal/look"
	"subctl/internal/progress"
	"subctl/internal/proxy"
)

// firstContact is the time limit for the first answer of an API server, unless
// --request-timeout is set: long enough for a slow VPN, and much shorter than the minutes
// that TCP spends on an unused address.
const firstContact = 10 * time.Second

// Client returns a client for the cluster of the current context, after a first answer of
// its API server.
func (k *Kubeconfig) Client(ctx context.Context) (client.Client, error) {
	return k.ClientFor(ctx, *k.Flags.Context)
}

// ClientFor returns a client for the cluster of a context; "" is the current context.
func (k *Kubeconfig) ClientFor(ctx context.Context, name string) (client.Client, error) {
	return k.ClientWith(ctx, name, nil)
}

// ClientWith returns a client as ClientFor does. wrap, which may be nil, wraps its transport.
func (k *Kubeconfig) ClientWith(ctx context.Context, name string, wrap transport.WrapperFunc) (client.Client, error) {
	cfg, err := k.RestConfigFor(name)
	if err != nil {
		return nil, err
	}
	cfg.Wrap(wrap)
	c, err := k.Connect(ctx, cfg)
	if err != nil {
		current, _ := k.contextName() // readable: RestConfigFor has read it
		return nil, NoAnswer(cfg, cmp.Or(name, current), err)
	}
	return c, nil
}

// Reading returns a function that lists something of the current cluster, for completions.
func (k *Kubeconfig) Reading(
	list func(context.Context, client.Client) ([]string, error),
) func(context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		c, err := k.Client(ctx)
		if err != nil {
			return nil, err
		}
		return list(ctx, c)
	}
}

// dial returns a client. It first requests the API server's version, so that problems with
// the connection or the credentials are found at once.
func dial(ctx context.Context, cfg *rest.Config) (client.Client, error) {
	cfg = rest.CopyConfig(cfg)
	nameProxy(cfg)
	cfg.QPS = -1 // no limit: a command makes few requests at a time, and a broker may have 1,000 clustersets
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

// nameProxy makes errors of requests name the proxy, unless the configuration is of a broker, whose
// errors do.
func nameProxy(cfg *rest.Config) {
	switch {
	case cfg.Transport != nil:
	case cfg.Proxy != nil:
		cfg.Wrap(proxy.Naming(cfg.Proxy, "--proxy-url or the kubeconfig"))
	default:
		via := proxy.FromEnvironment() // as client-go does
		cfg.Wrap(proxy.Naming(via.Chooser(), via.Source))
	}
}

// NoAnswer returns a one-line error about an API server that cannot be used, with a remedy.
func NoAnswer(cfg *rest.Config, name string, err error) error {
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
		return fmt.Errorf(
			"the API server at %s does not accept the credentials of the kubeconfig: log in again, or choose another user or context",
			where)
	case errors.As(err, &refused):
		return fmt.Errorf("asking the API server at %s: %w", where, err)
	}
	through := proxy.Through(err)
	if errors.As(err, &request) {
		err = proxy.WithoutName(request.Err) // without the URL, which the message has already
	}
	if through != "" {
		return fmt.Errorf("reaching the API server at %s%s: %w: does the proxy work, and is the cluster up? "+
			"NO_PROXY lists what is reached without it", where, through, err)
	}
	return fmt.Errorf("reaching the API server at %s: %w: is the cluster up, and the context right?", where, err)
}

// MemberSide connects to the cluster of the current context.
func (k *Kubeconfig) MemberSide(ctx context.Context) (cluster.Side, error) {
	cfg, err := k.RestConfig()
	if err != nil {
		return cluster.Side{}, err
	}
	side, err := k.side(ctx, cfg)
	if err != nil {
		name, _ := k.contextName() // readable: RestConfig has read it
		return side, NoAnswer(cfg, name, err)
	}
	return side, nil
}

// BrokerSide connects to a broker.
func (k *Kubeconfig) BrokerSide(ctx context.Context, cfg *rest.Config) (cluster.Side, error) {
	side, err := k.side(ctx, cfg)
	if err != nil {
		return side, NoBroker(cfg.Host, err)
	}
	return side, nil
}

func (k *Kubeconfig) side(ctx context.Context, cfg *rest.Config) (cluster.Side, error) {
	clock := &look.Clock{Local: k.Now}
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(clock.Wrap)
	c, err := k.Connect(ctx, cfg)
	if err != nil {
		return cluster.Side{}, err
	}
	versions, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return cluster.Side{}, err
	}
	b, err := versions.RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return cluster.Side{}, err
	}
	var v version.Info
	if err := json.Unmarshal(b, &v); err != nil {
		return cluster.Side{}, fmt.Errorf("reading the API server's version: %w", err)
	}
	return cluster.Side{Client: c, URL: cfg.Host, Version: v.GitVersion, Clock: clock.Now}, nil
}

// NoBroker returns a one-line error about a broker that cannot be used, with a remedy.
func NoBroker(host string, err error) error {
	through := proxy.Through(err)
	var (
		request *url.Error
		cert    *tls.CertificateVerificationError
		unknown x509.UnknownAuthorityError
		name    x509.HostnameError
		invalid x509.CertificateInvalidError
	)
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &name):
		return fmt.Errorf("the certificate of the broker at %s%s is for another name: %w: check the address; "+
			"if it is right, specify the name in the certificate with --broker-tls-server-name", host, through,
			innermost(err))
	case errors.As(err, &cert), errors.As(err, &unknown), errors.As(err, &invalid):
		remedy := "check the address, or create a new join file there"
		if through != "" {
			remedy = "if the proxy replaces certificates, list the broker in NO_PROXY; otherwise " + remedy
		}
		return fmt.Errorf("the certificate of the broker at %s%s cannot be trusted: %w: %s", host, through,
			innermost(err), remedy)
	case apierrors.IsUnauthorized(err) && broker.HasPath(host):
		return fmt.Errorf("the broker at %s does not accept its credentials: an address with a path is usually a "+
			"proxy with users of its own, as in Rancher, which does not accept the tokens of service accounts: "+
			"specify the address of the API server itself with --broker-url, here or when the join file is written",
			host)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf(
			"the broker at %s does not accept its credentials: the join file belongs to another broker or was revoked; "+
				"ask the administrator of the broker for a new one: subctl invite writes one for one cluster, subctl deploy-broker and subctl recover-broker-info write general ones",
			host,
		)
	case errors.As(err, &request) && through != "":
		return fmt.Errorf("reaching the broker at %s%s: %w: does the proxy work, and does it permit this address? "+
			"NO_PROXY lists what is reached without it; --broker-url specifies another address",
			host, through, proxy.WithoutName(request.Err))
	case errors.As(err, &request):
		return fmt.Errorf(
			"reaching the broker at %s: %w: is it up, and can it be reached from here and from the gateways? "+
				"Specify another address with --broker-url, or a proxy with HTTPS_PROXY or --proxy-url",
			host,
			request.Err,
		)
	default:
		return fmt.Errorf("asking the broker at %s: %w", host, err)
	}
}

// IsUnreachable reports whether a request failed before the server's certificate was known.
func IsUnreachable(err error) bool {
	var (
		request *url.Error
		cert    *tls.CertificateVerificationError
	)
	return errors.As(err, &request) && !errors.As(err, &cert)
}

// Cause returns the error of a request without its URL and its proxy.
func Cause(err error) error {
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err
	}
	return proxy.WithoutName(err)
}

// innermost returns the error at the end of err's chain.
func innermost(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

// apiWarnings prints the warnings of API servers, except for two that are expected: the
// agents need privileged pods, and a Secret with a token.
type apiWarnings struct{ p *progress.Reporter }

// HandleWarningHeader implements rest.WarningHandler.
func (w apiWarnings) HandleWarningHeader(code int, _, text string) {
	if code != 299 || strings.Contains(text, "would violate PodSecurity") ||
		strings.Contains(text, "secret-based service account token") {
		return
	}
	w.p.Warn("%s", text)
}
