//go:build linux

package strongswan

import (
	"slices"
	"time"

	"subctl/dataplane"
)

const (
	// secondAfter is the time for which the second end waits for the first to begin.
	secondAfter = 1500 * time.Millisecond
	// fastestTry is the time from the first try that fails at once to the next one. It doubles with
	// each, up to slowestTry.
	fastestTry = 500 * time.Millisecond
	slowestTry = 10 * time.Second
	// unanswered is the time after which a try that goes on has no answer: nobody refuses it. When
	// the other end is there, it may refuse the first tries, as it begins to work, and these are
	// repeated soon.
	unanswered = 5 * time.Second
	// mostFalls bounds the number of falls that count, so that the tries of a tunnel that does not
	// last, such as of two ends that have the same identity and replace each other, are 4 seconds
	// apart.
	mostFalls = 3
)

// initiation is a child of a loaded connection that is to be initiated.
type initiation struct{ conn, child string }

// has reports whether a connection has a child of this name.
func (c Connection) has(child string) bool {
	return c.Child == child || slices.Contains(c.Children, child)
}

// wait has the times at which a tunnel is tried, from when it is down until it has been up for a
// while.
type wait struct {
	began, next time.Time // the last try, and the earliest time of the next one
	tries       int       // in a row that failed soon
	up          bool      // when it was seen last
	falls       int       // how often it came up and did not last
}

// due reports whether a tunnel that is down is to be tried now. While it is connecting, it is not,
// nor does this count as a try.
func (n *negotiator) due(of initiation, initiative string, connecting bool, now time.Time) bool {
	var later time.Duration
	if initiative == string(dataplane.InitiateSecond) {
		later = secondAfter
	}
	w := n.waits[of]
	if w == nil {
		w = &wait{next: now.Add(later)}
		n.waits[of] = w
	}
	if w.up {
		w.up = false
		if start := now.Add(later); w.next.Before(start) {
			w.next = start
		}
	}
	if connecting {
		if now.Sub(w.began) >= unanswered {
			w.tries = 0
		}
		return false
	}
	if now.Before(w.next) {
		return false
	}
	w.began, w.next = now, now.Add(pause(w.tries)+later)
	w.tries++
	return true
}

// markUp notes that a tunnel is up.
func (n *negotiator) markUp(of initiation, now time.Time) {
	switch w := n.waits[of]; {
	case w == nil:
	case now.Sub(w.began) >= lookIdle:
		delete(n.waits, of)
	case !w.up:
		w.up, w.tries, w.next = true, w.falls, w.began.Add(pause(w.falls))
		w.falls = min(w.falls+1, mostFalls)
	}
}

// pause returns the time until the next try, after a number of tries that failed.
func pause(failed int) time.Duration { return min(fastestTry<<min(failed, 8), slowestTry) }
