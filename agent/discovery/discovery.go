// Package discovery finds out how to reach the gateways of other clusters, while an
// agent goes on: which of a gateway's addresses answers, whether it is translated on
// the way, how large a packet gets through, and as what address others see this
// gateway. What is said and when to believe it is in package natdiscovery; here are the
// sockets, the clocks and what is remembered.
package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/cable/natdiscovery"
	"subctl/dataplane"
	"subctl/internal/wake"
)

// Datagrams is a UDP socket that knows to which of the node's addresses a datagram
// came, and whose datagrams are never fragmented.
type Datagrams interface {
	Receive(b []byte) (n int, from netip.AddrPort, to netip.Addr, err error)
	Send(b []byte, from netip.Addr, to netip.AddrPort) error
	Close() error
}

// How the path to a remote gateway is looked for.
const (
	askEvery  = 300 * time.Millisecond // at each address that has not answered
	askFor    = 3 * time.Second        // then what has answered counts
	betterIn  = 300 * time.Millisecond // after an answer, for one from a preferred address
	lookEvery = time.Minute            // anew: what was found may change
	lookFirst = time.Second            // after news, and then after twice as long each time: the other side may hear of us later
	lookAgain = 10 * time.Second       // at the earliest where a cable is broken
	relisten  = 10 * time.Second       // where the port could not be had
	readAgain = time.Second            // where the socket has an error, so that the log is not filled with it
)

// How many questions a second are answered, with as many at once: each path takes a
// few hundred while its MTU is looked for.
const (
	answersToPeer   = 500
	answersToOthers = 2000 // all together, so that they cannot use up what is for a peer
)

// A Finder finds out how to reach the other clusters' gateways, and lets them find
// out how to reach this one: see package natdiscovery. It works while there are
// gateways to look for, and has the port open no longer than that.
//
// What is found stays until something else is: that nobody answers is no reason to
// give up a path on which a cable may be working.
type Finder struct {
	listen func(ctx context.Context, port int) (Datagrams, error)
	log    *slog.Logger
	nudge  func() // told when a Path changed
	wake   wake.Signal

	mu     sync.Mutex
	search Search
	known  map[string]*known // by cable name
	asked  map[uint64]*question
	others *rate.Limiter
}

// New makes a Finder that listens by listen, once it is started. nudge is called when a
// Path has changed.
func New(listen func(context.Context, int) (Datagrams, error), log *slog.Logger, nudge func()) *Finder {
	return &Finder{
		listen: listen, log: log, nudge: nudge, wake: wake.NewSignal(),
		known: map[string]*known{}, asked: map[uint64]*question{}, others: rate.NewLimiter(answersToOthers, answersToOthers),
	}
}

// Search is what a Finder works on.
type Search struct {
	Local cable.Local
	Own   cable.Networks // of this cluster
	Peers []cable.Peer   // to look for; none ends it
	// Cables are those there are: packets to what is behind their other ends would be
	// routed into them.
	Cables []cable.Cable
}

// Set says what to work on from now on.
func (d *Finder) Set(s Search) {
	d.mu.Lock()
	defer d.mu.Unlock()
	moved := d.search.Local.PrivateIP != s.Local.PrivateIP
	d.search = s
	gone := map[string]bool{}
	for name := range d.known {
		gone[name] = true
	}
	for _, p := range s.Peers {
		delete(gone, p.Name)
		port, err := p.Port(submarinerv1.BackendNATDiscoveryPort, dataplane.NATDiscoveryPort)
		if err != nil {
			port = dataplane.NATDiscoveryPort
		}
		k := d.known[p.Name]
		if k == nil {
			d.known[p.Name] = &known{peer: p, port: port, key: d.pair(p), again: wake.NewSignal(), limiter: rate.NewLimiter(answersToPeer, answersToPeer)}
			continue
		}
		if moved || k.port != port || k.peer.Cluster != p.Cluster || k.peer.PrivateIP != p.PrivateIP || k.peer.PublicIP != p.PublicIP || k.peer.PublicKey != p.PublicKey {
			if to := k.path.Address; !natdiscovery.Announced(p.Gateway, to) && to != k.learned.Addr() {
				k.path = natdiscovery.Path{}
			}
			k.key, k.calm = d.pair(p), 0
			k.again.Send()
		}
		k.peer, k.port = p, port
	}
	for name := range gone {
		if k := d.known[name]; k.stop != nil {
			k.stop()
		}
		delete(d.known, name)
	}
	d.wake.Send()
}

// Paths returns what is known of the path to each gateway, by cable name.
func (d *Finder) Paths() map[string]natdiscovery.Path {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make(map[string]natdiscovery.Path, len(d.known))
	for name, k := range d.known {
		out[name] = k.path
	}
	return out
}

// Again looks anew for a gateway whose cable is broken.
func (d *Finder) Again(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if k := d.known[name]; k != nil && time.Since(k.looked) > lookAgain {
		k.again.Send()
	}
}

// pair is the key that only this cluster and the peer's have; the zero Key if the two
// share none, or not yet.
func (d *Finder) pair(p cable.Peer) natdiscovery.Key {
	key, err := d.search.Local.Keys.Pair(p.Cluster, p.PublicKey, natdiscovery.KeyPurpose)
	if err != nil {
		d.log.Debug("looking for a gateway without authentication", "cable", p.Name, "err", err)
	}
	return key
}

// Start works until ctx is done.
func (d *Finder) Start(ctx context.Context) error {
	for ctx.Err() == nil {
		if !d.wanted() {
			select {
			case <-ctx.Done():
			case <-d.wake:
			}
			continue
		}
		conn, err := d.listen(ctx, dataplane.NATDiscoveryPort)
		if err != nil {
			d.log.Warn("looking for the paths to other gateways", "err", err)
			d.giveUp(err)
			_ = wake.After(ctx, relisten)
			continue
		}
		d.serve(ctx, conn)
	}
	return nil
}

func (d *Finder) wanted() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.known) > 0
}

// giveUp says why nothing can be found out. What was found before stays.
func (d *Finder) giveUp(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range d.known {
		k.path.Done, k.path.Attempts = true, []string{err.Error()}
	}
	d.nudge()
}

// serve works until there is nobody to look for.
func (d *Finder) serve(ctx context.Context, conn Datagrams) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer conn.Close()
	defer cancel()
	all.Go(func() { d.receive(ctx, conn) })
	for d.wanted() {
		d.mu.Lock()
		for _, k := range d.known {
			if k.stop == nil {
				var own context.Context
				own, k.stop = context.WithCancel(ctx)
				all.Go(func() { d.follow(own, conn, k) })
			}
		}
		d.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-d.wake:
		}
	}
}

// barred says why an address must not be used: packets to it would be routed into the
// cable of whoever announces a network around it. Who has no cable bars nothing.
func (d *Finder) barred(a netip.Addr) string {
	for _, c := range d.search.Cables {
		for _, n := range c.Subnets {
			if n.Contains(a) {
				return fmt.Sprintf("it is in %v of cluster %s", n, c.Cluster)
			}
		}
	}
	return ""
}
