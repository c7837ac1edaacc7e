package probe

import (
	"time"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
)

// answeredFast takes the answer to a probe, and reports whether the target is up now and was not
// before. An answer counts also if it is late: the path works.
func (g *pinged) answeredFast(a asked, now time.Time, forget func(asked)) bool {
	s := &g.fast.streams[a.kind]
	rtt := now.Sub(a.sent)
	g.fast.longest = max(rtt, g.fast.longest-g.fast.longest/forgetting)
	for len(s.asked) > 0 && s.asked[0].sent.Compare(a.sent) <= 0 {
		forget(s.asked[0])
		s.asked = s.asked[1:]
	}
	s.overdue = 0
	s.lost = 0
	for _, a := range s.asked {
		if a.overdue {
			s.overdue++
		}
		if a.lost {
			s.lost++
		}
	}
	s.proven = true
	s.answered = now
	if a.kind == filling || !g.fast.decidesHealth(a.kind) {
		return false
	}
	g.health.RTT.Add(rtt)
	g.fast.good++
	if g.health.Status == submarinerv1.Connected ||
		g.health.Status == submarinerv1.ConnectionError && !g.hasRecovered() {
		return false
	}
	if g.health.Status == submarinerv1.ConnectionError {
		g.health.Back = now
	}
	g.health.Status = submarinerv1.Connected
	g.health.Message = ""
	g.health.Flaps = false
	return true
}

// advanceLargeEchoes makes large echoes late sooner: packets of a path stay in order, so a large
// echo is lost if a small one comes back that was sent at the same time or later. It reports
// whether that matters: after a time of long round trips, patience is long.
func (g *pinged) advanceLargeEchoes(a asked, now time.Time) (sooner bool) {
	if !g.target.Fast || a.kind != echoing {
		return false
	}
	for i := range g.fast.streams[filling].asked {
		f := &g.fast.streams[filling].asked[i]
		late := now.Add(role.FastTimeout)
		if !f.lost && !f.sent.After(a.sent) && f.until.Sub(late) > stalled {
			f.again = now.Add(role.FastDoubt)
			f.until = late
			sooner = true
		}
	}
	return sooner
}

// hasRecovered reports whether a target that was down answers again, for long enough if it flaps.
func (g *pinged) hasRecovered() bool {
	for k := range kinds {
		if g.fast.decidesHealth(k) && g.fast.streams[k].lost > 0 {
			return false
		}
	}
	return g.fast.good >= role.FastBack<<g.fast.flaps
}
