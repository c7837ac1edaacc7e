package probe

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"

	"subctl/agent/role"
)

// pingSocket is the socket for pings and their answers.
type pingSocket struct {
	net.PacketConn
	packets *ipv4.PacketConn
	id      int // of our pings, random
}

// icmpForIPv4 is the protocol number of ICMP.
const icmpForIPv4 = 1

// listenPings opens the socket. It needs CAP_NET_RAW.
func listenPings(ctx context.Context) (*pingSocket, error) {
	conn, err := (&net.ListenConfig{}).ListenPacket(ctx, "ip4:icmp", "0.0.0.0")
	if err != nil {
		return nil, fmt.Errorf("opening an ICMP socket for health checks: %w", err)
	}
	var id [2]byte
	rand.Read(id[:]) // never fails
	s := &pingSocket{PacketConn: conn, packets: ipv4.NewPacketConn(conn), id: int(binary.BigEndian.Uint16(id[:]))}
	// Without the filter every ping from elsewhere would wake the agent, too.
	var onlyReplies ipv4.ICMPFilter
	onlyReplies.SetAll(true)
	onlyReplies.Accept(ipv4.ICMPTypeEchoReply)
	if err := s.packets.SetICMPFilter(&onlyReplies); err != nil {
		conn.Close()
		return nil, fmt.Errorf("setting the filter of the ICMP socket: %w", err)
	}
	return s, nil
}

// send sends a ping.
func (s *pingSocket) send(t role.Target, a asked) error {
	b, err := (&icmp.Message{
		Type: ipv4.ICMPTypeEcho,
		Body: &icmp.Echo{ID: s.id, Seq: int(a.seq), Data: a.nonce[:]},
	}).Marshal(nil)
	if err != nil {
		return err
	}
	from := &ipv4.ControlMessage{Src: t.From.AsSlice()}
	_, err = s.packets.WriteTo(b, from, &net.IPAddr{IP: t.IP.AsSlice()})
	return err
}

// pong parses an IPv4 packet; false if it is no answer to one of our pings.
func (s *pingSocket) pong(packet []byte) (from netip.Addr, seq uint16, data []byte, ok bool) {
	if len(packet) < ipv4.HeaderLen {
		return from, 0, nil, false
	}
	header := int(packet[0]&0xf) * 4
	if header < ipv4.HeaderLen || header > len(packet) {
		return from, 0, nil, false
	}
	m, err := icmp.ParseMessage(icmpForIPv4, packet[header:])
	if err != nil || m.Type != ipv4.ICMPTypeEchoReply {
		return from, 0, nil, false
	}
	echo, ok := m.Body.(*icmp.Echo)
	if !ok || echo.ID != s.id {
		return from, 0, nil, false
	}
	return netip.AddrFrom4([4]byte(packet[12:16])), uint16(echo.Seq), echo.Data, true
}

// pongLen is the size of the longest answer to a ping: the headers, IPv4 options included, and the
// nonce.
const pongLen = 60 + 8 + 16

// takePong returns what takes packets that arrive on the socket for pings.
func (p *Prober) takePong(s *pingSocket) func([]byte, time.Time) {
	return func(packet []byte, at time.Time) {
		if from, seq, data, ok := s.pong(packet); ok {
			p.answered(seq, from, data, at)
		}
	}
}

// receive takes what arrives until the socket is closed. what is what the probes are.
func (p *Prober) receive(ctx context.Context, what string, arrivals Arrivals, take func([]byte, time.Time)) {
	for ctx.Err() == nil {
		if err := arrivals.Receive(take); err != nil && ctx.Err() == nil {
			p.log.Warn("reading answers to probes", "kind", what, "err", err)
			time.Sleep(time.Second)
		}
	}
}

// readings are the arrivals on a socket of which Go's runtime reads.
type readings struct {
	conn net.Conn
	size int
}

// newReadings is Options.NewArrivals where there is none.
func newReadings(conn syscall.Conn, size int) (Arrivals, error) {
	return readings{conn.(net.Conn), size}, nil
}

// Receive implements Arrivals.
func (r readings) Receive(take func([]byte, time.Time)) error {
	for b := make([]byte, r.size); ; {
		n, err := r.conn.Read(b)
		if err != nil {
			return err
		}
		take(b[:n], time.Now())
	}
}

// Drain implements Arrivals: it does nothing, as Go's runtime reads only while it waits.
func (r readings) Drain(func([]byte, time.Time)) {}
