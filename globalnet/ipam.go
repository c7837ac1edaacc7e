package globalnet

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Request is an object that requests addresses of the cluster's global network.
type Request struct {
	Kind, Namespace, Name string // of the object
	UID                   string
	// Version changes with every change of the object. A status is written only if the object still
	// has it.
	Version string
	Since   time.Time // when the object was created
	Count   int
	Held    []netip.Addr // according to the status of the object
}

// object returns the kind and the name of the object, for messages.
func (r Request) object() string {
	name := r.Name
	if r.Namespace != "" {
		name = r.Namespace + "/" + name
	}
	return strings.TrimSpace(r.Kind + " " + name)
}

// Requests are requests of many objects. Each is read several times, and made then: all of them
// would take much memory.
type Requests interface {
	Len() int
	At(i int) Request
}

// Grant holds the addresses that an object gets.
type Grant struct {
	// Addrs are the addresses, in ascending order and without gaps.
	Addrs []netip.Addr
	// Missing is the number of addresses for which it waits.
	Missing int
	// Lost are addresses in its status that it cannot have.
	Lost []Loss
}

// Loss is an address in the status of an object that does not belong to it.
type Loss struct {
	Addr netip.Addr
	// Holder is the kind and the name of the object that holds it; empty if it is not in the pool.
	Holder string
}

// Allocate allocates the addresses of a network to the objects that request some, and returns a
// Grant for each of them. before is nil, or the memory of the last allocation or of a record.
//
// An allocation in a status stands, as long as its object requests it. Of two objects with the same
// address, the one that held it before has it, otherwise the older one. A single address is the
// highest that is free, several are the lowest without gaps (upstream). An object that requests
// another number than it has keeps as many of its addresses as possible. Objects that cannot get
// what they request wait, and the oldest gets freed addresses first. An address rests (Rest) before
// it is allocated again, unless nothing else is left.
func Allocate(network netip.Prefix, requests Requests, now time.Time, before *Memory) ([]Grant, *Memory) {
	a := newAllocation(network, requests, now, before)
	var waiting []int
	for _, r := range a.order {
		if !a.keep(r) {
			waiting = append(waiting, r)
		}
	}
	a.rested = rested(a.resting)
	for _, r := range waiting {
		a.give(r)
	}
	return a.grants, a.memory()
}

// allocation is an allocation in progress. Addresses are numbers of the pool.
type allocation struct {
	pool     pool
	now      time.Time
	before   *Memory
	requests Requests
	order    []int   // of requests: the oldest first
	own      [][]int // by request: what it holds, in ascending order
	grants   []Grant

	used    *set        // what somebody holds
	shadow  map[int]int // the request whose status has, or may have, what it does not hold
	taken   *set        // used, and shadow
	avoid   *set        // taken, and what rests
	resting map[int]time.Time
	rested  []int // what rests, in the order in which it is used if nothing else is left

	highest  int         // no address above it is free
	lowest   map[int]int // by number of addresses: no run that begins below is free
	hopeless int         // so many addresses without gaps do not exist, even among those that rest; 0 if unknown
}

func newAllocation(network netip.Prefix, requests Requests, now time.Time, before *Memory) *allocation {
	switch {
	case before == nil:
		before, _ = Recall(network, "")
	case before.pool != newPool(network): // the cluster has another network now, which may contain the former one
		before, _ = Recall(network, before.Record())
	}
	a := &allocation{
		pool: newPool(
			network),
		now:      now,
		requests: requests,
		order:    make([]int, requests.Len()),
		own:      make([][]int, requests.Len()),
		grants:   make([]Grant, requests.Len()),
		before:   before,
		shadow:   map[int]int{},
		resting:  map[int]time.Time{},
		lowest:   map[int]int{},
	}
	a.used, a.taken, a.highest = newSet(a.pool.size), newSet(a.pool.size), a.pool.size-1
	for i := range a.order {
		a.order[i] = i
	}
	since := make([]int64, len(a.order))
	for i := range since {
		since[i] = requests.At(i).Since.Unix()
	}
	slices.SortFunc(a.order, func(i, k int) int {
		if c := cmp.Compare(since[i], since[k]); c != 0 {
			return c
		}
		x := requests.At(i)
		y := requests.At(k)
		return cmp.Or(x.Since.Compare(y.Since), strings.Compare(x.Kind, y.Kind),
			strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name), strings.Compare(x.UID, y.UID))
	})
	a.claim()
	before.used.each(a.used, func(i int) { a.resting[i] = now })
	for i, freed := range before.resting {
		if now.Sub(freed) < Rest && !a.used.has(i) {
			a.resting[i] = freed
		}
	}
	for i := range before.shadow {
		if !a.used.has(i) {
			a.resting[i] = now // until now, packets have come from it
		}
	}
	for i := range a.shadow {
		a.resting[i] = now
	}
	a.avoid = a.taken.clone()
	for i := range a.resting {
		a.avoid.add(i)
	}
	return a
}

// keep leaves a request the addresses that it has, if they are enough. It frees the others.
func (a *allocation) keep(r int) bool {
	own := a.own[r]
	n := a.requests.At(r).Count
	if n <= 0 {
		a.grant(r, nil)
		return true
	}
	for k := 0; k+n <= len(own); k++ {
		if own[k+n-1] == own[k]+n-1 {
			a.grant(r, own[k:k+n])
			return true
		}
	}
	return false
}

// give gives a request the addresses that it does not have yet.
func (a *allocation) give(r int) {
	n := a.requests.At(r).Count
	start := a.around(r)
	if start < 0 {
		start = a.find(n)
	}
	if start < 0 {
		a.grant(r, longestRun(a.own[r], n))
		a.grants[r].Missing = n - len(a.grants[r].Addrs)
		return
	}
	run := make([]int, n)
	for k := range run {
		run[k] = start + k
	}
	a.grant(r, run)
}

// grant makes the addresses of a request exactly those of run, and frees the others that it had.
// Nobody gets them before the cache shows a status without them.
func (a *allocation) grant(r int, run []int) {
	for _, i := range a.own[r] {
		if !slices.Contains(run, i) {
			a.used.remove(i)
			a.shadow[i] = r
			a.resting[i] = a.now
		}
	}
	for _, i := range run {
		a.used.add(i)
		a.taken.add(i)
		a.avoid.add(i)
		delete(a.resting, i)
		delete(a.shadow, i)
	}
	a.grants[r].Addrs = a.pool.addrs(run, a.requests.At(r).Held)
}

// around returns where the addresses begin that include as many as possible of those that a request
// has: of several, those with the fewest that rest, then the highest. It returns -1 if there are
// none.
func (a *allocation) around(r int) int {
	own := a.own[r]
	n := a.requests.At(r).Count
	if len(own) == 0 {
		return -1
	}
	best := -1
	most := 0
	fewest := 0
	for k, o := range own {
		from := max(0, o-n+1)
		if k > 0 {
			from = max(from, own[k-1]+1) // the others have been weighed
		}
		for start := from; start <= min(o, a.pool.size-n); start++ {
			have, rest, ok := a.weigh(r, start, n)
			if ok && (have > most || have == most && rest <= fewest) {
				best = start
				most = have
				fewest = rest
			}
		}
	}
	return best
}

// weigh counts, of n addresses, those that a request has and those that rest. It returns false if
// another request has one of them.
func (a *allocation) weigh(r, start, n int) (have, rest int, ok bool) {
	for i := start; i < start+n; i++ {
		owner, shadowed := a.shadow[i]
		switch {
		case slices.Contains(a.own[r], i):
			have++
		case shadowed && owner == r: // it has had it a moment ago
		case a.taken.has(i):
			return 0, 0, false
		case a.avoid.has(i):
			rest++
		}
	}
	return have, rest, true
}

// find returns where n free addresses begin; -1 if there are none.
func (a *allocation) find(n int) int {
	if n == 1 {
		if a.highest = a.avoid.lastFree(a.highest); a.highest >= 0 {
			return a.highest
		}
		for len(a.rested) > 0 {
			i := a.rested[0]
			a.rested = a.rested[1:]
			if !a.taken.has(i) {
				return i
			}
		}
		return -1
	}
	if start := a.lowest[n]; start >= 0 {
		if a.lowest[n] = a.avoid.firstRun(start, n); a.lowest[n] >= 0 {
			return a.lowest[n]
		}
	}
	if a.hopeless > 0 && n >= a.hopeless {
		return -1
	}
	start := a.taken.firstRun(0, n)
	if start < 0 {
		a.hopeless = n
	}
	return start
}

// longestRun returns the longest part of sorted numbers that has no gaps, and at most n numbers.
func longestRun(sorted []int, n int) []int {
	var best []int
	for first, last := 0, 0; last < len(sorted); last++ {
		if sorted[last] != sorted[first]+last-first {
			first = last
		}
		if run := sorted[first : last+1]; len(run) > len(best) && len(run) <= n {
			best = run
		}
	}
	return best
}
