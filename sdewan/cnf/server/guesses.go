package server

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Wrong passwords are bounded for each address, whatever number of connections it has, and for all
// addresses together. What is over a bound is refused without a look at the password. The bound for
// all does not concern an address whose last password was right: others do not keep the controller
// out.
const (
	guessesOfOne = 10               // at once
	guessesOfAll = 100              // at once
	oneRefills   = time.Second      // the time after which an address has one more
	allRefill    = time.Second / 10 // likewise, all together
	trustFor     = 24 * time.Hour   // after the right password
	maxAddresses = 4096             // that are remembered; the others share their guesses
)

// budget is a number of guesses that grows with time up to a maximum.
type budget struct {
	spent float64
	at    time.Time
}

// left returns whether a guess is left. refill is the time after which there is one more.
func (b *budget) left(now time.Time, most float64, refill time.Duration) bool {
	if passed := now.Sub(b.at); passed > 0 {
		b.spent = max(0, b.spent-float64(passed)/float64(refill))
		b.at = now
	}
	return b.spent+1 <= most
}

// guesses bounds wrong passwords.
type guesses struct {
	mu  sync.Mutex
	all budget
	one map[netip.Addr]*guesser
}

// guesser is an address from which passwords come.
type guesser struct {
	budget
	right time.Time // when it had the right password
}

func (g *guesser) trusted(now time.Time) bool {
	return !g.right.IsZero() && now.Sub(g.right) < trustFor
}

// of returns what is known of an address.
func (g *guesses) of(from netip.Addr, now time.Time) *guesser {
	if g.one == nil {
		g.one = map[netip.Addr]*guesser{}
	}
	if one := g.one[from]; one != nil {
		return one
	}
	if len(g.one) >= maxAddresses {
		for a, one := range g.one {
			if one.left(now, guessesOfOne, oneRefills) && one.spent == 0 && !one.trusted(now) {
				delete(g.one, a)
			}
		}
	}
	if len(g.one) >= maxAddresses {
		from = netip.Addr{}
	}
	if g.one[from] == nil {
		g.one[from] = &guesser{}
	}
	return g.one[from]
}

// take reports whether an address may try a password. It counts as wrong until it was right.
func (g *guesses) take(from netip.Addr, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	one := g.of(from, now)
	own := one.left(now, guessesOfOne, oneRefills)
	shared := g.all.left(now, guessesOfAll, allRefill) || one.trusted(now)
	if !own || !shared {
		return false
	}
	one.spent++
	if !one.trusted(now) {
		g.all.spent++
	}
	return true
}

// wasRight takes back a guess: the password was right.
func (g *guesses) wasRight(from netip.Addr, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	one := g.of(from, now)
	one.spent = max(0, one.spent-1)
	if !one.trusted(now) {
		g.all.spent = max(0, g.all.spent-1)
	}
	one.right = now
}

// sender returns the address of a client; the zero Addr if it has none.
func sender(r *http.Request) netip.Addr {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	a, _ := netip.ParseAddr(host)
	return a.Unmap().WithZone("")
}
