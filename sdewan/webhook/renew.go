package webhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/internal/wake"
)

// certificates creates and renews the certificate that all replicas serve, in a Secret, and makes
// the API server trust it. Every replica does so: the version of the Secret decides who is first.
// Nothing is cached: a replica must not watch Secrets of others.
type certificates struct {
	client  client.Client
	live    client.Reader
	options Options
	names   []string
	current atomic.Pointer[tls.Certificate]
	// since is the time when this replica first saw that the API server should trust the next
	// certificate, which is next.
	since time.Time
	next  []byte
}

func newCertificates(c client.Client, live client.Reader, o Options) *certificates {
	o.Lifetime = cmp.Or(o.Lifetime, certificateLifetime)
	names := []string{o.service() + "." + o.Namespace + ".svc"}
	return &certificates{client: c, live: live, options: o, names: append(names, o.Hosts...)}
}

// tls returns the option that serves the current certificate.
func (c *certificates) tls() []func(*tls.Config) {
	return []func(*tls.Config){func(t *tls.Config) {
		t.MinVersion = tls.VersionTLS12
		t.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if pair := c.current.Load(); pair != nil {
				return pair, nil
			}
			return nil, errors.New("there is no certificate yet")
		}
	}}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica serves.
func (c *certificates) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable. It looks every ten seconds, or more often if certificates live
// less than a day: not only for the time, but also for a certificate that another replica has made,
// and for a configuration that somebody has applied without the certificate.
func (c *certificates) Start(ctx context.Context) error {
	pause := min(10*time.Second, max(c.options.Lifetime/100, 100*time.Millisecond))
	for {
		err := c.step(ctx, time.Now(), 3*pause)
		if err != nil && ctx.Err() == nil && !errors.Is(err, errAgain) {
			c.options.Log.Error("certificate of the webhooks", "err", err)
		}
		again := pause
		if err != nil || c.current.Load() == nil {
			again = min(pause, time.Second)
		}
		if wake.After(ctx, again) != nil {
			return nil
		}
	}
}

// step does once what Start does. A certificate that the API server has trusted for as long as
// grace may be served: all replicas of the API server have heard of it.
func (c *certificates) step(ctx context.Context, now time.Time, grace time.Duration) error {
	secret, err := c.secret(ctx)
	if err != nil {
		return err
	}
	data := maps.Clone(secret.Data)
	if data == nil {
		data = map[string][]byte{}
	}
	trusted := len(c.next) > 0 && bytes.Equal(c.next, data[nextCert]) && now.Sub(c.since) >= grace
	changed, err := turn(data, c.names, now, c.options.Lifetime, trusted)
	if err != nil {
		return fmt.Errorf("creating a certificate: %w", err)
	}
	if changed {
		secret.Data = data
		if err := c.write(ctx, secret); err != nil {
			if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
				return errAgain
			}
			return fmt.Errorf("writing Secret %s: %w", SecretName, err)
		}
		c.options.Log.Info("the certificate of the webhooks is new", "secret", SecretName)
	}
	if err := c.trust(ctx, bundle(data, now)); err != nil {
		return err
	}
	if !bytes.Equal(c.next, data[nextCert]) {
		c.next = data[nextCert]
		c.since = now
	}
	pair, err := usable(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey], c.names, now)
	if err != nil {
		return fmt.Errorf("reading Secret %s: %w", SecretName, err)
	}
	c.current.Store(pair)
	return nil
}

// errAgain is returned by step if another replica was first. What that has written is read soon.
var errAgain = errors.New("another replica has changed the certificate at the same time")

// secret returns the Secret, or a new one without a version.
func (c *certificates) secret(ctx context.Context) (*corev1.Secret, error) {
	s := &corev1.Secret{}
	err := c.live.Get(ctx, client.ObjectKey{Namespace: c.options.Namespace, Name: SecretName}, s)
	if apierrors.IsNotFound(err) {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.options.Namespace, Name: SecretName},
			Type:       corev1.SecretTypeTLS,
		}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s: %w", SecretName, err)
	}
	return s, nil
}

func (c *certificates) write(ctx context.Context, s *corev1.Secret) error {
	if s.ResourceVersion == "" {
		return c.client.Create(ctx, s)
	}
	return c.client.Update(ctx, s)
}

// trust writes certificates to the configuration of the webhooks, if they are not there.
func (c *certificates) trust(ctx context.Context, certs []byte) error {
	w := &admissionv1.ValidatingWebhookConfiguration{}
	if err := c.live.Get(ctx, client.ObjectKey{Name: Name}, w); err != nil {
		return fmt.Errorf("reading the configuration of the webhooks: %w", err)
	}
	changed := false
	for i := range w.Webhooks {
		if to := &w.Webhooks[i].ClientConfig.CABundle; !bytes.Equal(*to, certs) {
			*to = certs
			changed = true
		}
	}
	if !changed {
		return nil
	}
	if err := c.client.Update(ctx, w); apierrors.IsConflict(err) {
		return errAgain
	} else if err != nil {
		return fmt.Errorf("writing the certificate to the configuration of the webhooks: %w", err)
	}
	return nil
}
