package broker

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"subctl/internal/proxy"
)

// Access is how a client reaches the API server of a broker.
type Access struct {
	Server string // host:port, with or without a scheme and a path
	// ServerName is the name in the server's certificate; empty: the host in Server.
	ServerName string
	// Insecure turns off the verification of the certificate.
	Insecure bool
	Proxy    proxy.Settings

	proxyUser string // file with USER:PASSWORD for the proxy, which need not exist; "" for none
}

// ProxyUserKey is the key, in the Secret with the credentials for the broker, of USER:PASSWORD for
// the proxy through which gateways reach it.
const ProxyUserKey = "https-proxy-user"

// RESTConfig returns the configuration of an agent's client of the broker. secretDir is the
// directory where the Secret with token and ca.crt is mounted; both files are read repeatedly, so
// they may be rotated. moreCA are further certificate authorities to trust, PEM in base64, as in
// Submariner.spec.brokerK8sCA; they may be empty.
func RESTConfig(secretDir string, access Access, moreCA string) (*rest.Config, error) {
	token := filepath.Join(secretDir, "token")
	ca := filepath.Join(secretDir, "ca.crt")
	for _, file := range []string{token, ca} {
		if _, err := os.Stat(file); err != nil {
			return nil, fmt.Errorf("reading the credentials for the broker: %w: "+
				"does the Secret of this cluster exist, and is it mounted?", err)
		}
	}
	more, err := DecodeCA(moreCA)
	if err != nil {
		return nil, err
	}
	access.proxyUser = filepath.Join(secretDir, ProxyUserKey)
	return access.restConfig(func() ([]byte, error) {
		mounted, err := os.ReadFile(ca)
		return JoinCAs(mounted, more), err
	},
		func(c *rest.Config) {
			// Unlike rest.Config.BearerTokenFile, which is read once a minute, it is read again
			// when the broker no longer accepts the token: a cluster that joins again gets another
			// one.
			c.WrapTransport = transport.ResettableTokenSourceWrapTransport(transport.NewCachedFileTokenSource(token))
		}), nil
}

// DecodeCA returns the certificates (PEM) of Submariner.spec.brokerK8sCA; none if it is empty.
func DecodeCA(text string) ([]byte, error) {
	pem, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(pem) > 0 && !x509.NewCertPool().AppendCertsFromPEM(pem) {
		return nil, errors.New("Submariner.spec.brokerK8sCA holds no certificate: it must be PEM in base64, or empty")
	}
	return pem, nil
}

// JoinCAs returns the certificates (PEM) of both lists.
func JoinCAs(x, y []byte) []byte {
	if len(y) == 0 {
		return x
	}
	return slices.Concat(bytes.TrimSpace(x), []byte("\n"), y)
}

// restConfig returns a configuration that trusts the certificate authorities of the system
// and the ones that ca returns. A rest.Config can only replace the former by the latter, but
// a broker behind a public load balancer has a certificate from the former.
func (a Access) restConfig(ca func() ([]byte, error), auth func(*rest.Config)) *rest.Config {
	server := a.Server
	if !strings.Contains(server, "://") {
		server = "https://" + server
	}
	choose := a.chooser()
	verifier := &verifier{ca: ca, insecure: a.Insecure, name: a.ServerName}
	if u, err := url.Parse(server); err == nil {
		verifier.server = net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443"))
		verifier.name = cmp.Or(verifier.name, u.Hostname())
	}
	c := &rest.Config{Host: server}
	auth(c)
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return straight{next} })
	c.Wrap(proxy.Naming(choose, a.Proxy.Source))
	c.Transport = utilnet.SetTransportDefaults(&http.Transport{
		Proxy:               choose,
		DialTLSContext:      verifier.dial,                                    // to the server, or to an HTTPS proxy
		TLSClientConfig:     verifier.config(verifier.name, "h2", "http/1.1"), // of the server, through a proxy
		ForceAttemptHTTP2:   true,
		TLSHandshakeTimeout: handshakeTimeout,
		MaxIdleConnsPerHost: 25,
	})
	return c
}

// chooser returns what chooses the proxy of a request.
func (a Access) chooser() proxy.Chooser {
	choose := a.Proxy.Chooser()
	if a.proxyUser == "" {
		return choose
	}
	return func(r *http.Request) (*url.URL, error) {
		u, err := choose(r)
		if u == nil || err != nil || u.User != nil {
			return u, err
		}
		text, err := os.ReadFile(a.proxyUser) // again each time, as it may be changed
		if errors.Is(err, fs.ErrNotExist) {
			return u, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading the user of the proxy: %w", err)
		}
		user, password, _ := strings.Cut(strings.TrimSpace(string(text)), ":")
		authenticated := *u
		authenticated.User = url.UserPassword(user, password)
		return &authenticated, nil
	}
}

// straight follows no redirects. An API server sends none; a broker in bad faith could otherwise
// make a gateway, which is in the network of its node, send requests to whatever is reached from
// there, also to what listens on its loopback address.
type straight struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (s straight) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := s.next.RoundTrip(r)
	if err != nil || response.Header.Get("Location") == "" || response.StatusCode < 300 || response.StatusCode > 399 {
		return response, err
	}
	_ = response.Body.Close()
	return nil, fmt.Errorf("the broker's API server redirects to %.100q, which API servers do not do",
		response.Header.Get("Location"))
}

// WrappedRoundTripper returns what makes the requests.
func (s straight) WrappedRoundTripper() http.RoundTripper { return s.next }

// handshakeTimeout bounds connecting: enough for a slow link, short for a dead one.
const handshakeTimeout = 10 * time.Second

// verifier verifies certificates. It reads the certificate authorities again for every connection.
type verifier struct {
	ca       func() ([]byte, error)
	insecure bool
	server   string // host:port of the API server
	name     string // in its certificate
}

// dial opens a TLS connection to the API server or, if the address is another one, to a proxy.
func (v *verifier) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	config := v.config(v.name, "h2", "http/1.1")
	if addr != v.server {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		config = v.config(host, "http/1.1") // in which the proxy is asked for a connection
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: handshakeTimeout, KeepAlive: 30 * time.Second}, Config: config}
	return dialer.DialContext(ctx, network, addr)
}

// config returns the configuration of a TLS connection to a server with a name.
func (v *verifier) config(name string, protocols ...string) *tls.Config {
	return &tls.Config{
		ServerName: name, NextProtos: protocols, MinVersion: tls.VersionTLS12,
		// Instead of crypto/tls, which would use one list of authorities for all connections,
		// verify does it.
		InsecureSkipVerify: true,
		VerifyConnection:   func(s tls.ConnectionState) error { return v.verify(s, name) },
	}
}

// verify returns an error if the certificate of a server is not to be trusted.
func (v *verifier) verify(s tls.ConnectionState, name string) error {
	if v.insecure {
		return nil
	}
	pem, err := v.ca()
	if err != nil {
		return fmt.Errorf("reading the broker's certificate authority: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return errors.New("the broker's certificate authority (ca.crt) holds no certificate")
	}
	options := x509.VerifyOptions{Roots: pool, DNSName: name, Intermediates: x509.NewCertPool()}
	for _, c := range s.PeerCertificates[1:] {
		options.Intermediates.AddCert(c)
	}
	if _, err := s.PeerCertificates[0].Verify(options); err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: err}
	}
	return nil
}
