package probe

import (
	"fmt"
	"math/rand/v2"
	"time"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
)

// duePing is a probe whose time has come.
type duePing struct {
	name   string
	target role.Target
	asked
}

// sendDue pings every target whose time has come, and returns when to do so again. Answers that
// have arrived are read before others are judged to be missing: the agent itself may have been
// late. Answers are due by the time before, and probes are sent at the time after.
func (p *Prober) sendDue(send func(role.Target, asked) error, next *uint16) time.Duration {
	now := time.Now()
	if p.mayMissAnswer(now) {
		for _, drain := range p.drains { // not under the lock, which whoever takes an answer needs
			drain()
		}
	}
	all, wait := p.takeDue(now, next)
	for _, d := range all { // not under the lock, for which the answer would have to wait
		if err := send(d.target, d.asked); err != nil {
			p.log.Debug("ping", "cable", d.name, "err", err)
		}
	}
	return wait
}

// takeDue returns the probes whose time has come, with the sequence numbers that follow next, and
// the time until the next ones. It judges the targets that have not answered by now, the time
// before what had arrived was read.
func (p *Prober) takeDue(now time.Time, next *uint16) (all []duePing, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	late := !p.wanted.IsZero() && now.Sub(p.wanted) > stalled
	changed := p.expire(now, late)
	number := func() uint16 {
		*next++
		return *next
	}
	sent := time.Now()
	soon, step := p.dueTogether(now)
	sooner := rand.Float64() / 10 // as in jittered, but the same for all, which stay in step
	wait = idlePause
	var awaited time.Time
	for name, g := range p.pings {
		give := func(a asked) {
			p.byOrder[a.seq] = sentTo{name, a.nonce}
			g.started = true
			all = append(all, duePing{name, g.target, a})
		}
		if g.target.Fast {
			for k := range kinds {
				if g.dueBy(k, now, soon) {
					give(g.askFast(k, number(), sent, p.forget))
				}
			}
			wait = min(wait, g.next().Sub(sent))
			awaited = earlier(awaited, g.awaited())
			continue
		}
		interval := p.interval(g)
		if left := g.due.Sub(now); left > 0 && !step[interval] || left > interval/together {
			wait = min(wait, left)
			continue
		}
		if g.waiting {
			g.lost++
			changed = p.countLost(g) || changed
		}
		if !g.target.Eager {
			interval = p.interval(g)
		}
		pause := interval - time.Duration(sooner*float64(interval))
		g.due = sent.Add(pause)
		wait = min(wait, pause)
		give(g.ask(number(), sent, p.forget))
	}
	if changed {
		p.changed()
	}
	p.wanted = sent.Add(wait)
	p.awaited = awaited
	return all, wait
}

// mayMissAnswer reports whether an answer of a target that is Fast may be late: one that the prober
// has not looked for yet.
func (p *Prober) mayMissAnswer(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.awaited.IsZero() && !p.awaited.After(now)
}

// expire counts what targets that are Fast have not answered in time, and reports whether one of
// them is down now and was not before. late is whether the prober looks later than it wanted.
func (p *Prober) expire(now time.Time, late bool) (changed bool) {
	for _, g := range p.pings {
		if g.target.Fast && g.expire(now, late) {
			changed = true
			p.down()
		}
	}
	return changed
}

// dueTogether returns which targets are pinged with those whose time has come: the ones that are
// Fast and due by soon, and the others with one of the intervals in step.
func (p *Prober) dueTogether(now time.Time) (soon time.Time, step map[time.Duration]bool) {
	soon = now
	step = map[time.Duration]bool{}
	latest := now
	for _, g := range p.pings {
		if g.target.Fast && (g.isRoutineDue(pinging, now) || g.isRoutineDue(echoing, now)) {
			soon = now.Add(role.FastInterval / together)
			latest = now.Add(role.FastInterval)
		}
	}
	for _, g := range p.pings {
		if !g.target.Fast && !g.due.After(latest) {
			step[p.interval(g)] = true
		}
	}
	return soon, step
}

// forget is called with a probe that can no longer be answered. A newer probe with the same
// sequence number still can.
func (p *Prober) forget(a asked) {
	if p.byOrder[a.seq].nonce == a.nonce {
		delete(p.byOrder, a.seq)
	}
}

// countLost declares a target that is not Fast broken when too many pings in a row stayed
// unanswered, and reports whether it was not broken before.
func (p *Prober) countLost(g *pinged) bool {
	if g.lost <= p.probes.MaxLost || g.health.Status == submarinerv1.ConnectionError {
		return false
	}
	g.health.Status = submarinerv1.ConnectionError
	g.health.Message = fmt.Sprintf("Failed to successfully ping the remote endpoint IP %q", g.target.IP) // upstream's
	return true
}
