package probe

import (
	"crypto/rand"
	"time"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
)

// pinged is a target, with the pings that it was sent.
type pinged struct {
	target  role.Target
	health  role.Health
	started bool

	// Of a target that is not Fast.
	lost    int       // in a row
	asked   []asked   // the ping that may still be answered: the last
	waiting bool      // for the answer to it
	due     time.Time // when to ping next

	fast fast // of a target that is Fast
}

// newPinged returns a target to ping. known is what the agent's predecessor had found if the target
// was down, and otherwise the zero Health. If an echo had found it, echoes decide from the start,
// although none has come back to this agent.
func newPinged(t role.Target, known role.Health) *pinged {
	g := &pinged{target: t, due: t.First, fast: newFast(t.First), health: known}
	if known.Status == "" {
		g.health = role.Health{Status: submarinerv1.Connecting, Message: "waiting for the first answer to a ping"}
	}
	large := known.By == filling.String()
	if (t.Echo != role.Echo{}) {
		g.fast.streams[echoing].proven = large || known.By == echoing.String()
		g.fast.streams[filling].proven = large
	}
	return g
}

// asked is a ping.
type asked struct {
	seq   uint16
	nonce [16]byte // random: whoever has not received it cannot answer
	sent  time.Time
	// Of a target that is Fast: when to ask again, and when the answer is late; and whether these
	// times have come.
	kind    kind
	source  uint16 // the port from which an echo is sent
	again   time.Time
	until   time.Time
	overdue bool
	lost    bool
	grace   bool // whether until was put off
}

func newAsked(seq uint16, now time.Time) asked {
	a := asked{seq: seq, sent: now}
	rand.Read(a.nonce[:]) // never fails
	return a
}

// underWay is the number of probes of a kind to a Fast target that can still be answered.
const underWay = 16

// ask returns the next ping of a target that is not Fast. forget is called with the ping that can
// no longer be answered.
func (g *pinged) ask(seq uint16, now time.Time, forget func(asked)) asked {
	for _, a := range g.asked {
		forget(a)
	}
	a := newAsked(seq, now)
	g.asked = []asked{a}
	g.waiting = true
	return a
}

// outstanding returns the probes that may still be answered.
func (g *pinged) outstanding() (all []asked) {
	for _, s := range g.fast.streams {
		all = append(all, s.asked...)
	}
	return append(all, g.asked...)
}
