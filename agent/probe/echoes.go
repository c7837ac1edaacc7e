package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"subctl/agent/role"
)

// Arrivals are the datagrams that arrive on a socket.
type Arrivals interface {
	// Receive calls take with each datagram, and the time at which the kernel received it, until
	// the socket is closed or fails.
	Receive(take func(b []byte, at time.Time)) error
	// Drain calls take with each datagram that has arrived, and does not wait for more. When it
	// returns, whatever Receive has read has been taken, too.
	Drain(take func(b []byte, at time.Time))
}

// Echoes is a socket for datagrams that other nodes forward back.
type Echoes interface {
	Arrivals
	// Send sends a datagram on a device to a MAC address, from an address of this node, and a port,
	// to this address.
	Send(payload []byte, dev, mac string, own netip.AddrPort) error
	Close() error
}

// What an echo contains: its sequence number and nonce, and zeros up to its size.
const (
	echoLen    = 2 + 16
	ipUDPBytes = 20 + 8 // the headers of IPv4 and UDP
)

// echoSocket is the socket for echoes, which is opened for the first one.
type echoSocket struct {
	socket Echoes
	again  time.Time // after a failure: when to try again
}

// errNoEchoes is the error of an echo while the socket cannot be opened. The target then counts as
// one that forwards no echoes back.
var errNoEchoes = errors.New("there is no socket for echoes")

// send sends an echo.
func (e *echoSocket) send(ctx context.Context, p *Prober, t role.Target, a asked) error {
	if e.socket == nil {
		if p.listen == nil || a.sent.Before(e.again) {
			p.leaveToPings(a)
			return errNoEchoes
		}
		p.mu.Lock()
		port := p.probes.Echo
		p.mu.Unlock()
		socket, err := p.listen(ctx, port, echoLen)
		if err != nil {
			e.again = a.sent.Add(time.Minute)
			p.log.Warn("no echoes are sent, only pings: a gateway that answers and forwards no packets stays in use",
				"err", err)
			p.leaveToPings(a)
			return err
		}
		e.socket = socket
		p.drains = append(p.drains, func() { socket.Drain(p.takeEcho) })
		go p.receive(ctx, "echo", socket, p.takeEcho)
	}
	return e.socket.Send(echoPayload(t, a), t.Echo.Device, t.Echo.MAC, netip.AddrPortFrom(t.From, a.source))
}

// leaveToPings has pings decide whether the target of an echo that cannot be sent is down, if no
// echo has come back to this agent from it, also if an echo of its predecessor had found it to be
// down.
func (p *Prober) leaveToPings(a asked) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g := p.pings[p.byOrder[a.seq].name]; g != nil && g.fast.streams[echoing].answered.IsZero() {
		g.fast.streams[echoing].proven = false
		g.fast.streams[filling].proven = false
	}
}

// Echoes are sent from these ports. Servers have lower ones, about which a firewall may have rules.
const firstEchoSource, echoSources = 10000, 50000

// echoSource returns the port from which echoes are sent at a time. every is the time between two
// echoes to a target. The port changes as often as large echoes are sent, and the other node's
// connection tracking has no entry for the first echo from a port. So echoes find a gateway whose
// table of connections is full: it forwards only packets of connections that it knows. An entry
// stays for 30 s (nf_conntrack_udp_timeout). So a gateway has 60 entries for each of a hundred
// nodes that probe it, and no more than 6,000 if there are more of these nodes, as they probe less
// often.
func echoSource(at time.Time, every time.Duration) uint16 {
	period := every * (role.FullInterval / role.FastInterval)
	return uint16(firstEchoSource + at.UnixNano()/int64(period)%echoSources)
}

// echoPayload returns the payload of an echo.
func echoPayload(t role.Target, a asked) []byte {
	size := echoLen
	if a.kind == filling {
		size = max(size, t.Echo.MTU-ipUDPBytes)
	}
	b := make([]byte, size)
	binary.BigEndian.PutUint16(b, a.seq)
	copy(b[2:], a.nonce[:])
	return b
}

func (e *echoSocket) close() {
	if e.socket != nil {
		e.socket.Close()
	}
}

// takeEcho takes an echo that has come back.
func (p *Prober) takeEcho(b []byte, at time.Time) {
	if len(b) < echoLen {
		p.ignored()
		return
	}
	p.answered(binary.BigEndian.Uint16(b), netip.Addr{}, b[2:echoLen], at)
}
