package discovery

import (
	"math/rand/v2"

	"subctl/cable/natdiscovery"
)

// maxSeen is the number of questions after which a gateway must use a new cookie.
const maxSeen = 4096

// freshness recognizes questions that somebody recorded and sends again. A question is accepted
// once, and only with the cookie that this gateway has put into its last answers to the sender.
// Cookies do not outlive the agent, so no question is accepted that an agent before it received.
// The zero freshness accepts nothing.
type freshness struct {
	ours   uint64          // cookie for the other gateway's questions; 0 until there is one
	seen   map[uint64]bool // the numbers of the questions with that cookie
	theirs uint64          // cookie for our questions; 0 if none is known
}

// cookie returns the cookie to put into an answer.
func (f *freshness) cookie() uint64 {
	if f.ours == 0 || len(f.seen) >= maxSeen {
		f.ours = 1 + rand.Uint64N(natdiscovery.NoCookie-1)
		f.seen = map[uint64]bool{}
	}
	return f.ours
}

// accept reports whether an authentic question is new, and remembers it.
func (f *freshness) accept(q natdiscovery.Request) bool {
	if f.ours == 0 || q.Cookie != f.ours || f.seen[q.Number] {
		return false
	}
	f.seen[q.Number] = true
	return true
}
