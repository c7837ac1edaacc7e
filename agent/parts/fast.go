package parts

import (
	"fmt"
	"math/rand/v2"
	"time"

	"subctl/agent/mesh"
	submarinerv1 "subctl/api/submariner/v1"
)

// A prober that looks at its targets later than stalled gives each missing answer grace, once. Whatever waits in the sockets has been read
// then, but where the whole machine has stood still, its kernel may have to take packets from the network yet.
const (
	stalled = 10 * time.Millisecond
	grace   = 5 * time.Millisecond
)

// forgetting is the part by which the longest round trip time becomes shorter with every answer: it halves in 4 s.
const forgetting = 64

// kind is a kind of probe to a target that is Fast.
type kind int

const (
	pinging kind = iota // a ping, which the other kernel answers
	echoing             // an echo, which the other kernel forwards back
	filling             // an echo of the size of the MTU
	kinds
)

// stream is the probes of one kind to a target that is Fast.
type stream struct {
	asked    []asked // not answered, oldest first
	lost     int     // in a row: not answered in time
	due      time.Time
	proven   bool      // answered once
	answered time.Time // last
}

// fast is the state of the probes to a target that is Fast.
type fast struct {
	streams [kinds]stream
	every   time.Duration // between two probes: see mesh.Probes.FastEvery
	longest time.Duration // the longest recent round trip time
	good    int           // answers in a row since the last probe that was not answered in time
}

// newFast returns what is known of a target whose first probe is due at a time.
func newFast(due time.Time) (f fast) {
	for k := range kinds {
		f.streams[k].due = due
	}
	return f
}

// decides reports whether probes of a kind decide whether the target is down: pings do until an echo has come back, as the
// other end may be older than echoes; and large echoes do once one has come back, as the MTU of the other end
// may be smaller.
func (f *fast) decides(k kind) bool {
	echo := f.streams[echoing].proven
	switch k {
	case pinging:
		return !echo
	case filling:
		return echo && f.streams[filling].proven
	}
	return echo
}

// sends reports whether probes of a kind are sent. Pings also tell why echoes do not come back.
func (g *pinged) sends(k kind) bool {
	switch echo := g.fast.streams[echoing]; k {
	case pinging:
		return !echo.proven || echo.lost > 0
	case filling:
		return echo.proven
	}
	return g.target.Echo != mesh.Echo{}
}

// patience returns how long to wait for an answer.
func (g *pinged) patience() time.Duration { return g.fast.longest + mesh.FastTimeout }

// pause returns the time to the next probe of a kind.
func (g *pinged) pause(k kind) time.Duration {
	s := g.fast.streams[k]
	switch usual := [kinds]time.Duration{g.fast.every, g.fast.every, g.fast.every * (mesh.FullInterval / mesh.FastInterval)}[k]; {
	case !g.fast.decides(k) && k == pinging:
		return g.pause(echoing)
	case !g.fast.decides(k) && k == echoing:
		return max(mesh.FastIdle, g.fast.every)
	case !g.fast.decides(k):
		return usual
	case s.lost > mesh.FastTired:
		return max(mesh.FastIdle, g.fast.every)
	case s.lost > 0 && g.health.Status == submarinerv1.Connected:
		return mesh.FastRetry
	default:
		return usual
	}
}

// usual reports whether a probe of a kind is due that is not sent in haste.
func (g *pinged) usual(k kind, now time.Time) bool {
	return g.dueBy(k, now, now) && g.pause(k) == g.fast.every
}

// dueBy reports whether a probe of a kind is due, or due soon and not sent in haste. A large echo goes with a small one, as most of what
// an idle agent costs is that it wakes up.
func (g *pinged) dueBy(k kind, now, soon time.Time) bool {
	if k == filling && soon.After(now) {
		soon = now.Add(g.fast.every)
	}
	at := g.fast.streams[k].due
	return g.sends(k) && (!at.After(now) || g.pause(k) >= mesh.FastInterval && !at.After(soon))
}

// missing reports whether an answer seems to be late.
func (g *pinged) missing(now time.Time) bool {
	for k := range kinds {
		for _, a := range g.fast.streams[k].asked {
			if !a.lost && !a.until.After(now) {
				return true
			}
		}
	}
	return false
}

// expire counts the probes that were not answered in time, and reports whether the target is down now and was not before.
// If the prober is late, it counts nothing and asks again.
func (g *pinged) expire(now time.Time, late bool) bool {
	for k := range kinds {
		s := &g.fast.streams[k]
		for i := range s.asked {
			a := &s.asked[i]
			switch {
			case a.lost || a.until.After(now):
				continue
			case late && !a.grace:
				a.until, a.grace = now.Add(grace), true
			default:
				a.lost = true
				s.lost++
			}
			if !g.fast.decides(k) {
				continue
			}
			if !a.lost || s.lost == 1 {
				s.due = now
			}
			if a.lost {
				g.fast.good = 0
			}
			if k == echoing && s.lost == 1 {
				g.fast.streams[pinging].due = now
			}
		}
	}
	by, why := g.fault(now)
	if why == "" || g.health.Status == submarinerv1.ConnectionError {
		return false
	}
	g.health.Status, g.health.Message, g.health.Since, g.health.By = submarinerv1.ConnectionError, why, now, by
	return true
}

// fault returns what has found that the target is down, and why it is; empty if it is not.
func (g *pinged) fault(now time.Time) (by, why string) {
	down := func(k kind) bool { return g.fast.decides(k) && g.fast.streams[k].lost >= mesh.FastLost }
	switch {
	case down(echoing) && now.Sub(g.fast.streams[pinging].answered) < mesh.FastLost*mesh.FastRetry:
		return "echo", fmt.Sprintf("%v answers pings, but forwards no packets: check the chains at the hook \"forward\" there, and net.ipv4.ip_forward", g.target.IP)
	case down(echoing):
		return "echo", unanswered(g.target)
	case down(pinging):
		return "ping", unanswered(g.target)
	case down(filling) && g.fast.streams[echoing].lost == 0:
		return "large echo", fmt.Sprintf("packets of %d bytes to %v and back are lost, although small ones are not: check the MTU of the path", g.target.Echo.MTU, g.target.IP)
	}
	return "", ""
}

// unanswered is the message about a target that does not answer.
func unanswered(t mesh.Target) string {
	return fmt.Sprintf("Failed to successfully ping the remote endpoint IP %q", t.IP)
}

// next returns when to look at the target again: when a probe is due, or the time of one is up.
func (g *pinged) next() (at time.Time) {
	sooner := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	for k := range kinds {
		if !g.sends(k) {
			continue
		}
		s := g.fast.streams[k]
		sooner(s.due)
		for _, a := range s.asked {
			if !a.lost {
				sooner(a.until)
			}
		}
	}
	return at
}

// askFast returns the next probe of a kind. forget is called with the probes that can no longer be answered.
func (g *pinged) askFast(k kind, seq uint16, now time.Time, forget func(asked)) asked {
	s := &g.fast.streams[k]
	for len(s.asked) >= underWay {
		forget(s.asked[0])
		s.asked = s.asked[1:]
	}
	a := newAsked(seq, now)
	a.kind, a.until = k, now.Add(g.patience())
	s.asked, s.due = append(s.asked, a), now.Add(jittered(g.pause(k)))
	return a
}

// jittered returns a time to the next probe that is up to a tenth shorter, at random, unless it is short already: the
// probes of many nodes do not stay in step, and nothing that happens at regular times happens to all of them (RFC 5880,
// section 6.8.7, which allows a quarter).
func jittered(pause time.Duration) time.Duration {
	if pause < mesh.FastInterval {
		return pause
	}
	return pause - rand.N(pause/10)
}

// answeredFast takes the answer to a probe, and reports whether the target is up now and was not before. An answer counts
// also if it is late: the path works.
func (g *pinged) answeredFast(a asked, now time.Time, forget func(asked)) bool {
	s, rtt := &g.fast.streams[a.kind], now.Sub(a.sent)
	g.fast.longest = max(rtt, g.fast.longest-g.fast.longest/forgetting)
	for len(s.asked) > 0 && s.asked[0].sent.Compare(a.sent) <= 0 {
		forget(s.asked[0])
		s.asked = s.asked[1:]
	}
	s.lost = 0
	for _, a := range s.asked {
		if a.lost {
			s.lost++
		}
	}
	s.proven, s.answered = true, now
	if a.kind == filling || !g.fast.decides(a.kind) {
		return false
	}
	g.health.RTT.Add(rtt)
	g.fast.good++
	if g.health.Status == submarinerv1.Connected || g.health.Status == submarinerv1.ConnectionError && !g.recovered() {
		return false
	}
	g.health.Status, g.health.Message, g.health.Since, g.health.By = submarinerv1.Connected, "", time.Time{}, ""
	return true
}

// hurry makes large echoes late sooner: packets of a path stay in order, so a large echo is lost if a small one comes back that was sent at the
// same time or later. It reports whether that matters: after a time of long round trips, patience is long.
func (g *pinged) hurry(a asked, now time.Time) (sooner bool) {
	if !g.target.Fast || a.kind != echoing {
		return false
	}
	for i := range g.fast.streams[filling].asked {
		f, late := &g.fast.streams[filling].asked[i], now.Add(mesh.FastTimeout)
		if !f.lost && !f.sent.After(a.sent) && f.until.Sub(late) > stalled {
			f.until, sooner = late, true
		}
	}
	return sooner
}

// recovered reports whether a target that was down answers again.
func (g *pinged) recovered() bool {
	for k := range kinds {
		if g.fast.decides(k) && g.fast.streams[k].lost > 0 {
			return false
		}
	}
	return g.fast.good >= mesh.FastBack
}
