// Package serving serves the metrics and probes of agents over HTTP, and bounds what clients of any
// server can cost.
package serving

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"subctl/internal/alarm"
)

// Whoever reaches a node reaches the port of its agent's metrics, so what a client can cost the
// agent is bounded. Probes have a port of their own, on the loopback address: nobody who uses
// up the connections of the metrics makes the kubelet restart the agent.
const (
	maxConnections   = 64 // of one port; further connections are closed at once
	maxConnectionsOf = 8  // one client address
	maxScrapes       = 2  // at a time; others wait, since each holds all metrics in memory
	maxHeaderBytes   = 8 << 10

	headerTimeout = 5 * time.Second
	readTimeout   = 10 * time.Second
	writeTimeout  = 30 * time.Second
	idleTimeout   = 90 * time.Second // longer than the usual scrape interval, one minute

	listenAgain = time.Second // between attempts to use a port that is in use
)

// Server serves until its context is done.
type Server func(context.Context) error

// Start calls s. It makes a Server a part that a manager of controller-runtime can run.
func (s Server) Start(ctx context.Context) error { return s(ctx) }

// Metrics serves /metrics, with what gatherer collects.
func Metrics(addr string, gatherer prometheus.Gatherer, log *slog.Logger) Server {
	scrapes := make(chan struct{}, maxScrapes)
	handler := promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{})
	mux := http.NewServeMux()
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, r *http.Request) {
		select {
		case scrapes <- struct{}{}:
			defer func() { <-scrapes }()
			handler.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	})
	return serve("metrics", addr, limits{all: maxConnections, each: maxConnectionsOf}, mux, log)
}

// Probes answers probes, by path: with the error of the check, if there is one.
func Probes(addr string, checks map[string]func(*http.Request) error, log *slog.Logger) Server {
	mux := http.NewServeMux()
	for path, check := range checks {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if err := check(r); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			fmt.Fprintln(w, "ok")
		})
	}
	return serve("probes", addr, limits{all: maxConnections, each: maxConnections}, mux, log)
}

// serve serves HTTP until its context is done. what names the service in errors.
func serve(what, addr string, most limits, handler http.Handler, log *slog.Logger) Server {
	return func(ctx context.Context) error {
		s := &http.Server{
			Handler:           handler,
			ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
			MaxHeaderBytes:    maxHeaderBytes,
			ReadHeaderTimeout: headerTimeout,
			ReadTimeout:       readTimeout,
			WriteTimeout:      writeTimeout,
			IdleTimeout:       idleTimeout,
		}
		l, err := listen(ctx, what, addr, log)
		if err != nil && ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("serving %s: %w", what, err)
		}
		stop := context.AfterFunc(ctx, func() { _ = s.Close() })
		defer stop()
		if err := s.Serve(newLimited(l, most)); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serving %s: %w", what, err)
		}
		return nil
	}
}

// listen returns a listener. While the port is in use, it tries again: the ports of agents are
// among those that the kernel chooses for a node's own connections (net.ipv4.ip_local_port_range),
// and traffic does not depend on metrics.
func listen(ctx context.Context, what, addr string, log *slog.Logger) (l net.Listener, err error) {
	var taken alarm.Alarm
	for {
		if l, err = (&net.ListenConfig{}).Listen(ctx, "tcp", addr); !errors.Is(err, syscall.EADDRINUSE) {
			taken.Report(log, slog.LevelWarn, what+" are not served until their port is free", nil)
			return l, err
		}
		taken.Report(log, slog.LevelWarn, what+" are not served until their port is free", err)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(listenAgain):
		}
	}
}

// limits are the most connections at a time.
type limits struct {
	all  int
	each int // of one client address
}

// Limit returns a listener that closes connections beyond a number at once, and those of one client
// beyond another number.
func Limit(l net.Listener, all, each int) net.Listener { return newLimited(l, limits{all, each}) }

func newLimited(l net.Listener, most limits) *limited {
	return &limited{Listener: l, most: most, of: map[netip.Addr]int{}}
}

// limited is a listener that closes the connections beyond its limits at once. It does not let
// them wait: clients that keep their connections would keep all others out.
type limited struct {
	net.Listener
	most limits

	mu  sync.Mutex
	all int
	of  map[netip.Addr]int
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := netip.Addr{}
		if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
			from = a.AddrPort().Addr().Unmap()
		}
		if l.admit(from) {
			return &admitted{Conn: c, leave: sync.OnceFunc(func() { l.leave(from) })}, nil
		}
		_ = c.Close()
	}
}

func (l *limited) admit(from netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= l.most.all || l.of[from] >= l.most.each {
		return false
	}
	l.all++
	l.of[from]++
	return true
}

func (l *limited) leave(from netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.of[from]--; l.of[from] == 0 {
		delete(l.of, from)
	}
}

// admitted is a connection that counts until it is closed.
type admitted struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *admitted) Close() error {
	c.leave()
	return c.Conn.Close()
}
