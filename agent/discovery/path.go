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
	learned netip.AddrPort // the source of its authentic questions, if that is not announced
	// seenAs is the source address at which it sees our questions; the zero Addr if they
	// are not translated. seen counts the searches in a row with that result, as far as
	// they were authentic.
	seenAs  netip.Addr
	seen    int
	limiter *rate.Limiter
	fresh   freshness
	again   wake.Signal   // starts a search, at once or after the one that is under way
	looked  time.Time     // when the last search ended
	missed  int           // searches in a row without an answer
	looks   int           // searches that ended
	calm    time.Duration // the last pause between searches; 0 after a change
	stop    context.CancelFunc
}

// recordMapping records the source address at which our questions are seen.
func (k *known) recordMapping(ip netip.Addr) {
	if ip != k.seenAs {
		k.seenAs = ip
		k.seen = 0
	}
	k.seen++
}

// searchRepeatedly searches for one gateway from time to time.
func (d *Finder) searchRepeatedly(ctx context.Context, conn Datagrams, k *known) {
	for ctx.Err() == nil {
		d.searchOnce(ctx, conn, k)
		d.mu.Lock()
		k.calm = min(max(lookFirst, 2*k.calm), lookEvery)
		if k.missed > 0 && k.path.Address.IsValid() && !k.path.Lost {
			k.calm = min(k.calm, lookAgain) // the second search tells
		}
		pause := k.calm*9/10 + rand.N(k.calm/5) // ±10 %, so that searches do not coincide
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

// searchOnce searches for one gateway once.
func (d *Finder) searchOnce(ctx context.Context, conn Datagrams, k *known) {
	r := d.newRound(conn, k)
	defer r.forgetQuestions()
	best, found := r.findAddress(ctx)
	if ctx.Err() != nil {
		return
	}
	d.storePath(k, func(p *natdiscovery.Path) {
		k.looks++
		p.Done = true
		p.Attempts = r.attemptTexts()
		if !found {
			k.missed++
			p.Lost = p.Address.IsValid() && k.missed >= lostAfter
			if r.onlyUnsigned() { // the gateway may be about to learn this cluster's key
				k.calm = 0
			}
			return
		}
		k.missed = 0
		p.Lost = false
		if p.Address != best.To.Addr() {
			p.MTU = 0
		}
		p.Address = best.To.Addr()
		p.NAT = best.Translated
		p.InboundOnly = best.Kind == natdiscovery.Learned
		if best.Authentic {
			k.recordMapping(best.SeenAs)
		}
	})
	if !found {
		return
	}
	if mtu := r.mtu(ctx, best); mtu != 0 {
		d.storePath(k, func(p *natdiscovery.Path) { p.MTU = mtu })
	}
}

// storePath changes what is known of a path, unless the gateway's Endpoint has changed
// meanwhile, and triggers the loop if the path is another one.
func (d *Finder) storePath(k *known, change func(*natdiscovery.Path)) {
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
	if now.Address != was.Address || now.NAT != was.NAT || now.InboundOnly != was.InboundOnly || now.MTU != was.MTU ||
		now.Done != was.Done || now.Lost != was.Lost {
		d.log.Debug("path to a gateway", "cable", k.peer.Name, "address", now.Address, "nat", now.NAT, "mtu", now.MTU)
		d.trigger()
	}
}
