package exchange

import "time"

// Watch lowers how many clustersets are.watched, and sets the time from one poll of the others to
// the next.
func (e *Exchange) Watch(most int, poll time.Duration) {
	e.watched = most
	e.rounds.period = poll
}

// EndHurry makes the next polls as late as if nothing had been announced.
func (e *Exchange) EndHurry() {
	e.rounds.mu.Lock()
	defer e.rounds.mu.Unlock()
	for _, t := range e.rounds.turns {
		t.due = time.Now().Add(e.rounds.period)
		t.hurried = time.Time{}
	}
}

// LeaveDenied sets after how long a cluster counts as no member of a clusterset in which it has no
// rights.
func (e *Exchange) LeaveDenied(after time.Duration) { e.deniedLimit = after }
