package webhook

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/internal/kubetest"
)

// While the certificate is renewed several times, no request fails because of it. Another replica,
// which makes certificates at the same time, serves the same ones.
func TestRotationWithoutDowntime(t *testing.T) {
	e := env(t)
	ns := e.server.Namespace(t, "rotation")
	c := kubetest.Client(t, e.token(t, system, account))
	replica := newCertificates(c, c,
		Options{Namespace: system, Account: account, Hosts: []string{"127.0.0.1"}, Lifetime: lifetime, Log: silent()})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- replica.Start(ctx) }()

	dry := client.NewDryRunClient(e.as(t, "ann"))
	served := map[string]bool{}
	requests := 0
	for deadline := time.Now().Add(patience); len(served) < 4; requests++ {
		require.True(t, time.Now().Before(deadline), "%d certificates in %s", len(served), patience)
		err := dry.Create(t.Context(), rule(ns, "r", "cnf", "basic", "missing"))
		require.Error(t, err)
		require.Contains(t, err.Error(), "denied the request", "the webhook was asked")
		s := &corev1.Secret{}
		require.NoError(t, e.admin.Get(t.Context(), client.ObjectKey{Namespace: system, Name: SecretName}, s))
		served[string(s.Data[corev1.TLSCertKey])] = true
		require.NotContains(t, string(s.Data[corev1.TLSCertKey]), "PRIVATE KEY")
	}
	t.Logf("%d requests during 3 renewals", requests)
	require.Eventually(t, func() bool {
		s := &corev1.Secret{}
		require.NoError(t, e.admin.Get(t.Context(), client.ObjectKey{Namespace: system, Name: SecretName}, s))
		pair := replica.current.Load()
		own, err := usable(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey], replica.names, time.Now())
		return err == nil && pair != nil && pair.Leaf.Equal(own.Leaf)
	}, patience, 50*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
}

// A configuration that somebody has applied without the certificate, and a Secret that somebody has
// deleted, are repaired.
func TestHostileCertificateIsRepaired(t *testing.T) {
	e := env(t)
	ns := e.server.Namespace(t, "repair")
	asked := func() bool {
		err := client.NewDryRunClient(e.as(t, "ann")).Create(t.Context(), rule(ns, "r", "cnf", "basic", "missing"))
		return err != nil && strings.Contains(err.Error(), "denied the request")
	}
	w := &admissionv1.ValidatingWebhookConfiguration{}
	require.Eventually(t, func() bool {
		require.NoError(t, e.admin.Get(t.Context(), client.ObjectKey{Name: Name}, w))
		for i := range w.Webhooks {
			w.Webhooks[i].ClientConfig.CABundle = nil
		}
		return e.admin.Update(t.Context(), w) == nil
	}, patience, 10*time.Millisecond)
	require.Eventually(t, asked, patience, 50*time.Millisecond)

	require.NoError(t, e.admin.Delete(t.Context(), &corev1.Secret{ObjectMeta: described(system, SecretName, "")}))
	require.Eventually(t, func() bool {
		return e.admin.Get(t.Context(), client.ObjectKey{Namespace: system, Name: SecretName},
			&corev1.Secret{}) == nil &&
			asked()
	}, patience, 50*time.Millisecond)
}
