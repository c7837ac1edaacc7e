package join

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/cluster"
	"subctl/internal/kube"
	"subctl/internal/proxy"
)

// This file is about the proxy through which the gateways reach the broker. Unless the user or an
// earlier join specifies one, it is the proxy through which this machine reaches the broker. Its
// user and password are in the Secret with the credentials for the broker.

// checkProxy checks the flags --https-proxy and --no-proxy.
func (o Options) checkProxy() error {
	var errs []error
	if o.HTTPSProxy != "" && o.HTTPSProxy != proxy.None {
		u, err := proxy.Parse(o.HTTPSProxy)
		switch {
		case err != nil: // without the value, which may contain a password
			errs = append(errs, fmt.Errorf("%s %w, or %s to use no proxy", o.source("https-proxy"), err, proxy.None))
		case u.User != nil:
			errs = append(errs, errors.New("--https-proxy contains a user or a password, which other users of this "+
				"machine could read on a command line: omit them there, and set the environment variable HTTPS_PROXY "+
				"to the URL with user and password"))
		}
	}
	for _, item := range o.NoProxy {
		if strings.TrimSpace(item) == "" || strings.ContainsAny(item, ", /@") && !isNetwork(item) {
			errs = append(errs, fmt.Errorf("%s %.100q is not a name, an address or a network: use the notation of "+
				"NO_PROXY, such as .example.com or 10.0.0.0/8", o.source("no-proxy"), item))
		}
	}
	return errors.Join(errs...)
}

// isNetwork reports whether text is a network in CIDR notation.
func isNetwork(text string) bool {
	_, err := netip.ParsePrefix(text)
	return err == nil
}

// gatewayProxy returns the proxy through which the gateways reach the broker at an address, without
// user and password, and what they reach without it, as in the Submariner.
func (o Options) gatewayProxy(address string) (https string, except []string, warning string) {
	switch {
	case o.HTTPSProxy == proxy.None:
		return proxy.None, nil, ""
	case o.isStored("https-proxy") && o.HTTPSProxy != "":
		return o.HTTPSProxy, o.NoProxy, ""
	case o.HTTPSProxy != "":
		u, err := proxy.Parse(o.HTTPSProxy)
		if err != nil { // checkProxy has refused it
			return "", nil, ""
		}
		return proxy.Name(u), o.NoProxy, ""
	case o.joined || o.specifies("no-proxy"):
		return "", o.NoProxy, ""
	}
	u, err := o.Environment.For(address)
	switch {
	case err != nil || u == nil:
		return "", nil, ""
	case proxy.IsLocal(u):
		return "", nil, fmt.Sprintf("this machine reaches the broker through its own proxy %s (from %s), which "+
			"gateways cannot use: they reach the broker directly; if they need a proxy, specify it with --https-proxy",
			proxy.Name(u), o.Environment.Source)
	}
	warning = fmt.Sprintf("the gateways will reach the broker through the proxy %s (from %s), as this machine does: "+
		"if they do not need it, specify --https-proxy %s", proxy.Name(u), o.Environment.Source, proxy.None)
	return proxy.Name(u), list(o.Environment.Except), warning
}

// checkGatewayProxy warns of a proxy that the user did not specify for the gateways.
func checkGatewayProxy(r request) ([]string, error) {
	if _, _, warning := r.gatewayProxy(r.file.BrokerURL); warning != "" {
		return []string{warning}, nil
	}
	return nil, nil
}

// proxyUser returns USER:PASSWORD for the proxy of a Submariner: from the environment if that has
// the same proxy, or else as they are stored, unless they are for another proxy.
func (j *Operation) proxyUser(ctx context.Context) (broker.Secret, error) {
	spec := j.Plan.Submariner.Spec
	want, err := url.Parse(spec.BrokerK8sHTTPSProxy)
	if err != nil || want.Host == "" {
		return nil, nil
	}
	env, err := proxy.Parse(j.Environment.URL)
	if err == nil && env.Scheme == want.Scheme && env.Host == want.Host && env.User != nil {
		password, _ := env.User.Password()
		return broker.Secret(env.User.Username() + ":" + password), nil
	}
	if j.Plan.Before == nil || j.Plan.Before.Spec.BrokerK8sHTTPSProxy != spec.BrokerK8sHTTPSProxy {
		return nil, nil
	}
	stored, err := kube.Optional(ctx, j.Member, &corev1.Secret{}, client.ObjectKey{
		Namespace: cluster.Namespace, Name: cluster.BrokerSecret,
	})
	if err != nil || stored == nil {
		return nil, err
	}
	return stored.Data[broker.ProxyUserKey], nil
}

// insteadOfNameAnnotation, on a Submariner, is the name of the broker's certificate in the join
// file if the user specified another one with --broker-tls-server-name.
const insteadOfNameAnnotation = "submariner.io/broker-tls-server-name-instead-of"

// ServerName returns the name in the certificate of the broker's API server: the name that the user
// specifies or, if the join file has the same name as at the last join, has specified then; and
// otherwise the name in the join file, or, if that has none, the stored name of the same address.
// It is empty if it is the host in the address.
func (o Options) ServerName(file *broker.JoinFile, joined *v1alpha1.Submariner) string {
	if o.BrokerServerName != "" {
		return o.BrokerServerName
	}
	if joined != nil && !o.Reset {
		if instead, ok := joined.Annotations[insteadOfNameAnnotation]; ok && instead == file.TLSServerName {
			return joined.Spec.BrokerK8sTLSServerName
		}
		if file.TLSServerName == "" && joined.Spec.BrokerK8sApiServer == withoutScheme(o.Address(file, joined)) {
			return joined.Spec.BrokerK8sTLSServerName // of a file that had one, or of a person
		}
	}
	return file.TLSServerName
}

// proxyFields sets the fields about the proxy.
func (r request) proxyFields(spec *v1alpha1.SubmarinerSpec) {
	spec.BrokerK8sHTTPSProxy, spec.BrokerK8sNoProxy, _ = r.gatewayProxy(r.file.BrokerURL)
	spec.BrokerK8sNoProxy = slices.Clone(spec.BrokerK8sNoProxy)
}
