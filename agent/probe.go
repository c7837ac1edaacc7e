package agent

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/wake"
)

// Probes says whom to ping.
type Probes struct {
	Interval time.Duration // between pings of one target
	MaxLost  int           // so many pings in a row may stay unanswered
	Targets  map[string]Target
}

// Target is an address to ping and the address to ping it from.
type Target struct {
	IP, From netip.Addr
	// Eager has it pinged every eagerly: somebody waits for the answer.
	Eager bool
}

const eagerly = 200 * time.Millisecond

// Health is what the pings say about one cable.
type Health struct {
	Status  submarinerv1.ConnectionStatus
	Message string
	RTT     RTT
}

// RTT sums up round trip times. The zero value has seen none.
type RTT struct {
	n                    int
	last, min, max       time.Duration
	mean, squaredFromAvg float64 // nanoseconds; Welford's algorithm
}

func (r *RTT) add(d time.Duration) {
	r.n++
	r.last = d
	if r.n == 1 || d < r.min {
		r.min = d
	}
	r.max = max(r.max, d)
	delta := float64(d) - r.mean
	r.mean += delta / float64(r.n)
	r.squaredFromAvg += delta * (float64(d) - r.mean)
}

// strings is the RTT as objects hold it; nil if there is none.
func (r RTT) strings() *submarinerv1.LatencyRTT {
	if r.n == 0 {
		return nil
	}
	return &submarinerv1.LatencyRTT{
		Last: r.last.String(), Min: r.min.String(), Max: r.max.String(),
		Average: time.Duration(r.mean).String(),
		StdDev:  time.Duration(math.Sqrt(r.squaredFromAvg / float64(r.n))).String(),
	}
}

// prober pings all targets over one socket. A socket a target, as ping libraries
// have it, would hand every answer to every one of them: a million deliveries a
// second with a thousand clusters.
type prober struct {
	log     *slog.Logger
	changed func() // told when a status changed
	wake    wake.Signal

	mu      sync.Mutex
	probes  Probes
	pings   map[string]*pinged
	byOrder map[uint16]string // ICMP sequence numbers on the way, to cable names
}

type pinged struct {
	target  Target
	lost    int       // in a row
	seq     uint16    // of the last ping
	sent    time.Time // when it was sent; zero if it was answered
	due     time.Time // when to ping next
	health  Health
	started bool
}

func newProber(log *slog.Logger, changed func()) *prober {
	return &prober{log: log, changed: changed, wake: wake.NewSignal(), pings: map[string]*pinged{}, byOrder: map[uint16]string{}}
}

// set replaces the targets. What is known of those that stay is kept.
func (p *prober) set(probes Probes) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.probes = probes
	for name, old := range p.pings {
		if t, ok := probes.Targets[name]; !ok || t != old.target {
			delete(p.byOrder, old.seq)
			delete(p.pings, name)
		}
	}
	for name, t := range probes.Targets {
		if p.pings[name] == nil {
			p.pings[name] = &pinged{target: t, health: Health{Status: submarinerv1.Connecting, Message: "waiting for the first answer to a ping"}}
			p.wake.Send()
		}
	}
}

// health returns what is known of each cable that was pinged at least once.
func (p *prober) health() map[string]Health {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[string]Health, len(p.pings))
	for name, g := range p.pings {
		if g.started {
			out[name] = g.health
		}
	}
	return out
}

// Start pings until ctx is done. It needs CAP_NET_RAW.
func (p *prober) Start(ctx context.Context) error {
	conn, err := icmp.ListenPacket("ip4:icmp", "0.0.0.0")
	if err != nil {
		return fmt.Errorf("opening an ICMP socket for health checks: %w", err)
	}
	defer conn.Close()
	var id [2]byte
	rand.Read(id[:]) // never fails
	go p.receive(ctx, conn, int(binary.BigEndian.Uint16(id[:])))
	next := uint16(0)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-p.wake:
		}
		timer.Reset(p.sendDue(conn, int(binary.BigEndian.Uint16(id[:])), &next))
	}
}

// sendDue pings every target whose time has come, and returns when to do so again.
func (p *prober) sendDue(conn *icmp.PacketConn, id int, next *uint16) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed, now, wait := false, time.Now(), time.Second
	for name, g := range p.pings {
		if left := g.due.Sub(now); left > 0 {
			wait = min(wait, left)
			continue
		}
		if !g.sent.IsZero() {
			g.lost++
			changed = p.judge(g) || changed
		}
		delete(p.byOrder, g.seq)
		*next++
		g.seq, g.sent, g.started = *next, now, true
		p.byOrder[g.seq] = name
		interval := p.probes.Interval
		if g.target.Eager {
			interval = eagerly
		}
		g.due, wait = now.Add(interval), min(wait, interval)
		if err := ping(conn, id, g); err != nil {
			p.log.Debug("ping", "cable", name, "err", err)
		}
	}
	if changed {
		p.changed()
	}
	return wait
}

// judge declares a cable broken when too many pings in a row stayed unanswered,
// and says whether that is news.
func (p *prober) judge(g *pinged) bool {
	if g.lost <= p.probes.MaxLost || g.health.Status == submarinerv1.ConnectionError {
		return false
	}
	g.health.Status = submarinerv1.ConnectionError
	g.health.Message = fmt.Sprintf("Failed to successfully ping the remote endpoint IP %q", g.target.IP)
	return true
}

func ping(conn *icmp.PacketConn, id int, g *pinged) error {
	b, err := (&icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: id, Seq: int(g.seq), Data: []byte("subctl health check")}}).Marshal(nil)
	if err != nil {
		return err
	}
	from := &ipv4.ControlMessage{Src: g.target.From.AsSlice()}
	_, err = conn.IPv4PacketConn().WriteTo(b, from, &net.IPAddr{IP: g.target.IP.AsSlice()})
	return err
}

// receive takes answers until the socket is closed.
func (p *prober) receive(ctx context.Context, conn *icmp.PacketConn, id int) {
	buf := make([]byte, 1500)
	for ctx.Err() == nil {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			if ctx.Err() == nil {
				p.log.Warn("reading answers to health checks", "err", err)
				time.Sleep(time.Second)
			}
			continue
		}
		now := time.Now()
		m, err := icmp.ParseMessage(1 /* ICMP for IPv4 */, buf[:n])
		if err != nil || m.Type != ipv4.ICMPTypeEchoReply {
			continue
		}
		echo, ok := m.Body.(*icmp.Echo)
		addr, isIP := from.(*net.IPAddr)
		if !ok || !isIP || echo.ID != id {
			continue
		}
		src, _ := netip.AddrFromSlice(addr.IP)
		p.answered(uint16(echo.Seq), src.Unmap(), now)
	}
}

// answered takes an answer to the last ping of a target; a late one, or one from
// somebody else, is none.
func (p *prober) answered(seq uint16, from netip.Addr, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.pings[p.byOrder[seq]]
	if g == nil || g.seq != seq || g.target.IP != from || g.sent.IsZero() {
		return
	}
	g.health.RTT.add(now.Sub(g.sent))
	g.sent, g.lost = time.Time{}, 0
	if g.health.Status != submarinerv1.Connected {
		g.health.Status, g.health.Message = submarinerv1.Connected, ""
		p.changed()
	}
}
