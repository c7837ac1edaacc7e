package discovery

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"time"

	"golang.org/x/time/rate"

	"subctl/cable"
	"subctl/cable/natdiscovery"
	"subctl/internal/wake"
)

// known is a remote gateway and what is known of the path to it.
type known struct {
	peer    cable.Peer
	port    int // of its discovery
	path    natdiscovery.Path
	key     natdiscovery.Key
	learned netip.AddrPort // where its authenticated questions come from, if not announced
	// seenAs is where it sees our questions come from, the zero Addr if they are not
	// translated; seen counts for how many looks in a row, and is 0 if it did not say so
	// with the pair's key.
	seenAs  netip.Addr
	seen    int
	limiter *rate.Limiter
	again   wake.Signal // has it looked for once more, at once or after the look that is under way
	looked  time.Time   // when the last look ended
	missed  bool        // nobody answered in it
	looks   int
	calm    time.Duration // for how long there was no news; 0 if there was
	stop    context.CancelFunc
}

// notice remembers where our questions are seen to come from.
func (k *known) notice(ip netip.Addr) {
	if ip != k.seenAs {
		k.seenAs, k.seen = ip, 0
	}
	k.seen++
}

// follow looks for one gateway, and again from time to time.
func (d *Finder) follow(ctx context.Context, conn Datagrams, k *known) {
	for ctx.Err() == nil {
		d.look(ctx, conn, k)
		d.mu.Lock()
		k.calm = min(max(lookFirst, 2*k.calm), lookEvery)
		pause := k.calm*9/10 + rand.N(k.calm/5) // 10 % more or less: not all at the same moment
		d.mu.Unlock()
		wait := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-k.again:
		case <-wait.C:
		}
		wait.Stop()
	}
}

// look looks for one gateway, and says so if there is news.
func (d *Finder) look(ctx context.Context, conn Datagrams, k *known) {
	r := d.newRound(conn, k)
	defer r.end()
	best, found := r.reach(ctx)
	if ctx.Err() != nil {
		return
	}
	d.conclude(k, func(p *natdiscovery.Path) {
		k.looks++
		k.missed = !found
		p.Done, p.Attempts = true, r.lines()
		if !found {
			return
		}
		if p.Address != best.To.Addr() {
			p.MTU = 0
		}
		p.Address, p.NAT, p.InboundOnly = best.To.Addr(), best.Translated, best.Kind == natdiscovery.Learned
		if best.Authentic {
			k.notice(best.SeenAs)
		}
	})
	if !found {
		return
	}
	if mtu := r.mtu(ctx, best); mtu != 0 {
		d.conclude(k, func(p *natdiscovery.Path) { p.MTU = mtu })
	}
}

// conclude changes what is known of a path, unless the Endpoint has become another
// meanwhile.
func (d *Finder) conclude(k *known, change func(*natdiscovery.Path)) {
	d.mu.Lock()
	was := k.path
	change(&k.path)
	if to := k.path.Address; to.IsValid() && !natdiscovery.Announced(k.peer.Gateway, to) && to != k.learned.Addr() {
		k.path = was
	}
	now := k.path
	k.looked = time.Now()
	d.mu.Unlock()
	was.Attempts = now.Attempts
	if now.Address != was.Address || now.NAT != was.NAT || now.InboundOnly != was.InboundOnly || now.MTU != was.MTU || now.Done != was.Done {
		d.log.Debug("path to a gateway", "cable", k.peer.Name, "address", now.Address, "nat", now.NAT, "mtu", now.MTU)
		d.nudge()
	}
}
