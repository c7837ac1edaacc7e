package probe

import (
	"bytes"
	"net/netip"
	"slices"
	"time"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
)

// answered takes an answer to the last ping of a target, or to one of the last few probes if it is
// Fast. A later answer, one from another address, or one of somebody who has not received the
// probe, is ignored: a pod with NET_RAW can send any answer to its node. from is the zero Addr for
// an echo, which comes from the node itself. An answer that seems to have arrived before the probe
// was sent, as the clock was set in between, arrived just now.
func (p *Prober) answered(seq uint16, from netip.Addr, data []byte, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.postponeLook()
	g := p.pings[p.byOrder[seq].name]
	if g == nil {
		p.ignored()
		return
	}
	open := g.outstanding()
	i := slices.IndexFunc(open, func(a asked) bool { return a.seq == seq && bytes.Equal(data, a.nonce[:]) })
	if i < 0 || (open[i].kind == pinging) != from.IsValid() || from.IsValid() && from != g.target.IP {
		p.ignored()
		return
	}
	if at.Before(open[i].sent) {
		at = time.Now()
	}
	if g.target.Fast {
		if g.advanceLargeEchoes(open[i], at) {
			p.wake.Send()
		}
		if g.answeredFast(open[i], at, p.forget) {
			p.changed()
		}
		return
	}
	g.health.RTT.Add(at.Sub(open[i].sent))
	p.forget(open[i])
	g.asked = nil
	g.waiting = false
	g.lost = 0
	if g.health.Status != submarinerv1.Connected {
		g.health.Status = submarinerv1.Connected
		g.health.Message = ""
		p.changed()
	}
}

// postponeLook puts off the prober's next look at its targets if it was for an answer that is not
// missing any more: it would find none late, and most of what an idle agent costs is that it wakes
// up.
func (p *Prober) postponeLook() {
	if len(p.byOrder) == 0 || len(p.byOrder) <= fewAwaited && p.wanted.Equal(p.awaited) && p.allFarLate() {
		p.wake.Send()
	}
}

// allFarLate reports whether the answers that are missing are late much later than the one for
// which the prober wants to look: those from targets that are nearly as close arrive before that.
func (p *Prober) allFarLate() bool {
	at := p.firstAwaited()
	return at.IsZero() || at.Sub(p.awaited) >= role.FastDoubt
}

// fewAwaited is the number of missing answers up to which an answer may put off the next look. With
// more, the looks would cost more than they save.
const fewAwaited = 16

// firstAwaited returns when the first missing answer of a target that is Fast is late; the zero
// time if none is missing.
func (p *Prober) firstAwaited() (at time.Time) {
	for _, to := range p.byOrder {
		if g := p.pings[to.name]; g != nil && g.target.Fast {
			at = earlier(at, g.awaited())
		}
	}
	return at
}
