package webhook

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"subctl/internal/kubetest"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/sdewan"
)

// A rule whose certificate has expired is allowed, with a warning.
func TestExpiredCertificate(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "edge"},
		NotBefore:    time.Now().Add(-48 * time.Hour),
		NotAfter:     time.Now().Add(-24 * time.Hour),
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	text := func(block string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: block, Bytes: der}))
	}
	s := site("")
	s.Proposals = nil
	s.Connections[0].Proposals = nil
	s.Auth = "pubkey"
	s.PreSharedKey = ""
	s.LocalCert = text("CERTIFICATE", cert)
	s.LocalKey = text("PRIVATE KEY", private)
	s.CA = text("CERTIFICATE", cert)
	rule := labelled("ns", "edges", "cnf", "", &batch.IpsecSite{Spec: s})
	raw, err := json.Marshal(rule)
	require.NoError(t, err)
	k, _ := sdewan.KindOf(rule)
	r := reader(kubetest.Scheme(t))
	answer := (&dependencies{cached: r, live: r}).Handle(
		t.Context(),
		admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Operation: admissionv1.Create,
			Namespace: "ns",
			Resource:  metav1.GroupVersionResource{Group: k.GVK.Group, Version: k.GVK.Version, Resource: k.Resource},
			Object:    runtime.RawExtension{Raw: raw},
		}},
	)
	require.True(t, answer.Allowed, "%v", answer.Result)
	require.Len(t, answer.Warnings, 2, "the certificate, and the authority")
	require.Contains(t, answer.Warnings[0], `local_public_cert: certificate 1 ("CN=edge") has expired, at `)
}
