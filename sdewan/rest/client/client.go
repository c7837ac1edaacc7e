// Package client calls the REST API of a CNF. It speaks HTTPS only, and accepts no certificate but
// one that the given CA has signed for the given name: what it sends contains the password of root,
// and keys of tunnels. Every call is bounded in time and in what it reads, and follows no redirect.
//
// It works against OpenWrt and against sdewan/cnf/server. It does not decide what a CNF should
// hold.
package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"subctl/internal/secret"
)

// Options are the settings with which a CNF is reached. All fields are required except the times.
type Options struct {
	// Address is the address of the CNF, as host:port.
	Address string
	// Name is the name in the CNF's certificate: see PodName.
	Name string
	// CA has the certificates, in PEM, that sign for CNFs. No other CA counts.
	CA []byte
	// Password is that of the user root.
	Password secret.Bytes

	// Timeout bounds each call, including the login before it; 10 s if it is 0. RestartTimeout
	// bounds restarts of services, which OpenWrt answers only when the service runs again; 60 s if
	// it is 0.
	Timeout, RestartTimeout time.Duration

	// Large is called before more than 128 KiB of a collection or an object are read, and may wait:
	// who calls many CNFs bounds how many of them fill its memory at the same time. Its error
	// becomes the error of the call. It may be nil.
	Large func(context.Context) error
}

// Times that are not part of Options, because a CNF in the same cluster that takes longer is not
// there.
const (
	dialTimeout      = 3 * time.Second
	handshakeTimeout = 5 * time.Second
	idleTimeout      = 90 * time.Second
)

// Bounds of what is read.
const (
	maxBody    = 16 << 20 // of a collection with 10,000 objects of 1 KiB, and some
	maxObject  = 2 << 20  // of an object: of many certificates
	maxStatus  = 3 << 20  // of a status with 10,000 connections
	maxModules = 64       // of a status
	smallBody  = 128 << 10
	maxRefuse  = 16 << 10 // of the body of an error
	maxHeader  = 64 << 10
	maxMessage = 300 // of a text of the CNF that is passed on
)

// Client calls one CNF. Calls may run at the same time.
type Client struct {
	o         Options
	http      *http.Client
	transport *http.Transport

	logins chan struct{} // has an element during a login, so that there is one at a time
	token  string        // of the cookie sysauth; empty before the login
}

// New returns a client. It connects to nothing.
func New(o Options) (*Client, error) {
	pool := x509.NewCertPool()
	var errs []error
	if !pool.AppendCertsFromPEM(o.CA) {
		errs = append(errs, errors.New("the CA has no certificate in PEM"))
	}
	if len(o.Password) == 0 {
		errs = append(errs, errors.New("the password is empty"))
	}
	if o.Name == "" {
		errs = append(errs, errors.New("the name in the CNF's certificate is empty"))
	}
	if _, _, err := net.SplitHostPort(o.Address); err != nil {
		errs = append(errs, fmt.Errorf("the address of the CNF: %w", err))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	if o.RestartTimeout == 0 {
		o.RestartTimeout = time.Minute
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	c := &Client{o: o, logins: make(chan struct{}, 1), transport: &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, o.Address)
		},
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, ServerName: o.Name},
		TLSHandshakeTimeout: handshakeTimeout, IdleConnTimeout: idleTimeout, MaxIdleConnsPerHost: 1,
		MaxResponseHeaderBytes: maxHeader,
		ReadBufferSize:         4 << 10, WriteBufferSize: 4 << 10,
		DisableCompression: true, // a small body stays small
	}}
	c.http = &http.Client{
		Transport:     c.transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// Close closes the connections to the CNF. Calls that follow open new ones.
func (c *Client) Close() { c.transport.CloseIdleConnections() }
