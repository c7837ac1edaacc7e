package manager

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/internal/kubetest"
	"subctl/internal/nstest"
	"subctl/internal/progress"
	"subctl/sdewan"
	"subctl/sdewan/controller"
	"subctl/sdewan/install"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

// started installs SD-EWAN, and runs what a pod of a component runs, with the rights that the
// installation gives it and no others.
func started(
	t *testing.T,
	account string,
	run func(context.Context, Options) error,
) (c client.Client, o Options, stop func()) {
	t.Helper()
	s := kubetest.Shared(t)
	c = s.Client(t)
	objects, err := install.Render(install.Options{Image: "example/subctl:v1", Replicas: 1})
	require.NoError(t, err)
	require.NoError(t,
		(&install.Operation{Client: c, Report: progress.New(&bytes.Buffer{})}).Apply(t.Context(), objects))
	token := &authenticationv1.TokenRequest{}
	require.NoError(
		t,
		c.SubResource("token").Create(t.Context(),
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account, Namespace: install.Namespace}}, token),
	)
	log := &nstest.Buffer{}
	o = Options{
		Config:      s.As(token.Status.Token),
		Log:         slog.New(slog.NewTextHandler(log, nil)),
		MetricsAddr: "0",
		ProbeAddr:   address(t),
	}
	_, port, err := net.SplitHostPort(address(t))
	require.NoError(t, err)
	_, err = fmt.Sscan(port, &o.WebhookPort)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx, o) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-done:
				require.NoError(t, err, log)
			case <-time.After(2 * stopWithin):
				t.Fatal("it does not end")
			}
		})
	}
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return c, o, stop
}

// address returns an address of this machine on which nothing listens.
func address(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// answers returns the status code of a probe; 0 if there is no answer.
func (o Options) answers(path string) int {
	resp, err := http.Get("http://" + o.ProbeAddr + path)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

const (
	patience = time.Minute
	look     = 20 * time.Millisecond
)

// The controller works with the rights that are installed. When its pod ends, it gives its Lease
// back, so that the next one need not wait for its end.
func TestController(t *testing.T) {
	c, o, stop := started(t, install.ControllerName, RunController)
	// no webhook runs
	require.NoError(
		t,
		client.IgnoreNotFound(
			c.Delete(t.Context(),
				&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: install.WebhookName}}),
		),
	)
	p := &batch.Mwan3Policy{
		ObjectMeta: metav1.ObjectMeta{
			Name:      "p",
			Namespace: kubetest.Shared(t).Namespace(t, "site"),
			Labels:    map[string]string{sdewan.PurposeLabel: "cnf-1"},
		},
	}
	p.Spec.Members = []batch.Mwan3PolicyMember{{Network: "wan1"}}
	require.Eventually(t, func() bool { return client.IgnoreAlreadyExists(c.Create(t.Context(), p)) == nil }, patience,
		look)
	require.Eventually(t, func() bool {
		is := &batch.Mwan3Policy{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(p), is); err != nil {
			return false
		}
		applied := meta.FindStatusCondition(is.Status.Conditions, batch.ConditionApplied)
		return applied != nil && applied.Reason == controller.NoCNF
	}, patience, look)
	require.Equal(t, http.StatusOK, o.answers("/healthz"))
	require.Equal(t, http.StatusOK, o.answers("/readyz"))
	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: install.Namespace, Name: install.ControllerName}
	require.NoError(t, c.Get(t.Context(), key, lease))
	require.NotEmpty(t, holder(lease))
	stop()
	require.NoError(t, c.Get(t.Context(), key, lease))
	require.Empty(t, holder(lease))
}

func holder(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// The webhooks make their certificate, and let the API server trust it, with the rights that are
// installed. Their pod is ready only then.
func TestWebhooks(t *testing.T) {
	c, o, _ := started(t, install.WebhookName, RunWebhooks)
	require.Eventually(t, func() bool { return o.answers("/readyz") == http.StatusOK }, patience, look)
	w := &admissionv1.ValidatingWebhookConfiguration{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: install.WebhookName}, w))
	require.NotEmpty(t, w.Webhooks)
	for _, hook := range w.Webhooks {
		roots := x509.NewCertPool()
		require.True(t, roots.AppendCertsFromPEM(hook.ClientConfig.CABundle), hook.Name)
		ref := hook.ClientConfig.Service
		conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", o.WebhookPort),
			&tls.Config{RootCAs: roots, ServerName: ref.Name + "." + ref.Namespace + ".svc"})
		require.NoError(t, err, hook.Name)
		require.NoError(t, conn.Close())
	}
}
