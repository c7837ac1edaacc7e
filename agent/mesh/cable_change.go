package mesh

import (
	"time"

	"subctl/agent/role"
)

// oldCableGrace is the time for which the old cable of a pair stays up after the new one has taken
// over. The other end has seen the new cable work at the same time as this end, as a ping and
// its answer need both directions, and changes its cable within this time.
const oldCableGrace = 10 * time.Second

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

// resume returns the change to a cable u: t, which may be nil, if that is to the same cable, and
// otherwise one that begins now.
func resume(t *role.CableChange, u role.Using, now time.Time) *role.CableChange {
	if t.LeadsTo(u) {
		return &role.CableChange{Driver: u.Driver, Device: u.Device, Since: t.Since, ProbeAfter: t.ProbeAfter}
	}
	return &role.CableChange{Driver: u.Driver, Device: u.Device, Since: now}
}

// probeAfter returns when to ping the cable of a change from u first, if the other end may still
// keep that cable up, and remove it: the change is back to the cable before, or that cable is just
// gone here. It returns the zero Time if every answer proves that the other end has the cable to
// stay.
func probeAfter(u role.Using, back bool, now time.Time) time.Time {
	age := now.Sub(u.Since)
	gone := u.Before == nil && age >= oldCableGrace && age < oldCableGrace+skew
	switch {
	case gone, back && age >= oldCableGrace-skew-decidedLate:
		return now.Add(decidedLate)
	case back:
		return now.Add(decided)
	}
	return time.Time{}
}
