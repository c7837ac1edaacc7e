// Package probe pings the addresses of a plan: the other ends of cables by ICMP and, where packets
// must find another way within a second, by echoes that the other node's kernel forwards back. It
// is a part beside the loop of an agent: see package parts.
package probe

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/internal/wake"
)

const (
	// eagerly is the time between pings of a target that is Eager.
	eagerly = 200 * time.Millisecond
	// eagerFor is the number of unanswered pings in a row after which a target that is Eager
	// is pinged less often. A gateway that does not answer for so long may not answer for
	// days, and there may be thousands.
	eagerFor = 100
	// Every so many of these pings in a row, the time to the next is longer, for paths on which an
	// answer takes longer than eagerly: only the last ping can be answered.
	patientEvery = 5
	patiently    = time.Second
	// dueTogether has targets with the same interval pinged at the same time if they are due
	// within that part of it, and from then on in step: what an idle agent costs is mostly
	// that it wakes up.
	together = 2
	// idlePause is the time between looks for targets while there are none; new targets do
	// not wait for it.
	idlePause = time.Hour
)

// Prober pings all targets over one socket. With a socket for each target, as in ping
// libraries, the kernel would deliver every answer to every socket: a million deliveries
// a second with a thousand clusters.
type Prober struct {
	log      *slog.Logger
	changed  func() // called when a status changed
	down     func() // called before that if a target that is Fast is down
	ignored  func() // called when an answer is ignored
	listen   func(ctx context.Context, port, size int) (Echoes, error)
	arrivals func(conn syscall.Conn, size int) (Arrivals, error)
	drains   []func() // each takes what has arrived on a socket; only Start's goroutine uses them
	wake     wake.Signal

	mu      sync.Mutex
	probes  role.Probes
	pings   map[string]*pinged
	byOrder map[uint16]sentTo // by sequence number, which is used again after 65,536 probes
	wanted  time.Time         // when the prober wanted to look at its targets again
	awaited time.Time         // when the first answer of a target that is Fast is late
}

// sentTo identifies a probe that can still be answered.
type sentTo struct {
	name  string // of the target
	nonce [16]byte
}

// Options are the settings of a prober; all but Log and Trigger may be nil.
type Options struct {
	Log *slog.Logger
	// Trigger is called when the status of a target has changed.
	Trigger func()
	// Reroute is called before that if a target that is Fast is down.
	Reroute func()
	// Ignored is called when an answer to a probe was ignored.
	Ignored func()
	// ListenEchoes opens a socket for echoes to a UDP port, which reads size bytes of each; nil if
	// there are none.
	ListenEchoes func(ctx context.Context, port, size int) (Echoes, error)
	// NewArrivals reads size bytes of each packet from a socket. If it is nil, a packet arrives
	// when the agent reads it.
	NewArrivals func(conn syscall.Conn, size int) (Arrivals, error)
}

// New returns a part that pings. It starts nothing.
func New(o Options) *Prober {
	ignored := o.Ignored
	if ignored == nil {
		ignored = func() {}
	}
	down := o.Reroute
	if down == nil {
		down = func() {}
	}
	arrivals := o.NewArrivals
	if arrivals == nil {
		arrivals = newReadings
	}
	return &Prober{
		log:      o.Log,
		changed:  o.Trigger,
		down:     down,
		ignored:  ignored,
		listen:   o.ListenEchoes,
		arrivals: arrivals,
		wake:     wake.NewSignal(),
		pings:    map[string]*pinged{},
		byOrder:  map[uint16]sentTo{},
	}
}

// Observe implements parts.Observer.
func (p *Prober) Observe(s *role.Snapshot) error {
	p.Refresh(s)
	return nil
}

// Refresh implements parts.Prober.
func (p *Prober) Refresh(s *role.Snapshot) { s.Health = p.health() }

// Act implements parts.Actor: it pings what the plan asks for. The targets of cables that the
// node does not hold stay as they are; and all do while there is no plan.
func (p *Prober) Act(_ role.Snapshot, plan role.Plan, out *role.Outcome) {
	if plan.Decisions != nil {
		p.setTargets(plan.Probes, out.Broken)
	}
	out.Health = p.health()
}

// setTargets replaces the targets, except the targets of broken cables. What is known about
// targets that stay is kept.
func (p *Prober) setTargets(probes role.Probes, broken map[string]error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	targets := map[string]role.Target{}
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
			for _, a := range old.outstanding() {
				p.forget(a)
			}
			delete(p.pings, name)
		}
	}
	for name, t := range probes.Targets {
		if p.pings[name] == nil {
			p.pings[name] = newPinged(t, probes.Known[name])
			p.wake.Send()
		}
	}
	every := probes.FastEvery()
	for _, g := range p.pings {
		g.fast.every = every
	}
}

// idle reports whether there are no targets.
func (p *Prober) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pings) == 0
}

// health returns what is known of each target that was pinged at least once.
func (p *Prober) health() map[string]role.Health {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[string]role.Health, len(p.pings))
	for name, g := range p.pings {
		if g.started {
			out[name] = g.health
		}
	}
	return out
}

// Start pings until ctx is done. It needs CAP_NET_RAW. Before the first target there is no
// socket: it would receive, and wake the agent for, the answers to the pings of others.
func (p *Prober) Start(ctx context.Context) error {
	for p.idle() {
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
		}
	}
	pings, err := listenPings(ctx)
	if err != nil {
		return err
	}
	defer pings.Close()
	answers, err := p.arrivals(pings.PacketConn.(syscall.Conn), pongLen)
	if err != nil {
		return fmt.Errorf("reading from the ICMP socket: %w", err)
	}
	p.drains = []func(){func() { answers.Drain(p.takePong(pings)) }}
	go p.receive(ctx, "ping", answers, p.takePong(pings))
	var echoes echoSocket
	defer echoes.close()
	send := func(t role.Target, a asked) error {
		if a.kind != pinging {
			return echoes.send(ctx, p, t, a)
		}
		return pings.send(t, a)
	}
	next := uint16(0)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(p.sendDue(send, &next))
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-p.wake:
		}
	}
}

// interval returns the time between the pings of a target that is not Fast.
func (p *Prober) interval(g *pinged) time.Duration {
	switch {
	case !g.target.Eager || g.lost >= eagerFor:
		return p.probes.Pause(g.health.Status == submarinerv1.Connected, g.lost)
	case g.lost%patientEvery == patientEvery-1:
		return patiently
	}
	return eagerly
}
