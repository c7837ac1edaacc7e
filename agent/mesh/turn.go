package mesh

import "time"

// Turn is a change of a pair's cable, or of no cable to the first one, that is under way: the cable
// that policy decides on has not answered since.
type Turn struct {
	Driver string
	Device string // empty if unknown: the agent has just started
	Since  time.Time
	// Proof is the time of the first ping that counts: earlier answers prove nothing.
	Proof time.Time
}

// to reports whether t is a change to the cable u. t may be nil.
func (t *Turn) to(u Using) bool {
	return t != nil && t.Driver == u.Driver && (t.Device == "" || t.Device == u.Device)
}

// keptFor is the time for which the old cable of a pair stays up after the new one has taken
// over. The other end has seen the new cable work at the same time as this end, as a ping and
// its answer need both directions, and changes its cable within this time.
const keptFor = 10 * time.Second

// decided is the time within which both ends usually know a decision. A pair that changes back to
// the cable that is still kept up pings it only then. Until the other end knows, it may remove that
// cable, because keptFor is over: it has changed up to skew earlier or later than this end. So if
// keptFor may be over before the other end knows at the latest, after decidedLate, the pings wait
// for so long.
const (
	decided     = time.Second
	decidedLate = 3 * time.Second
	skew        = 2 * time.Second
)

// goOn returns the change to a cable u: t, which may be nil, if that is to the same cable, and
// otherwise one that begins now.
func (t *Turn) goOn(u Using, now time.Time) *Turn {
	if t.to(u) {
		return &Turn{Driver: u.Driver, Device: u.Device, Since: t.Since, Proof: t.Proof}
	}
	return &Turn{Driver: u.Driver, Device: u.Device, Since: now}
}

// proof returns when to ping the cable of a change from u first, if the other end may still keep
// that cable up, and remove it: the change is back to the cable before, or that cable is just gone
// here. It returns the zero Time if every answer proves that the other end has the cable to stay.
func (u Using) proof(back bool, now time.Time) time.Time {
	age := now.Sub(u.Since)
	gone := u.Before == nil && age >= keptFor && age < keptFor+skew
	switch {
	case gone, back && age >= keptFor-skew-decidedLate:
		return now.Add(decidedLate)
	case back:
		return now.Add(decided)
	}
	return time.Time{}
}
