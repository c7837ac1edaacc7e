package broker_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"net"
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
	"subctl/internal/proxy"
	"subctl/internal/proxy/proxytest"
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
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		IsCA:                  true,
		BasicConstraintsValid: true,
		NotAfter:              time.Now().Add(time.Hour),
	}
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
	_, err := broker.RESTConfig(dir, broker.Access{Server: address}, "")
	require.ErrorContains(t, err, "does the Secret of this cluster exist, and is it mounted?")

	write("token", []byte("open-sesame"))
	write("ca.crt", ca)
	c, err := broker.RESTConfig(dir, broker.Access{Server: address}, "")
	require.NoError(t, err)
	body, err := get(t, c)
	require.NoError(t, err)
	require.Contains(t, body, "Bearer open-sesame")
	require.Contains(t, body, "HTTP/2.0")
	require.NotContains(t, c.String(), "sesame")

	t.Log("another token is read as soon as the server does not accept the one before, by the same client")
	write("token", []byte("revoked"))
	c, err = broker.RESTConfig(dir, broker.Access{Server: address}, "")
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
	c, err = broker.RESTConfig(dir, broker.Access{Server: address}, "")
	require.NoError(t, err)
	_, err = get(t, c)
	require.ErrorContains(t, err, "holds no certificate")
	write("ca.crt", ca)
	_, err = get(t, c)
	require.NoError(t, err)

	t.Log("Submariner.spec.brokerK8sCA adds certificate authorities, and one that holds none is refused")
	write("ca.crt", selfSigned(t))
	c, err = broker.RESTConfig(dir, broker.Access{Server: address}, "")
	require.NoError(t, err)
	_, err = get(t, c)
	require.ErrorContains(t, err, "unknown authority")
	c, err = broker.RESTConfig(dir, broker.Access{Server: address}, base64.StdEncoding.EncodeToString(ca))
	require.NoError(t, err)
	_, err = get(t, c)
	require.NoError(t, err)
	for _, text := range []string{"no base64!", base64.StdEncoding.EncodeToString([]byte("nothing"))} {
		_, err = broker.RESTConfig(dir, broker.Access{Server: address}, text)
		require.ErrorContains(t, err, "Submariner.spec.brokerK8sCA holds no certificate")
	}

	t.Log("without a check, any will do")
	write("ca.crt", []byte("nothing"))
	c, err = broker.RESTConfig(dir, broker.Access{Server: "https://" + address, Insecure: true}, "")
	require.NoError(t, err)
	_, err = get(t, c)
	require.NoError(t, err)
}

// A broker that redirects requests does not make a gateway send them to anything that the gateway's
// node can reach.
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
			c, err := broker.RESTConfig(dir, broker.Access{Server: s.Listener.Addr().String(), Insecure: insecure}, "")
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

// The certificate authority of a join file counts through a proxy, too: of the environment, of the
// kubeconfig, with a password, and for each kind of proxy. NO_PROXY is followed.
func TestRESTConfigThroughProxies(t *testing.T) {
	address, ca := tlsServer(t)
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	const name = "example.com" // in the certificate, and no loopback address
	hub := "https://" + name + ":" + port
	file := &broker.JoinFile{BrokerURL: hub, CA: ca, Token: broker.Secret("open-sesame")}
	secure, certificate := proxytest.HTTPS(t, address)
	locked := proxytest.HTTP(t, address)
	locked.Password = "me:let-me-in"
	for kind, p := range map[string]*proxytest.Proxy{
		"HTTP": proxytest.HTTP(t, address), "HTTPS": secure, "SOCKS5": proxytest.SOCKS5(t, address),
		"HTTP with a password": locked,
	} {
		t.Run(kind, func(t *testing.T) {
			t.Setenv("HTTPS_PROXY", strings.Replace(p.URL, "://", "://"+p.Password+"@", 1))
			t.Setenv("NO_PROXY", "")
			if p.Password == "" {
				t.Setenv("HTTPS_PROXY", p.URL)
			}
			f := *file
			f.Proxy = proxy.FromEnvironment()
			if p == secure {
				f.CA = broker.JoinCAs(ca, certificate)
			}
			body, err := get(t, f.RESTConfig(false))
			require.NoError(t, err)
			require.Contains(t, body, "Bearer open-sesame")
			require.Contains(t, body, "HTTP/2.0")
			require.Equal(t, []string{name + ":" + port}, p.Seen())

			t.Log("another certificate authority does not count")
			f.CA = selfSigned(t)
			if p == secure {
				f.CA = broker.JoinCAs(f.CA, certificate)
			}
			_, err = get(t, f.RESTConfig(false))
			require.ErrorContains(t, err,
				"through the proxy "+p.URL+" (from HTTPS_PROXY): tls: failed to verify certificate: x509: ")
			require.NotContains(t, err.Error(), "let-me-in")

			t.Log("without a check, any will do")
			_, err = get(t, f.RESTConfig(true))
			require.NoError(t, err)

			t.Log("NO_PROXY: the broker is asked directly")
			t.Setenv("NO_PROXY", name)
			f.Proxy = proxy.FromEnvironment()
			u, err := f.Proxy.For(hub)
			require.NoError(t, err)
			require.Nil(t, u)
		})
	}
	t.Run("a proxy of the kubeconfig, also for a loopback address", func(t *testing.T) {
		p := proxytest.HTTP(t, address)
		f := *file
		f.BrokerURL = "https://" + address
		f.Proxy = proxy.Settings{URL: p.URL, Always: true, Source: "--proxy-url"}
		_, err := get(t, f.RESTConfig(false))
		require.NoError(t, err)
		require.Equal(t, []string{address}, p.Seen())
	})
	t.Run("a proxy that is down, or does not know the user", func(t *testing.T) {
		f := *file
		f.Proxy = proxy.Settings{URL: "http://me:let-me-in@127.0.0.1:1", Source: "HTTPS_PROXY"}
		_, err := get(t, f.RESTConfig(false))
		require.ErrorContains(t, err, "through the proxy http://127.0.0.1:1 (from HTTPS_PROXY): proxyconnect tcp: ")
		require.NotContains(t, err.Error(), "let-me-in")
		f.Proxy.URL = locked.URL
		_, err = get(t, f.RESTConfig(false))
		require.ErrorContains(t, err, "Proxy Authentication Required")
	})
}

// An agent reads the user and the password for the proxy from its Secret, again for each
// connection.
func TestRESTConfigProxyUser(t *testing.T) {
	address, ca := tlsServer(t)
	p := proxytest.HTTP(t, address)
	p.Password = "agent:p:w"
	dir := t.TempDir()
	write := func(name, content string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	write("token", "open-sesame")
	write("ca.crt", string(ca))
	c, err := broker.RESTConfig(dir,
		broker.Access{Server: "example.com:6443", Proxy: proxy.Settings{URL: p.URL, Source: "x"}}, "")
	require.NoError(t, err)
	_, err = get(t, c)
	require.ErrorContains(t, err, "through the proxy "+p.URL+" (from x): Proxy Authentication Required")
	write(broker.ProxyUserKey, "agent:p:w\n")
	body, err := get(t, c)
	require.NoError(t, err)
	require.Contains(t, body, "Bearer open-sesame")
	write(broker.ProxyUserKey, "agent:secret-word")
	c, err = broker.RESTConfig(dir, broker.Access{Server: "example.com:6443", Proxy: proxy.Settings{URL: p.URL}}, "")
	require.NoError(t, err)
	_, err = get(t, c) // with connections of its own
	require.ErrorContains(t, err, "Proxy Authentication Required")
	require.NotContains(t, err.Error(), "secret-word")
}

// The certificate of a broker behind a tunnel or a load balancer has another name than its address
// (tls-server-name of the kubeconfig), and an API server may be below a path.
func TestRESTConfigServerNameAndPath(t *testing.T) {
	address, ca := tlsServer(t)
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	f := &broker.JoinFile{
		BrokerURL: "https://localhost:" + port + "/k8s/clusters/c-abc/", CA: ca, Token: broker.Secret("t"),
	}
	_, err = get(t, f.RESTConfig(false))
	require.ErrorContains(t, err, "certificate is valid for example.com, *.example.com, not localhost")
	f.TLSServerName = "example.com"
	_, err = get(t, f.RESTConfig(false))
	require.NoError(t, err)
	p := proxytest.HTTP(t, address)
	f.Proxy = proxy.Settings{URL: p.URL, Always: true}
	_, err = get(t, f.RESTConfig(false))
	require.NoError(t, err)
	f.TLSServerName = "other.example.org"
	_, err = get(t, f.RESTConfig(false))
	require.ErrorContains(t, err, "not other.example.org")
}
