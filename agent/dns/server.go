package dns

import (
	"context"
	"fmt"
	"net"
	"time"

	wire "github.com/miekg/dns"

	"subctl/internal/serving"
	"subctl/services/dns"
)

// Pods can reach the server, so what a client can cost it is bounded. Clients over TCP are the
// servers of the cluster's DNS, few and with several connections each.
const (
	maxConnections   = 128 // over TCP; further connections are closed at once
	maxConnectionsOf = 64  // one client address

	firstTimeout = 2 * time.Second // for the first question of a connection
	idleTimeout  = 10 * time.Second
	writeTimeout = 2 * time.Second
	stopTimeout  = 2 * time.Second // for questions that are being answered

	maxQuery   = 1232    // octets of a query over UDP; longer ones are malformed
	packetRoom = 1 << 20 // octets of queries that wait; the kernel may allow less
)

// server answers questions over UDP and TCP, at one address.
type server struct {
	packets  net.PacketConn
	listener net.Listener
	index    *dns.Index
	meters   *meters
}

// listen opens the sockets of a server.
func listen(ctx context.Context, address string, index *dns.Index, m *meters) (*server, error) {
	var config net.ListenConfig
	packets, err := config.ListenPacket(ctx, "udp", address)
	if err != nil {
		return nil, err
	}
	// With port 0, TCP has the port that UDP got.
	listener, err := config.Listen(ctx, "tcp", packets.LocalAddr().String())
	if err != nil {
		_ = packets.Close()
		return nil, err
	}
	if c, ok := packets.(*net.UDPConn); ok {
		_ = c.SetReadBuffer(packetRoom) // without it, more queries are lost in a burst
	}
	return &server{packets: packets, listener: listener, index: index, meters: m}, nil
}

// serveUDP answers over UDP until ctx is done.
func (s *server) serveUDP(ctx context.Context) error {
	return s.serve(ctx, "UDP", &wire.Server{PacketConn: s.packets, UDPSize: maxQuery, Handler: s.handler(false)})
}

// serveTCP answers over TCP until ctx is done.
func (s *server) serveTCP(ctx context.Context) error {
	return s.serve(ctx, "TCP", &wire.Server{
		Listener: patient{serving.Limit(s.listener, maxConnections, maxConnectionsOf)}, Handler: s.handler(true),
		ReadTimeout: firstTimeout, IdleTimeout: func() time.Duration { return idleTimeout }, MaxTCPQueries: -1,
	})
}

func (s *server) serve(ctx context.Context, network string, server *wire.Server) error {
	server.MsgInvalidFunc = func([]byte, error) { s.meters.answered(wire.RcodeFormatError) }
	started := make(chan struct{})
	server.NotifyStartedFunc = func() { close(started) }
	ended := make(chan error, 1)
	go func() { ended <- server.ActivateAndServe() }()
	select {
	case <-started:
	case err := <-ended:
		return fmt.Errorf("serving DNS over %s: %w", network, err)
	}
	select {
	case err := <-ended:
		return fmt.Errorf("serving DNS over %s: %w", network, err)
	case <-ctx.Done():
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	_ = server.ShutdownContext(within) // clients that are cut off ask another server
	return nil
}

// handler answers the questions that have arrived over UDP or TCP.
func (s *server) handler(tcp bool) wire.HandlerFunc {
	return func(w wire.ResponseWriter, query *wire.Msg) {
		r := s.index.Answer(query, tcp)
		if r == nil {
			return
		}
		s.meters.answered(r.Rcode)
		if err := w.WriteMsg(r); err != nil && tcp {
			_ = w.Close() // the client does not read
		}
	}
}

// patient is a listener whose connections do not wait for ever until the client reads.
type patient struct{ net.Listener }

// Accept implements net.Listener.
func (l patient) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return patientConn{c}, nil
}

type patientConn struct{ net.Conn }

// Write implements net.Conn.
func (c patientConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}
