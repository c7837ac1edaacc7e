//go:build linux

package strongswan

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/strongswan/govici/vici"
)

// negotiator has the daemon negotiate keys for the loaded tunnels that have none, or whose
// settings have changed since, and end security associations that are out of date. It
// loads and unloads nothing: which tunnels there are, the caller decides. The daemon could
// do parts of that by itself (start_action, dpd_action, close_action, keyingtries), but
// gives up where the other end refuses the key, or does not know us yet: each of those
// settings covers one reason for which a tunnel may be down, and the negotiator covers
// all.
type negotiator struct {
	instance *Instance
	pid      int // of the daemon, with which it ends
	stop     chan struct{}
	poke     chan struct{} // has it look at once
	fell     chan struct{} // has it look soon

	mu       sync.Mutex
	waits    map[initiation]*wait
	problems map[string]Problem // the last, by tunnel
}

const (
	lookBusy = 500 * time.Millisecond // between looks while something is down
	// between looks while all is well, and the daemon does not report the end of a tunnel
	lookIdle = 5 * time.Second
	// sharedAfter is the age from which on both ends have new keys. The responder has them
	// first: if it ended the old keys at once, the initiator might have neither.
	sharedAfter = 2 * time.Second
	// settledAfter is the age of new keys from which on both ends have had time to end the keys
	// that are outdated for them.
	settledAfter = 30 * time.Second
)

// Negotiate starts the negotiation of keys, in the background, for the tunnels of the
// running daemon. It lasts until the daemon ends, or Rest is called.
func (i *Instance) Negotiate() {
	i.Rest()
	pid, _ := i.Process()
	n := &negotiator{
		instance: i, pid: pid, stop: make(chan struct{}), poke: make(chan struct{}, 1), fell: make(chan struct{}, 1),
		waits: map[initiation]*wait{}, problems: map[string]Problem{},
	}
	i.mu.Lock()
	i.negotiator = n
	i.mu.Unlock()
	go n.run()
	go n.listen()
}

// Negotiating reports whether Negotiate was called for the daemon that runs.
func (i *Instance) Negotiating() bool {
	pid, _ := i.Process()
	i.mu.Lock()
	defer i.mu.Unlock()
	return pid != 0 && i.negotiator != nil && i.negotiator.pid == pid
}

// Rest ends what Negotiate began. The tunnels that are up stay up.
func (i *Instance) Rest() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.rest()
}

// rest is Rest for callers that hold mu.
func (i *Instance) rest() {
	if i.negotiator != nil {
		close(i.negotiator.stop)
		i.negotiator = nil
	}
}

// ended notes that a negotiator has ended by itself, so that Negotiating does not report it.
func (i *Instance) ended(n *negotiator) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.negotiator == n {
		i.rest()
	}
}

// retryNow has the negotiator look at once.
func (i *Instance) retryNow() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.negotiator != nil {
		tell(i.negotiator.poke)
	}
}

// Problem returns what has kept a tunnel from coming up last, or "" if nothing is known.
func (i *Instance) Problem(name string) Problem {
	i.mu.Lock()
	n := i.negotiator
	i.mu.Unlock()
	if n == nil {
		return ""
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.problems[name]
}

func (n *negotiator) run() {
	for {
		if pid, _ := n.instance.Process(); pid != n.pid {
			n.instance.ended(n)
			return
		}
		looked := time.Now()
		pause := lookBusy
		if n.look(looked) {
			pause = lookIdle
		}
		if !n.await(looked, pause) {
			return
		}
	}
}

// look begins what is due, ends what is outdated, and reports whether all is well.
func (n *negotiator) look(now time.Time) (well bool) {
	conns, sas, err := n.instance.Tunnels()
	if err != nil {
		return false // the daemon has ended, or does not answer
	}
	begin, end, well := n.judge(conns, sas, now)
	for _, b := range begin {
		n.ask("initiate", map[string]any{"ike": b.conn, "child": b.child})
	}
	for _, id := range end {
		n.ask("terminate", map[string]any{"ike-id": id})
	}
	return well
}

// judge returns the tunnels to be initiated, the IDs of the IKE security associations to be
// ended, and whether all is well. It forgets tunnels that are no longer loaded.
func (n *negotiator) judge(
	conns map[string]Connection,
	sas map[string][]SA,
	now time.Time,
) (begin []initiation, end []string, well bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.waits, func(of initiation, _ *wait) bool { return !conns[of.conn].has(of.child) })
	maps.DeleteFunc(n.problems, func(name string, _ Problem) bool { _, ok := conns[name]; return !ok })
	well = true
	for name, c := range conns {
		if _, _, isRemote := cutRemote(name); isRemote {
			b, up := n.judgeRemote(name, c, sas[name], now)
			begin = append(begin, b...)
			well = well && up
			continue
		}
		initiative, _, _ := strings.Cut(c.Child, "-")
		switch {
		case Current(sas[name], c.Child):
			n.markUp(initiation{name, c.Child}, now)
			delete(n.problems, name)
			old, later := outdated(sas[name], c.Child)
			end = append(end, old...)
			well = well && !later
		case !initiates(name, c.Child):
		default:
			well = false
			if n.due(initiation{name, c.Child}, initiative, anyConnecting(sas[name]), now) {
				begin = append(begin, initiation{name, c.Child})
			}
		}
	}
	return begin, end, well && len(end) == 0
}

// outdated returns the IDs of the security associations to be ended: those made under
// other settings than the present, once both ends have one made under the present settings; and
// all but one of these, once nobody can be changing them any more. Both ends keep the same
// one. later reports whether some of the former kind are to be ended later.
func outdated(sas []SA, child string) (ids []string, later bool) {
	var kept *SA
	settled := true
	shared := false
	for _, sa := range sas {
		if !sa.uses(child) {
			continue
		}
		settled = settled && sa.Age >= settledAfter
		shared = shared || sa.Age >= sharedAfter
		if kept == nil || sa.SPIs > kept.SPIs {
			kept = &sa
		}
	}
	for _, sa := range sas {
		if kept == nil || sa.ID == kept.ID || sa.State != "ESTABLISHED" {
			continue
		}
		old := !sa.uses(child)
		if old && shared || settled {
			ids = append(ids, sa.ID)
		}
		later = later || old && !shared
	}
	return ids, later
}

// ask sends a command without waiting for its result.
func (n *negotiator) ask(command string, args map[string]any) {
	args["timeout"] = "-1"
	args["loglevel"] = "-1"
	_ = n.instance.talk(func(s *vici.Session) error { // a failure shows as a problem of the tunnel
		_, err := request(s, command, args)
		return err
	})
}

func anyConnecting(sas []SA) bool { return slices.ContainsFunc(sas, SA.connecting) }
