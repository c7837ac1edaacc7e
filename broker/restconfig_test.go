package broker_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"subctl/broker"
)

// tlsServer answers with the bearer token it is sent, which must not be "revoked".
func tlsServer(t *testing.T) (address string, ca []byte) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer revoked" {
			w.WriteHeader(http.StatusUnauthorized)
		}
		_, _ = w.Write([]byte(r.Proto + " " + r.Header.Get("Authorization")))
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

func get(t *testing.T, c *rest.Config) (string, error) {
	t.Helper()
	client, err := rest.HTTPClientFor(c)
	require.NoError(t, err)
	return getWith(t, client, c.Host)
}

func getWith(t *testing.T, client *http.Client, address string) (string, error) {
	t.Helper()
	r, err := client.Get(address)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	var b strings.Builder
	require.NoError(t, r.Write(&b))
	return b.String()[strings.LastIndex(b.String(), "\n")+1:], nil
}

// selfSigned returns the certificate (PEM) of another authority.
func selfSigned(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestRESTConfig(t *testing.T) {
	address, ca := tlsServer(t)
	dir := t.TempDir()
	write := func(name string, content []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	_, err := broker.RESTConfig(dir, address, "", false)
	require.ErrorContains(t, err, "does the Secret of this cluster exist, and is it mounted?")

	write("token", []byte("open-sesame"))
	write("ca.crt", ca)
	c, err := broker.RESTConfig(dir, address, "", false)
	require.NoError(t, err)
	body, err := get(t, c)
	require.NoError(t, err)
	require.Contains(t, body, "Bearer open-sesame")
	require.Contains(t, body, "HTTP/2.0")
	require.NotContains(t, c.String(), "sesame")

	t.Log("another token is read as soon as the server does not accept the one before, by the same client")
	write("token", []byte("revoked"))
	c, err = broker.RESTConfig(dir, address, "", false)
	require.NoError(t, err)
	client, err := rest.HTTPClientFor(c)
	require.NoError(t, err)
	for range 2 { // the answer to the first request after reading the file does not count
		body, err = getWith(t, client, c.Host)
		require.NoError(t, err)
		require.Contains(t, body, "Bearer revoked")
	}
	write("token", []byte("open-sesame"))
	body, err = getWith(t, client, c.Host)
	require.NoError(t, err)
	require.Contains(t, body, "Bearer open-sesame")

	t.Log("a file that holds no certificate authority is refused, and mended without a new client")
	write("ca.crt", []byte("nothing"))
	c, err = broker.RESTConfig(dir, address, "", false)
	require.NoError(t, err)
	_, err = get(t, c)
	require.ErrorContains(t, err, "holds no certificate")
	write("ca.crt", ca)
	_, err = get(t, c)
	require.NoError(t, err)

	t.Log("Submariner.spec.brokerK8sCA adds certificate authorities, and one that holds none is refused")
	write("ca.crt", selfSigned(t))
	c, err = broker.RESTConfig(dir, address, "", false)
	require.NoError(t, err)
	_, err = get(t, c)
	require.ErrorContains(t, err, "unknown authority")
	c, err = broker.RESTConfig(dir, address, base64.StdEncoding.EncodeToString(ca), false)
	require.NoError(t, err)
	_, err = get(t, c)
	require.NoError(t, err)
	for _, text := range []string{"no base64!", base64.StdEncoding.EncodeToString([]byte("nothing"))} {
		_, err = broker.RESTConfig(dir, address, text, false)
		require.ErrorContains(t, err, "Submariner.spec.brokerK8sCA holds no certificate")
	}

	t.Log("without a check, any will do")
	write("ca.crt", []byte("nothing"))
	c, err = broker.RESTConfig(dir, "https://"+address, "", true)
	require.NoError(t, err)
	_, err = get(t, c)
	require.NoError(t, err)
}

// A broker that redirects requests does not make a gateway send them to anything that the gateway's node can reach.
func TestHostileRedirects(t *testing.T) {
	var reached atomic.Int64
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	t.Cleanup(inside.Close)
	for _, status := range []int{301, 302, 303, 307, 308} {
		s := httptest.NewTLSServer(http.RedirectHandler(inside.URL+"/shutdown", status))
		t.Cleanup(s.Close)
		dir := t.TempDir()
		ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
		require.NoError(t, os.WriteFile(filepath.Join(dir, "token"), []byte("open-sesame"), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "ca.crt"), ca, 0o600))
		file := broker.JoinFile{BrokerURL: s.URL, CA: ca, Token: broker.Secret("open-sesame")}
		for _, insecure := range []bool{false, true} {
			c, err := broker.RESTConfig(dir, s.Listener.Addr().String(), "", insecure)
			require.NoError(t, err)
			for _, c := range []*rest.Config{c, file.RESTConfig(insecure)} {
				client, err := rest.HTTPClientFor(c)
				require.NoError(t, err)
				for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete} {
					r, err := http.NewRequestWithContext(t.Context(), method, s.URL+"/api", strings.NewReader("body"))
					require.NoError(t, err)
					response, err := client.Do(r)
					if err == nil {
						_ = response.Body.Close()
					}
					require.ErrorContains(t, err, "redirects to")
				}
			}
		}
	}
	require.Zero(t, reached.Load())
}
