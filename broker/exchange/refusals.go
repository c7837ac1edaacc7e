package exchange

import (
	"cmp"
	"slices"
	"time"

	"golang.org/x/time/rate"
)

// This file keeps one member from hiding the refused objects of others, in the status and in the
// log, behind its own. A member can have thousands refused, each for another reason in every pass:
// a reason may contain a text that the member has signed.

// maxRefused is the maximum number of refusals that are reported and logged.
const maxRefused = 50

// How many refusals of the objects of one cluster are logged: logBurst at once, and then one in
// logEvery.
const (
	logBurst = 20
	logEvery = time.Minute
)

// fairSelection returns up to maxRefused refusals: the first one of each cluster, then the second
// ones, and so on. It also returns the number of the others.
func fairSelection(refused []Refusal) (first []Refusal, more int) {
	type numbered struct {
		Refusal
		turn int
	}
	turns := map[string]int{}
	all := make([]numbered, len(refused))
	for i, r := range refused {
		all[i] = numbered{r, turns[r.maker]}
		turns[r.maker]++
	}
	slices.SortStableFunc(all, func(a, b numbered) int { return cmp.Compare(a.turn, b.turn) })
	first = make([]Refusal, min(len(all), maxRefused))
	for i := range first {
		first[i] = all[i].Refusal
	}
	return first, len(all) - len(first)
}

// refusalLog notes which of the refusals are in the log.
type refusalLog struct {
	logged   map[Refusal]bool         // those of the last pass that are in the log
	limiters map[string]*rate.Limiter // by the maker of the objects
}

// next returns which refusals of a pass are to be logged: new ones, as far as there are not too
// many of one cluster. The others are logged later, if they are still there.
func (l *refusalLog) next(refused []Refusal, now time.Time) (fresh []Refusal) {
	logged := map[Refusal]bool{}
	for _, r := range refused {
		if !l.logged[r] {
			if !l.admit(r.maker, now) {
				continue
			}
			fresh = append(fresh, r)
		}
		logged[r] = true
	}
	l.logged = logged
	for maker, limiter := range l.limiters {
		if limiter.TokensAt(now) >= logBurst { // the same as a new limiter
			delete(l.limiters, maker)
		}
	}
	return fresh
}

// admit reports whether another refusal of an object of a cluster is logged now.
func (l *refusalLog) admit(maker string, now time.Time) bool {
	if l.limiters == nil {
		l.limiters = map[string]*rate.Limiter{}
	}
	if l.limiters[maker] == nil {
		l.limiters[maker] = rate.NewLimiter(rate.Every(logEvery), logBurst)
	}
	return l.limiters[maker].AllowN(now, 1)
}
