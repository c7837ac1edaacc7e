package probe

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"time"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
)

// A prober that looks at its targets later than stalled gives each missing answer grace, once.
// Whatever waits in the sockets has been read then, but where the whole machine has stood still,
// its kernel may have to take packets from the network yet.
const (
	stalled = 10 * time.Millisecond
	grace   = 5 * time.Millisecond
)

// forgetting is the part by which the longest round trip time becomes shorter with every answer: it
// halves in 4 s.
const forgetting = 64

// doubting is the part of the longest round trip time by which an answer is overdue later, at
// least: how long answers take varies more on long paths.
const doubting = 8

// kind is a kind of probe to a target that is Fast.
type kind int

const (
	pinging kind = iota // a ping, which the other kernel answers
	echoing             // an echo, which the other kernel forwards back
	filling             // an echo of the size of the MTU
	kinds
)

// String returns the name that role.Health.By has for the kind.
func (k kind) String() string { return [kinds]string{role.ByPing, role.ByEcho, role.ByLargeEcho}[k] }

// stream is the probes of one kind to a target that is Fast.
type stream struct {
	asked    []asked // not answered, oldest first
	overdue  int     // in a row: it was time to ask again
	lost     int     // in a row: not answered in time
	due      time.Time
	proven   bool      // answered once: see also newPinged
	answered time.Time // last
}

// fast is the state of the probes to a target that is Fast.
type fast struct {
	streams [kinds]stream
	every   time.Duration // between two probes: see role.Probes.FastEvery
	longest time.Duration // the longest recent round trip time
	good    int           // answers in a row since the last probe whose answer was overdue
	flaps   int           // in a row: it was down again before it was steady, at most role.FastFlaps
}

// newFast returns what is known of a target whose first probe is due at a time.
func newFast(due time.Time) (f fast) {
	for k := range kinds {
		f.streams[k].due = due
	}
	return f
}

// decidesHealth reports whether probes of a kind decide whether the target is down: pings do until
// an echo has come back, as the other end may be older than echoes; and large echoes do once one
// has come back, as the MTU of the other end may be smaller.
func (f *fast) decidesHealth(k kind) bool {
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
	return g.target.Echo != role.Echo{}
}

// answerTimeout returns how long to wait for an answer, and how long until the target is asked
// again.
func (g *pinged) answerTimeout() (lost, again time.Duration) {
	l := g.fast.longest
	return l + role.FastTimeout, l + min(max(role.FastDoubt, l/doubting), role.FastTimeout)
}

// retry returns the time to the next probe while answers are overdue.
func (g *pinged) retry() time.Duration {
	return min(max(role.FastRetry, g.fast.every/role.FastRetries), role.FastRetryMany)
}

// pause returns the time to the next probe of a kind.
func (g *pinged) pause(k kind) time.Duration {
	s := g.fast.streams[k]
	switch usual := [kinds]time.Duration{
		g.fast.every,
		g.fast.every,
		g.fast.every * (role.FullInterval / role.FastInterval),
	}[k]; {
	case !g.fast.decidesHealth(k) && k == pinging:
		return g.pause(echoing)
	case !g.fast.decidesHealth(k) && k == echoing:
		return max(role.FastIdle, g.fast.every)
	case !g.fast.decidesHealth(k):
		return usual
	case s.lost > role.FastTired:
		return max(role.FastIdle, g.fast.every)
	case s.overdue > 0 && len(s.asked) < role.FastLost && g.health.Status == submarinerv1.Connected:
		return g.retry()
	default:
		return usual
	}
}

// isRoutineDue reports whether a probe of a kind is due that is not sent in haste.
func (g *pinged) isRoutineDue(k kind, now time.Time) bool {
	return g.dueBy(k, now, now) && g.pause(k) == g.fast.every
}

// dueBy reports whether a probe of a kind is due, or due soon and not sent in haste. A large echo
// goes with a small one, as most of what an idle agent costs is that it wakes up.
func (g *pinged) dueBy(k kind, now, soon time.Time) bool {
	if k == filling && soon.After(now) {
		soon = now.Add(g.fast.every)
	}
	at := g.fast.streams[k].due
	return g.sends(k) && (!at.After(now) || g.pause(k) >= role.FastInterval && !at.After(soon))
}

// expire counts the probes that were not answered in time, and reports whether the target is down
// now and was not before. If the prober is late, it counts nothing at first.
func (g *pinged) expire(now time.Time, late bool) bool {
	for k := range kinds {
		s := &g.fast.streams[k]
		for i := range s.asked {
			a := &s.asked[i]
			if !a.overdue && !a.again.After(now) {
				a.overdue = true
				s.overdue++
				if g.fast.decidesHealth(k) {
					g.fast.good = 0
					if s.overdue == 1 {
						s.due = now
					}
				}
			}
			switch {
			case a.lost || a.until.After(now):
				continue
			case late && !a.grace:
				a.until = now.Add(grace)
				a.grace = true
			default:
				a.lost = true
				s.lost++
			}
			if a.lost && g.fast.decidesHealth(k) && k == echoing && s.lost == 1 {
				g.fast.streams[pinging].due = now
			}
		}
	}
	by, why := g.fault(now)
	if why == "" || g.health.Status == submarinerv1.ConnectionError {
		return false
	}
	g.health.Status = submarinerv1.ConnectionError
	g.health.Message = why
	g.health.Since = now
	g.health.By = by
	if g.health.Flaps = now.Sub(g.health.Back) < role.Steady; g.health.Flaps {
		g.fast.flaps = min(g.fast.flaps+1, role.FastFlaps)
	} else {
		g.fast.flaps = 0
	}
	return true
}

// fault returns what has found that the target is down, and why it is; empty if it is not.
func (g *pinged) fault(now time.Time) (by, why string) {
	down := func(k kind) bool { return g.fast.decidesHealth(k) && g.fast.streams[k].lost >= role.FastLost }
	who := cmp.Or(g.target.Who, g.target.IP.String())
	switch {
	case down(echoing) && now.Sub(g.fast.streams[pinging].answered) < role.FastLost*role.FastRetryMany:
		return echoing.String(), fmt.Sprintf(
			"%s answers pings, but forwards no packets, or none of new connections: check the chains at the hook \"forward\" there, net.ipv4.ip_forward, and whether its table of connections is full (net.netfilter.nf_conntrack_count)",
			who)
	case down(echoing):
		return echoing.String(), who + " answers neither echoes nor pings: check its node, and the path to it"
	case down(pinging):
		return pinging.String(), who + " does not answer pings: check its node, and the path to it"
	case down(filling) && g.fast.streams[echoing].lost == 0:
		return filling.String(), fmt.Sprintf(
			"packets of %d bytes to %s and back are lost, although small ones are not: check the MTU of the path",
			g.target.Echo.MTU, who)
	}
	return "", ""
}

// next returns when to look at the target again: when a probe is due, or an answer is late.
func (g *pinged) next() time.Time {
	at := g.awaited()
	for k := range kinds {
		if g.sends(k) {
			at = earlier(at, g.fast.streams[k].due)
		}
	}
	return at
}

// awaited returns when the first answer is late; the zero time if none can be. While it is not
// clear that answers are missing, that is when to ask again.
func (g *pinged) awaited() (at time.Time) {
	for k := range kinds {
		if !g.sends(k) {
			continue
		}
		s := g.fast.streams[k]
		for _, a := range s.asked {
			switch {
			case a.lost:
			case s.overdue == 0 && g.fast.decidesHealth(k):
				at = earlier(at, a.again)
			default:
				at = earlier(at, a.until)
			}
		}
	}
	return at
}

// earlier returns the earlier of two times. The zero time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// askFast returns the next probe of a kind. forget is called with the probes that can no longer be
// answered.
func (g *pinged) askFast(k kind, seq uint16, now time.Time, forget func(asked)) asked {
	s := &g.fast.streams[k]
	for len(s.asked) >= underWay {
		forget(s.asked[0])
		s.asked = s.asked[1:]
	}
	a := newAsked(seq, now)
	lost, again := g.answerTimeout()
	a.kind = k
	a.until = now.Add(lost)
	a.again = now.Add(again)
	a.source = echoSource(now, g.fast.every)
	s.asked = append(s.asked, a)
	s.due = now.Add(jittered(g.pause(k)))
	return a
}

// jittered returns a time to the next probe that is up to a tenth shorter, at random, unless it is
// short already: the probes of many nodes do not stay in step, and nothing that happens at regular
// times happens to all of them (RFC 5880, section 6.8.7, which allows a quarter).
func jittered(pause time.Duration) time.Duration {
	if pause < role.FastInterval {
		return pause
	}
	return pause - rand.N(pause/10)
}
