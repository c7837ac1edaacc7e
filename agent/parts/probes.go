package parts

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"

	"subctl/agent/mesh"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/wake"
)

const (
	// eagerly is the time between pings of a target that is Eager.
	eagerly = 200 * time.Millisecond
	// eagerFor is how many pings in a row a target that is Eager gets so often. A gateway
	// that does not answer for so long may not answer for days, and there may be thousands.
	eagerFor = 100
	// Every so many of these pings in a row, the time to the next is longer, for paths on which an
	// answer takes longer than eagerly: only the last ping can be answered.
	patientEvery = 5
	patiently    = time.Second
	// together has targets with the same interval pinged at the same time if they are due
	// within that part of it, and from then on in step: what an idle agent costs is mostly
	// that it wakes up.
	together = 2
	// idlePause is the time between looks for targets while there are none; new targets do
	// not wait for it.
	idlePause = time.Hour
)

// prober pings all targets over one socket. With a socket for each target, as in ping
// libraries, the kernel would deliver every answer to every socket: a million deliveries
// a second with a thousand clusters.
type prober struct {
	log     *slog.Logger
	changed func() // called when a status changed
	wake    wake.Signal

	mu      sync.Mutex
	probes  mesh.Probes
	pings   map[string]*pinged
	byOrder map[uint16]string // probe names by ICMP sequence number, of unanswered pings
}

type pinged struct {
	target  mesh.Target
	lost    int       // in a row
	seq     uint16    // of the last ping
	nonce   [16]byte  // random, in the last ping: whoever has not received it cannot answer
	sent    time.Time // when it was sent; zero if it was answered
	due     time.Time // when to ping next
	health  mesh.Health
	started bool
}

func newProber(o Options) *prober {
	return &prober{log: o.Log, changed: o.Nudge, wake: wake.NewSignal(), pings: map[string]*pinged{}, byOrder: map[uint16]string{}}
}

// Observe implements Observer.
func (p *prober) Observe(s *mesh.Snapshot) error {
	s.Health = p.health()
	return nil
}

// Act implements Actor: it pings what the plan asks for. The targets of cables that the
// node does not hold stay as they are; and all do while there is no plan.
func (p *prober) Act(_ mesh.Snapshot, plan mesh.Plan, out *mesh.Outcome) {
	if plan.Mesh != nil {
		p.set(plan.Probes, out.Broken)
	}
	out.Health = p.health()
}

// set replaces the targets, except the targets of broken cables. What is known about
// targets that stay is kept.
func (p *prober) set(probes mesh.Probes, broken map[string]error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	targets := map[string]mesh.Target{}
	for name, t := range probes.Targets {
		if broken[name] == nil {
			targets[name] = t
		} else if old := p.pings[name]; old != nil {
			targets[name] = old.target
		}
	}
	probes.Targets, p.probes = targets, probes
	for name, old := range p.pings {
		if t, ok := probes.Targets[name]; !ok || t != old.target {
			delete(p.byOrder, old.seq)
			delete(p.pings, name)
		}
	}
	for name, t := range probes.Targets {
		if p.pings[name] == nil {
			p.pings[name] = &pinged{target: t, due: t.First, health: mesh.Health{Status: submarinerv1.Connecting, Message: "waiting for the first answer to a ping"}}
			p.wake.Send()
		}
	}
}

// idle reports whether there are no targets.
func (p *prober) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pings) == 0
}

// health returns what is known of each target that was pinged at least once.
func (p *prober) health() map[string]mesh.Health {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[string]mesh.Health, len(p.pings))
	for name, g := range p.pings {
		if g.started {
			out[name] = g.health
		}
	}
	return out
}

// Start pings until ctx is done. It needs CAP_NET_RAW. Before the first target there is no
// socket: it would receive, and wake the agent for, the answers to the pings of others.
func (p *prober) Start(ctx context.Context) error {
	for p.idle() {
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
		}
	}
	conn, err := icmp.ListenPacket("ip4:icmp", "0.0.0.0")
	if err != nil {
		return fmt.Errorf("opening an ICMP socket for health checks: %w", err)
	}
	defer conn.Close()
	// Without the filter every ping from elsewhere would wake the agent, too.
	var onlyReplies ipv4.ICMPFilter
	onlyReplies.SetAll(true)
	onlyReplies.Accept(ipv4.ICMPTypeEchoReply)
	if err := conn.IPv4PacketConn().SetICMPFilter(&onlyReplies); err != nil {
		return fmt.Errorf("setting the filter of the ICMP socket: %w", err)
	}
	var id [2]byte
	rand.Read(id[:]) // never fails
	go p.receive(ctx, conn, int(binary.BigEndian.Uint16(id[:])))
	send := func(g *pinged) error { return ping(conn, int(binary.BigEndian.Uint16(id[:])), g) }
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
		timer.Reset(p.sendDue(send, &next))
	}
}

// interval returns the time between the pings of a target.
func (p *prober) interval(g *pinged) time.Duration {
	switch {
	case !g.target.Eager || g.lost >= eagerFor:
		return p.probes.Pause(g.health.Status == submarinerv1.Connected, g.lost)
	case g.lost%patientEvery == patientEvery-1:
		return patiently
	}
	return eagerly
}

// sendDue pings every target whose time has come, and returns when to do so again.
func (p *prober) sendDue(send func(*pinged) error, next *uint16) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed, now, wait := false, time.Now(), idlePause
	due := map[time.Duration]bool{} // the intervals of targets whose time has come
	for _, g := range p.pings {
		if !g.due.After(now) {
			due[p.interval(g)] = true
		}
	}
	for name, g := range p.pings {
		interval := p.interval(g)
		if left := g.due.Sub(now); left > 0 && !due[interval] || left > interval/together {
			wait = min(wait, left)
			continue
		}
		if !g.sent.IsZero() {
			g.lost++
			changed = p.judge(g) || changed
		}
		if !g.target.Eager {
			interval = p.interval(g)
		}
		delete(p.byOrder, g.seq)
		*next++
		g.seq, g.sent, g.started = *next, now, true
		rand.Read(g.nonce[:]) // never fails
		p.byOrder[g.seq] = name
		g.due, wait = now.Add(interval), min(wait, interval)
		if err := send(g); err != nil {
			p.log.Debug("ping", "cable", name, "err", err)
		}
	}
	if changed {
		p.changed()
	}
	return wait
}

// judge declares a target broken when too many pings in a row stayed unanswered, and
// reports whether it was not broken before.
func (p *prober) judge(g *pinged) bool {
	if g.lost <= p.probes.MaxLost || g.health.Status == submarinerv1.ConnectionError {
		return false
	}
	g.health.Status = submarinerv1.ConnectionError
	g.health.Message = fmt.Sprintf("Failed to successfully ping the remote endpoint IP %q", g.target.IP)
	return true
}

func ping(conn *icmp.PacketConn, id int, g *pinged) error {
	b, err := (&icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: id, Seq: int(g.seq), Data: g.nonce[:]}}).Marshal(nil)
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
		p.answered(uint16(echo.Seq), src.Unmap(), echo.Data, now)
	}
}

// answered takes an answer to the last ping of a target. A late answer, one from another address, or
// one of somebody who has not received the ping, is ignored: a pod with NET_RAW can send any answer to
// its node.
func (p *prober) answered(seq uint16, from netip.Addr, data []byte, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.pings[p.byOrder[seq]]
	if g == nil || g.seq != seq || g.target.IP != from || g.sent.IsZero() || !bytes.Equal(data, g.nonce[:]) {
		return
	}
	g.health.RTT.Add(now.Sub(g.sent))
	g.sent, g.lost = time.Time{}, 0
	if g.health.Status != submarinerv1.Connected {
		g.health.Status, g.health.Message = submarinerv1.Connected, ""
		p.changed()
	}
}
