//go:build linux

package kernel

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"subctl/dataplane"

	"github.com/strongswan/govici/vici"
)

// keeper has security associations made for the connections that have none, or that
// were changed since. charon could do parts of that by itself (start_action, dpd_action,
// close_action, keyingtries), but gives up where the other end refuses the key, or does
// not know us yet: each of them covers one reason for which a tunnel may be down, and
// the keeper covers all.
type keeper struct {
	charon *charon
	stop   chan struct{}
	poke   chan struct{}
	begun  time.Time

	mu       sync.Mutex
	waits    map[string]*wait
	problems map[string]string // by connection: the last that charon complained of
}

// wait is when a connection that is down is tried (again).
type wait struct {
	next  time.Time
	tries int
}

const (
	keepBusy = 500 * time.Millisecond // between looks while something is down
	keepIdle = 5 * time.Second        // between looks while all is well
	// secondAfter is how long the second end waits for the first to begin.
	secondAfter = 1500 * time.Millisecond
	// slowestTry bounds the time between two tries.
	slowestTry = 10 * time.Second
	// settledAfter is how long both ends have had time to end what is outdated for them.
	settledAfter = 30 * time.Second
	// sweepAfter is how long the keys of a charon that was killed may be used, if some
	// tunnel does not come back and so no new ones take their place.
	sweepAfter = time.Minute
)

// startKeeper sees to it that a keeper runs.
func (c *charon) startKeeper() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keeper != nil {
		return
	}
	c.keeper = &keeper{
		charon: c, stop: make(chan struct{}), poke: make(chan struct{}, 1), begun: time.Now(),
		waits: map[string]*wait{}, problems: map[string]string{},
	}
	go c.keeper.run()
	go c.keeper.listen()
}

// stopKeeper ends the keeper. What charon keeps up stays up.
func (c *charon) stopKeeper() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keeper != nil {
		close(c.keeper.stop)
		c.keeper = nil
	}
}

// retryNow has the keeper look at once.
func (c *charon) retryNow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keeper != nil {
		signal(c.keeper.poke)
	}
}

// problem is what charon complained of last; empty if nothing.
func (c *charon) problem(conn string) string {
	c.mu.Lock()
	k := c.keeper
	c.mu.Unlock()
	if k == nil {
		return ""
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.problems[conn]
}

func (k *keeper) run() {
	for {
		pause := keepBusy
		if k.look(time.Now()) {
			pause = keepIdle
		}
		select {
		case <-k.stop:
			return
		case <-k.poke:
		case <-time.After(pause):
		}
	}
}

// look begins what is due, ends what is outdated, and reports whether all is well.
func (k *keeper) look(now time.Time) (well bool) {
	conns, err := k.charon.conns()
	if err != nil {
		return false // the daemon is being started, or has died: the next Sync will see to it
	}
	sas, err := k.charon.sas()
	if err != nil {
		return false
	}
	begin, end, well := k.judge(conns, sas, now)
	for _, name := range begin {
		k.ask("initiate", map[string]any{"ike": name, "child": conns[name].child})
	}
	for _, id := range end {
		k.ask("terminate", map[string]any{"ike-id": id})
	}
	return well
}

// judge says which connections are to be begun and which IKE security associations, by
// charon's IDs, to be ended. It forgets connections that are no longer there.
func (k *keeper) judge(conns map[string]loaded, sas map[string][]ikeSA, now time.Time) (begin, end []string, well bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.waits, func(name string, _ *wait) bool { _, ok := conns[name]; return !ok })
	maps.DeleteFunc(k.problems, func(name string, _ string) bool { _, ok := conns[name]; return !ok })
	well = true
	for name, c := range conns {
		initiative, _, _ := strings.Cut(c.child, "-")
		switch {
		case current(sas[name], c.child):
			delete(k.waits, name)
			delete(k.problems, name)
			end = append(end, outdated(sas[name], c.child)...)
		case initiative == string(dataplane.InitiateNever):
		default:
			well = false
			if k.due(name, initiative, now) && !anyConnecting(sas[name]) {
				begin = append(begin, name)
			}
		}
	}
	return begin, end, well && len(end) == 0
}

// outdated returns the IDs of what was made under other settings than the present, if
// there is something that was not; and, of several that were not, of all but one, once
// nobody can be changing them any more. Both ends keep the same one.
func outdated(sas []ikeSA, child string) (ids []string) {
	var kept *ikeSA
	settled := true
	for _, sa := range sas {
		if !sa.uses(child) {
			continue
		}
		settled = settled && sa.age >= settledAfter
		if kept == nil || sa.spis > kept.spis {
			kept = &sa
		}
	}
	for _, sa := range sas {
		if kept != nil && sa.id != kept.id && sa.state == "ESTABLISHED" && (settled || !sa.uses(child)) {
			ids = append(ids, sa.id)
		}
	}
	return ids
}

// due says whether a connection that is down is to be tried now.
func (k *keeper) due(name, initiative string, now time.Time) bool {
	w := k.waits[name]
	if w == nil {
		w = &wait{next: now}
		if initiative == string(dataplane.InitiateSecond) {
			w.next = now.Add(secondAfter)
		}
		k.waits[name] = w
	}
	if now.Before(w.next) {
		return false
	}
	w.next = now.Add(min(time.Second<<min(w.tries, 8), slowestTry))
	if initiative == string(dataplane.InitiateSecond) {
		w.next = w.next.Add(secondAfter)
	}
	w.tries++
	return true
}

// ask has charon begin something, without waiting for what comes of it.
func (k *keeper) ask(command string, args map[string]any) {
	args["timeout"], args["loglevel"] = "-1", "-1"
	_ = k.charon.talk(func(s *vici.Session) error { // problems say what came of it
		_, err := request(s, command, args)
		return err
	})
}

// current says whether there are keys in use that were made under the present settings.
func current(sas []ikeSA, child string) bool {
	return slices.ContainsFunc(sas, func(sa ikeSA) bool { return sa.uses(child) })
}

func anyConnecting(sas []ikeSA) bool { return slices.ContainsFunc(sas, ikeSA.connecting) }
