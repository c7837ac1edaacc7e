// Package discovery finds the paths to the gateways of other clusters: which of a
// gateway's addresses answers, whether the path has an address translation, how large a
// packet it carries, and the address at which other gateways see this one. It has the
// sockets, the clocks and the memory. The messages, and which of them to believe, are in
// package cable/natdiscovery; the choice of cables is not made here.
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
	"subctl/internal/alarm"
	"subctl/internal/wake"
)

// Datagrams is a UDP socket that tells which of the node's addresses a datagram was sent
// to, and whose datagrams are never fragmented.
type Datagrams interface {
	Receive(b []byte) (n int, from netip.AddrPort, to netip.Addr, err error)
	Send(b []byte, from netip.Addr, to netip.AddrPort) error
	Close() error
}

// The timing of the search for the path to a remote gateway.
const (
	askEvery  = 300 * time.Millisecond // between questions to an address that has not answered
	askFor    = 3 * time.Second        // the length of a search; then the best address that has answered is used
	betterIn  = 300 * time.Millisecond // the wait for a preferred address after another one has answered
	lookEvery = time.Minute            // between searches, as paths change
	// to the next search after a change, doubled each time: the other gateway may learn of this one
	// later
	lookFirst = time.Second
	lookAgain = 10 * time.Second // at least, between searches for a gateway whose cable is broken
	lostAfter = 2                // searches in a row without an answer: agents restart
	relisten  = 10 * time.Second // to the next attempt to open the port
	readAgain = time.Second      // after an error of the socket, to keep the log short
)

// The rates, per second, and the bursts of answers. The search for the MTU of a path asks
// a few hundred questions.
const (
	answersToPeer   = 500
	answersToOthers = 2000 // together, so that they do not use up the rate of a peer
)

// A Finder finds the paths to the gateways of other clusters, and answers theirs: see
// package natdiscovery. Its port is open only while there are gateways to search for.
//
// A path stays as it is until another one is found. A gateway that does not answer is no
// reason to give up a path on which a cable may be working.
type Finder struct {
	listen  func(ctx context.Context, port int) (Datagrams, error)
	log     *slog.Logger
	trigger func() // called when a Path changed
	wake    wake.Signal

	mu     sync.Mutex
	search Search
	known  map[string]*known // by cable name
	anyOf  map[string]string // cable name of one of the known gateways of each cluster
	asked  map[uint64]*question
	others *rate.Limiter
}

// New returns a Finder that opens its socket with listen once it is started. It calls
// trigger when a Path has changed.
func New(listen func(context.Context, int) (Datagrams, error), log *slog.Logger, trigger func()) *Finder {
	return &Finder{
		listen:  listen,
		log:     log,
		trigger: trigger,
		wake:    wake.NewSignal(),
		known:   map[string]*known{},
		asked:   map[uint64]*question{},
		others:  rate.NewLimiter(answersToOthers, answersToOthers),
	}
}

// Search is the input of a Finder.
type Search struct {
	Local cable.Local
	Own   cable.Networks // of this cluster
	Peers []cable.Peer   // to search for; none ends the search
	// Cables are the existing ones: packets to the networks behind them are routed into
	// them, so no gateway is searched for in these networks.
	Cables []cable.Cable
}

// Set sets what to search for from now on.
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
			d.known[p.Name] = &known{
				peer:    p,
				port:    port,
				key:     d.pairKey(p),
				again:   wake.NewSignal(),
				limiter: rate.NewLimiter(answersToPeer, answersToPeer),
			}
			continue
		}
		if moved || k.port != port || k.peer.Cluster != p.Cluster || k.peer.PrivateIP != p.PrivateIP ||
			k.peer.PublicIP != p.PublicIP ||
			k.peer.PublicKey != p.PublicKey {
			if to := k.path.Address; !natdiscovery.Announced(p.Gateway, to) && to != k.learned.Addr() {
				k.path = natdiscovery.Path{}
			}
			k.key = d.pairKey(p)
			k.calm = 0
			k.again.Send()
		}
		k.peer = p
		k.port = port
	}
	d.anyOf = map[string]string{}
	for _, p := range s.Peers {
		d.anyOf[p.Cluster] = p.Name
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

// Again searches once more for a gateway whose cable is broken.
func (d *Finder) Again(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if k := d.known[name]; k != nil && time.Since(k.looked) > lookAgain {
		k.again.Send()
	}
}

// pairKey returns the key that only this cluster and the peer's cluster have; the zero Key if
// they share none yet.
func (d *Finder) pairKey(p cable.Peer) natdiscovery.Key {
	key, err := d.search.Local.Keys.Pair(p.Cluster, p.PublicKey, natdiscovery.KeyPurpose)
	if err != nil {
		d.log.Debug("looking for a gateway without authentication", "cable", p.Name, "err", err)
	}
	return key
}

// Start searches and answers until ctx is done.
func (d *Finder) Start(ctx context.Context) error {
	var failed alarm.Alarm
	for ctx.Err() == nil {
		if !d.hasTargets() {
			select {
			case <-ctx.Done():
			case <-d.wake:
			}
			continue
		}
		conn, err := d.listen(ctx, dataplane.NATDiscoveryPort)
		failed.Report(d.log, slog.LevelWarn, "looking for the paths to other gateways", err)
		if err != nil {
			d.recordFailure(err)
			_ = wake.After(ctx, relisten)
			continue
		}
		d.serve(ctx, conn)
	}
	return nil
}

func (d *Finder) hasTargets() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.known) > 0
}

// recordFailure records why no path can be found. Paths that were found before stay.
func (d *Finder) recordFailure(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range d.known {
		k.path.Done = true
		k.path.Attempts = []string{err.Error()}
	}
	d.trigger()
}

// serve uses a socket until there are no gateways to search for.
func (d *Finder) serve(ctx context.Context, conn Datagrams) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer conn.Close()
	defer cancel()
	all.Go(func() { d.receive(ctx, conn) })
	for d.hasTargets() {
		d.mu.Lock()
		for _, k := range d.known {
			if k.stop == nil {
				var own context.Context
				own, k.stop = context.WithCancel(ctx)
				all.Go(func() { d.searchRepeatedly(own, conn, k) })
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

// whyBarred returns why an address must not be used, or an empty string: packets to an
// address in a network behind a cable are routed into that cable. Only the networks of
// connected clusters bar addresses.
func (d *Finder) whyBarred(a netip.Addr) string {
	for _, c := range d.search.Cables {
		for _, n := range c.Subnets {
			if n.Contains(a) {
				return fmt.Sprintf("it is in %v of cluster %s", n, c.Cluster)
			}
		}
	}
	return ""
}
