package broker

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/api/submariner/v1alpha1"
	"subctl/broker/trust"
	"subctl/globalnet"
	"subctl/internal/wake"
)

// MinTokenTTL and MaxTokenTTL bound the lifetime of a join file's token. The API server
// refuses less than 10 minutes; an invitation that is older than a year is forgotten.
const (
	MinTokenTTL = 10 * time.Minute
	MaxTokenTTL = 365 * 24 * time.Hour
)

// rootCA is the name of a ConfigMap in every namespace. Its key
// corev1.ServiceAccountRootCAKey holds the certificate authority of the API server.
const rootCA = "kube-root-ca.crt"

// Invitation is the content of a join file that is not read from the broker.
type Invitation struct {
	URL string // of the broker, with scheme
	// ServerName is the name in the certificate of the broker; empty: the host in URL.
	ServerName string
	// CA is a certificate authority in PEM by which the deployer trusts the broker, besides
	// the cluster's own. It may be empty.
	CA  []byte
	PSK Secret
	// Administrator signs the grants of the clusters that join with the file.
	Administrator trust.Key
	TTL           time.Duration
	// Global is the global network to reserve for the one cluster that is invited; nil: none.
	Global *globalnet.NetworkRequest
}

// Invite returns a join file for a deployed broker, with a new token of the joiner. The API
// server may give the token a shorter lifetime than requested: see JoinFile.Expires.
func Invite(ctx context.Context, c client.Client, b *v1alpha1.Broker, i Invitation) (*JoinFile, error) {
	f, err := inviteAs(ctx, c, b, i, JoinerName)
	if err != nil {
		return nil, err
	}
	f.SigningKey = i.Administrator
	f.Administrator = i.Administrator.Public()
	return f, f.check()
}

// inviteAs returns a join file with a new token of a service account, without a signing key.
func inviteAs(
	ctx context.Context,
	c client.Client,
	b *v1alpha1.Broker,
	i Invitation,
	account string,
) (*JoinFile, error) {
	ca, err := clusterCA(ctx, c, b.Namespace)
	if err != nil {
		return nil, err
	}
	if len(i.CA) > 0 && !bytes.Contains(ca, bytes.TrimSpace(i.CA)) {
		ca = JoinCAs(ca, i.CA)
	}
	seconds := int64(i.TTL / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account, Namespace: b.Namespace}}
	if err := c.SubResource("token").Create(ctx, sa, request); err != nil {
		return nil, fmt.Errorf("getting a token for %s/%s: %w", b.Namespace, account, err)
	}
	return &JoinFile{
		BrokerURL: i.URL, TLSServerName: i.ServerName, CA: ca, Namespace: b.Namespace,
		Token: Secret(request.Status.Token), PSK: i.PSK,
		ServiceDiscovery: b.Spec.HasServiceDiscovery(), Components: ComponentsOf(b.Spec),
	}, nil
}

// Components of a deployment.
const (
	Connectivity     = "connectivity"
	ServiceDiscovery = "service-discovery"
)

// ComponentsOf returns the components that clusters of a broker install, if their join does not
// specify them.
func ComponentsOf(b v1alpha1.BrokerSpec) []string {
	out := slices.Clone(b.Components)
	if b.HasServiceDiscovery() && !slices.Contains(out, ServiceDiscovery) {
		out = append(out, ServiceDiscovery)
	}
	return out
}

// clusterCA returns the certificate authority of the API server. A new namespace gets it
// from a controller, after a moment.
func clusterCA(ctx context.Context, c client.Client, ns string) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, memberTimeout, fmt.Errorf("it did not exist after %s", memberTimeout))
	defer cancel()
	for {
		cm := &corev1.ConfigMap{}
		err := c.Get(ctx, client.ObjectKey{Namespace: ns, Name: rootCA}, cm)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("reading ConfigMap %s/%s: %w", ns, rootCA, err)
		}
		if ca := cm.Data[corev1.ServiceAccountRootCAKey]; ca != "" {
			return []byte(ca), nil
		}
		if err := wake.After(ctx, 50*time.Millisecond); err != nil {
			return nil, fmt.Errorf("waiting for ConfigMap %s/%s with the cluster's certificate authority: %w", ns,
				rootCA, err)
		}
	}
}
