package broker

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// RESTConfig returns the configuration of an agent's client of the broker. server is
// host:port, with or without a scheme. secretDir is the directory where the Secret with
// token and ca.crt is mounted; both files are read repeatedly, so they may be rotated.
// moreCA are further certificate authorities to trust, PEM in base64, as in
// Submariner.spec.brokerK8sCA; they may be empty. insecure turns off the verification of the
// broker's certificate.
func RESTConfig(secretDir, server, moreCA string, insecure bool) (*rest.Config, error) {
	token, ca := filepath.Join(secretDir, "token"), filepath.Join(secretDir, "ca.crt")
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
	return restConfig(server, insecure, func() ([]byte, error) {
		mounted, err := os.ReadFile(ca)
		return JoinCAs(mounted, more), err
	},
		func(c *rest.Config) {
			// Unlike rest.Config.BearerTokenFile, which is read once a minute, it is read again when
			// the broker no longer accepts the token: a cluster that joins again gets another one.
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
func restConfig(server string, insecure bool, ca func() ([]byte, error), auth func(*rest.Config)) *rest.Config {
	if !strings.Contains(server, "://") {
		server = "https://" + server
	}
	c := &rest.Config{Host: server}
	auth(c)
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return straight{next} })
	if insecure {
		c.Insecure = true
		return c
	}
	dialer := &tlsDialer{ca: ca}
	c.Transport = utilnet.SetTransportDefaults(&http.Transport{
		DialTLSContext:      dialer.dial,
		ForceAttemptHTTP2:   true,
		TLSHandshakeTimeout: handshakeTimeout,
		MaxIdleConnsPerHost: 25,
	})
	return c
}

// straight follows no redirects. An API server sends none; a broker in bad faith could otherwise make a gateway, which
// is in the network of its node, send requests to whatever is reached from there, also to what listens on its loopback
// address.
type straight struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (s straight) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := s.next.RoundTrip(r)
	if err != nil || response.Header.Get("Location") == "" || response.StatusCode < 300 || response.StatusCode > 399 {
		return response, err
	}
	_ = response.Body.Close()
	return nil, fmt.Errorf("the broker's API server redirects to %.100q, which API servers do not do", response.Header.Get("Location"))
}

// WrappedRoundTripper returns what makes the requests.
func (s straight) WrappedRoundTripper() http.RoundTripper { return s.next }

// handshakeTimeout bounds connecting: enough for a slow link, short for a dead one.
const handshakeTimeout = 10 * time.Second

// tlsDialer reads the certificate authorities again for every connection.
type tlsDialer struct {
	ca func() ([]byte, error)
}

func (d *tlsDialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	pem, err := d.ca()
	if err != nil {
		return nil, fmt.Errorf("reading the broker's certificate authority: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("the broker's certificate authority (ca.crt) holds no certificate")
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	dialer := tls.Dialer{
		NetDialer: &net.Dialer{Timeout: handshakeTimeout, KeepAlive: 30 * time.Second},
		Config:    &tls.Config{RootCAs: pool, NextProtos: []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12},
	}
	return dialer.DialContext(ctx, network, addr)
}
