package kubetest

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// Gate is a TCP relay in front of a server, whose address never changes. While the gate
// is shut, the server cannot be reached through it.
type Gate struct {
	listener net.Listener

	mu     sync.Mutex
	target string // host:port; empty while shut
	conns  map[net.Conn]bool
}

// NewGate returns an open gate in front of a server.
func NewGate(t testing.TB, s *Server) *Gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &Gate{listener: l, conns: map[net.Conn]bool{}}
	t.Cleanup(func() { _ = l.Close(); g.Shut() })
	g.Open(t, s)
	go g.accept()
	return g
}

// Config returns config with the gate's address in place of the server's.
func (g *Gate) Config(config *rest.Config) *rest.Config {
	c := rest.CopyConfig(config)
	c.Host = "https://" + g.Address()
	return c
}

// Address returns the gate's address, as host:port.
func (g *Gate) Address() string { return g.listener.Addr().String() }

// Open lets connections through to s.
func (g *Gate) Open(t testing.TB, s *Server) {
	t.Helper()
	u, err := url.Parse(s.config.Host)
	if err != nil {
		t.Fatal(err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.target = u.Host
}

// Shut breaks all connections and refuses new ones.
func (g *Gate) Shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.target = ""
	for c := range g.conns {
		_ = c.Close()
	}
	clear(g.conns)
}

func (g *Gate) accept() {
	for {
		from, err := g.listener.Accept()
		if err != nil {
			return
		}
		go g.relay(from)
	}
}

func (g *Gate) relay(from net.Conn) {
	defer from.Close()
	g.mu.Lock()
	target := g.target
	g.mu.Unlock()
	if target == "" {
		return
	}
	to, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer to.Close()
	g.mu.Lock()
	if g.target != target {
		g.mu.Unlock()
		return
	}
	g.conns[from] = true
	g.conns[to] = true
	g.mu.Unlock()
	done := make(chan struct{}, 2)
	for _, ends := range [][2]net.Conn{{from, to}, {to, from}} {
		go func() {
			_, _ = io.Copy(ends[0], ends[1])
			done <- struct{}{}
		}()
	}
	<-done
}
