package cmd

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"subctl/cluster"
)

// clusterName returns the name that the kubeconfig gives the cluster in use;
// empty if it does not.
func (g *globals) clusterName() (string, error) {
	raw, err := g.kubeconfig()
	if err != nil {
		return "", err
	}
	if *g.kube.ClusterName != "" {
		return *g.kube.ClusterName, nil
	}
	if c := raw.Contexts[cmp.Or(*g.kube.Context, raw.CurrentContext)]; c != nil {
		return c.Cluster, nil
	}
	return "", nil
}

// memberSide connects to the cluster in use.
func (g *globals) memberSide(ctx context.Context) (cluster.Side, error) {
	cfg, err := g.restConfig()
	if err != nil {
		return cluster.Side{}, err
	}
	cfg.QPS, cfg.Burst = 100, 200 // the default of 5 requests a second would take longer than all the rest
	side, err := g.side(ctx, cfg)
	if err != nil {
		name, _ := g.contextName() // readable: restConfig has read it
		return side, noAnswer(cfg, name, err)
	}
	return side, nil
}

// brokerSide connects to a broker.
func (g *globals) brokerSide(ctx context.Context, cfg *rest.Config) (cluster.Side, error) {
	side, err := g.side(ctx, cfg)
	if err != nil {
		return side, noBroker(cfg.Host, err)
	}
	return side, nil
}

func (g *globals) side(ctx context.Context, cfg *rest.Config) (cluster.Side, error) {
	ctrllog.SetLogger(logr.Discard()) // else it complains after 30 s: what there is to say, we say
	c, err := g.connect(ctx, cfg)
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
	return cluster.Side{Client: c, URL: cfg.Host, Version: v.GitVersion}, nil
}

// noBroker says in one line why a broker could not be used, and what to do.
func noBroker(host string, err error) error {
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
	case errors.As(err, &cert), errors.As(err, &unknown), errors.As(err, &name), errors.As(err, &invalid):
		return fmt.Errorf("the certificate of the broker at %s cannot be trusted: %w: check the address, or make a new join file there. "+
			"With --check-broker-certificate=false whoever answers at that address gets this cluster's credentials for the broker", host, innermost(err))
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the broker at %s does not accept its credentials: the join file is of another broker, or was revoked; "+
			"make a new one with subctl deploy-broker or subctl recover-broker-info", host)
	case errors.As(err, &request):
		return fmt.Errorf("reaching the broker at %s: %w: is it up, and can it be reached from here and from the gateways? "+
			"Say another address with --broker-url", host, request.Err)
	default:
		return fmt.Errorf("asking the broker at %s: %w", host, err)
	}
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
