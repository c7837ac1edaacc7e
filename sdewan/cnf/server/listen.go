package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// Limits of connections. Upstream's client makes a connection for each request and never closes it.
const (
	headerTime = 5 * time.Second  // until the handshake and the headers are complete
	readTime   = 20 * time.Second // until the body is
	writeTime  = 30 * time.Second
	idleTime   = 30 * time.Second
	maxHeader  = 16 << 10 // bytes
	maxConns   = 256      // if there are more, one is closed of the address that has the most
	stopTime   = 3 * time.Second
)

// Listeners are the listeners and the certificate of a Server.
type Listeners struct {
	HTTPS net.Listener
	HTTP  net.Listener // of the probe; optional
	// Cert and Key are files in PEM. When they change, new connections use the new ones.
	Cert, Key string
}

// Run serves until the context ends.
func (s *Server) Run(ctx context.Context, l Listeners) error {
	pair := &keyPair{cert: l.Cert, key: l.Key, log: s.Log}
	if _, err := pair.get(nil); err != nil {
		return fmt.Errorf("reading the certificate: %w", err)
	}
	secure := httpServer(s.Handler(), s.Log)
	config := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: pair.get, NextProtos: []string{"http/1.1"}}
	servers := []*http.Server{secure}
	failed := make(chan error, 2)
	go func() { failed <- secure.Serve(tls.NewListener(l.HTTPS, config)) }()
	if l.HTTP != nil {
		probe := httpServer(s.Probe(), s.Log)
		servers = append(servers, probe)
		go func() { failed <- probe.Serve(l.HTTP) }()
	}
	var err error
	select {
	case err = <-failed:
		err = fmt.Errorf("serving the REST API: %w", err)
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	for _, server := range servers {
		if stop := server.Shutdown(stopping); errors.Is(stop, context.DeadlineExceeded) {
			_ = server.Close()
		}
	}
	return err
}

func httpServer(h http.Handler, log *slog.Logger) *http.Server {
	conns := &connections{open: map[net.Conn]time.Time{}}
	return &http.Server{
		Handler:           h,
		ConnState:         conns.state,
		ReadHeaderTimeout: headerTime,
		ReadTimeout:       readTime,
		WriteTimeout:      writeTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug), // who scans ports shall not fill the log
	}
}

// connections bounds how many connections are open.
type connections struct {
	mu   sync.Mutex
	open map[net.Conn]time.Time // since when a connection waits for a request; zero while it does not
}

// state is the hook of http.Server.
func (c *connections) state(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		if len(c.open) >= maxConns {
			c.closeOne(conn)
		}
		c.open[conn] = time.Now()
	case http.StateIdle:
		c.open[conn] = time.Now()
	case http.StateActive:
		c.open[conn] = time.Time{}
	case http.StateClosed, http.StateHijacked:
		delete(c.open, conn)
	}
}

// closeOne closes a connection of the address that has the most of them: the one that has waited
// for a request for the longest time, or any if all are busy. Who has many, whatever they do, keeps
// nobody else out.
func (c *connections) closeOne(latest net.Conn) {
	count := map[string]int{host(latest): 1}
	for conn := range c.open {
		count[host(conn)]++
	}
	victim := latest
	since := time.Time{}
	for conn, waits := range c.open {
		most := count[host(victim)]
		of := count[host(conn)]
		waited := !waits.IsZero() && (since.IsZero() || waits.Before(since))
		if of > most || of == most && (waited || victim == latest) {
			victim = conn
			since = waits
		}
	}
	if secure, ok := victim.(*tls.Conn); ok {
		_ = secure.NetConn().Close() // at once: Close of the tls.Conn waits for the client
	} else {
		_ = victim.Close()
	}
	delete(c.open, victim)
}

// host returns the address of a client.
func host(c net.Conn) string {
	address := c.RemoteAddr().String()
	if at := strings.LastIndexByte(address, ':'); at > 0 {
		return address[:at]
	}
	return address
}

// keyPair is a certificate and its key in files, which are read again when they have changed.
type keyPair struct {
	cert, key string
	log       *slog.Logger

	mu      sync.Mutex
	seen    [2]fileState
	current *tls.Certificate
}

type fileState struct {
	changed time.Time
	size    int64
}

// get is tls.Config.GetCertificate. While the files do not fit together, the previous certificate
// is used.
func (p *keyPair) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var now [2]fileState
	for i, name := range []string{p.cert, p.key} {
		info, err := os.Stat(name)
		if err != nil {
			return p.previous(err)
		}
		now[i] = fileState{info.ModTime(), info.Size()}
	}
	if now == p.seen {
		return p.previous(nil)
	}
	pair, err := tls.LoadX509KeyPair(p.cert, p.key)
	if err != nil {
		if p.current != nil {
			p.log.Error("the new certificate of the REST API cannot be used: the previous one is", "err", err)
		}
		p.seen = now
		return p.previous(err)
	}
	p.seen = now
	p.current = &pair
	return p.current, nil
}

func (p *keyPair) previous(err error) (*tls.Certificate, error) {
	if p.current == nil {
		return nil, err
	}
	return p.current, nil
}
