//go:build linux

package strongswan

import (
	"math/rand/v2"
	"strings"
	"time"

	"subctl/dataplane"

	"github.com/strongswan/govici/vici"
)

// soonest is the time, after the daemon has reported the end of a tunnel, before which the
// negotiator does not look: tunnels often end together, and the daemon may begin again by itself.
const soonest = 100 * time.Millisecond

// listen hears what the daemon reports, as long as the negotiator works. While it hears nothing,
// the negotiator finds by its looks alone which tunnels have ended.
func (n *negotiator) listen() {
	for {
		n.watchEvents()
		select {
		case <-n.stop:
			return
		case <-time.After(lookIdle):
		}
	}
}

// watchEvents notes the problems of tunnels, which are in the daemon's log, and has the negotiator
// look when tunnels have ended. It returns when the daemon does not report any more.
func (n *negotiator) watchEvents() {
	s, err := n.instance.dial(0)
	if err != nil {
		return
	}
	defer s.Close()
	events := make(chan vici.Event, 1024) // what does not fit is lost
	s.NotifyEvents(events)
	if s.Subscribe("log") != nil {
		return
	}
	// the end of an IKE security association is the end of its children, for each of which there is
	// an event
	_ = s.Subscribe("child-updown")
	for {
		select {
		case <-n.stop:
			return
		case e, ok := <-events:
			if !ok {
				return
			}
			n.heard(e)
		}
	}
}

func (n *negotiator) heard(e vici.Event) {
	if e.Name == "child-updown" {
		if endsOwn(e.Message) {
			tell(n.fell)
		}
		return
	}
	if p := problem(str(e.Message, "msg")); p != "" {
		n.mu.Lock()
		n.problems[str(e.Message, "ikesa-name")] = p
		n.mu.Unlock()
	}
}

// endsOwn reports whether a child-updown event is the end of a tunnel that this end initiates.
// After the end of any other tunnel, such as that of an edge at its hub, this end has nothing to
// do.
func endsOwn(m *vici.Message) bool {
	if str(m, "up") == "yes" {
		return false
	}
	for _, conn := range m.Keys() {
		for _, child := range sub(sub(m, conn), "child-sas").Keys() {
			if initiates(conn, child) {
				return true
			}
		}
	}
	return false
}

// initiates reports whether it is up to this end, perhaps among others, to initiate a child of a
// connection.
func initiates(conn, child string) bool {
	if _, _, isRemote := cutRemote(conn); isRemote {
		start, _, _ := strings.Cut(child, ":")
		return start == dataplane.StartNow
	}
	initiative, _, _ := strings.Cut(child, "-")
	return initiative != string(dataplane.InitiateNever)
}

// await waits until it is time for the next look, and reports false if there is to be none. The end
// of tunnels has it look soon, though not more often than while something is down, and not in the
// same instant as all other ends that have lost the same hub.
func (n *negotiator) await(looked time.Time, pause time.Duration) bool {
	next := time.NewTimer(pause)
	at := time.Now().Add(pause)
	defer next.Stop()
	fell := n.fell
	for {
		select {
		case <-n.stop:
			return false
		case <-n.poke:
			return true
		case <-next.C:
			return true
		case <-fell:
			fell = nil
			next.Reset(min(time.Until(at), max(soonest+rand.N(lookBusy-soonest), lookBusy-time.Since(looked))))
		}
	}
}

// tell passes a signal on, unless one waits already.
func tell(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}
