package agent

import (
	"time"

	"golang.org/x/time/rate"

	"subctl/agent/role"
)

// Other clusters change what an agent reports about them, for example by gateways that answer and
// do not answer by turns. All of a report is written each time, to etcd. So each cluster makes an
// agent write pacedBurst times at once, as the other gateways of this cluster follow what the
// report says of cables, and then once in pacedEvery. What else is written has these changes, too.
const (
	pacedBurst = 10
	pacedEvery = 2 * time.Second
)

// pacer bounds how often other clusters make an agent write. The zero value is ready to use.
type pacer struct {
	limiters map[string]*rate.Limiter // by cluster ID
}

// due returns the objects that may be written now, and the time after which the first of the others
// may be; 0 if there are none.
func (p *pacer) due(all []role.Paced) (due []role.Object, left time.Duration) {
	now := time.Now()
	for id, l := range p.limiters {
		if l.TokensAt(now) >= pacedBurst { // the same as a new limiter
			delete(p.limiters, id)
		}
	}
	for _, o := range all {
		wait := p.take(o.By, now)
		if wait == 0 {
			due = append(due, o.Object)
		} else if left == 0 || wait < left {
			left = wait
		}
	}
	return due, left
}

// take counts a write against all clusters that cause it. If none of them may cause one now, it
// returns the time until one may.
func (p *pacer) take(ids []string, now time.Time) (wait time.Duration) {
	allowed := false
	for _, id := range ids {
		l := p.limiters[id]
		if l == nil {
			if p.limiters == nil {
				p.limiters = map[string]*rate.Limiter{}
			}
			l = rate.NewLimiter(rate.Every(pacedEvery), pacedBurst)
			p.limiters[id] = l
		}
		if l.AllowN(now, 1) {
			allowed = true
			continue
		}
		missing := max(time.Millisecond, time.Duration((1-l.TokensAt(now))*float64(pacedEvery)))
		if wait == 0 || missing < wait {
			wait = missing
		}
	}
	if allowed {
		return 0
	}
	return wait
}
