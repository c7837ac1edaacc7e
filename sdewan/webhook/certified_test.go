package webhook

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/internal/kubetest"
)

// certified returns a client of a user who has a certificate that the cluster has signed, as
// administrators give it to people.
func (e *environment) certified(t testing.TB, user string, groups ...string) client.Client {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader,
		&x509.CertificateRequest{Subject: pkix.Name{CommonName: user, Organization: groups}}, key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	k, err := kubernetes.NewForConfig(e.server.Config())
	require.NoError(t, err)
	requests := k.CertificatesV1().CertificateSigningRequests()
	csr, err := requests.Create(
		t.Context(),
		&certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "user-"},
			Spec: certificatesv1.CertificateSigningRequestSpec{
				Request:    encoded("CERTIFICATE REQUEST", der),
				SignerName: certificatesv1.KubeAPIServerClientSignerName,
				Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth},
			},
		},
		metav1.CreateOptions{},
	)
	require.NoError(t, err)
	csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
		{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"},
	}
	_, err = requests.UpdateApproval(t.Context(), csr.Name, csr, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		csr, err = requests.Get(t.Context(), csr.Name, metav1.GetOptions{})
		return err == nil && len(csr.Status.Certificate) > 0
	}, patience, 10*time.Millisecond)
	config := rest.AnonymousClientConfig(e.server.Config())
	config.CertData = csr.Status.Certificate
	config.KeyData = encoded("PRIVATE KEY", private)
	return kubetest.Client(t, config)
}

func encoded(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// account creates a service account.
func (e *environment) account(t testing.TB, namespace, name string) {
	t.Helper()
	e.create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
}

// accountClient returns a client of a service account, with a token of its own.
func (e *environment) accountClient(t testing.TB, namespace, name string) client.Client {
	t.Helper()
	return kubetest.Client(t, e.token(t, namespace, name))
}
