package mesh

import (
	"maps"
	"slices"
	"time"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/cable/drivers"
)

// keptFor is the time for which the old cable of a pair stays up after the new one has taken
// over. The other end has seen the new cable work at the same time as this end, as a ping and
// its answer need both directions, and changes its cable within this time.
const keptFor = 10 * time.Second

// decided is the time within which both ends usually know a decision. A pair that changes back to the
// cable that is still kept up pings it only then. Until the other end knows, it may remove that cable,
// because keptFor is over: it has changed up to skew earlier or later than this end. So if keptFor may be
// over before the other end knows at the latest, after decidedLate, the pings wait for so long.
const (
	decided     = time.Second
	decidedLate = 3 * time.Second
	skew        = 2 * time.Second
)

// proof returns when to ping the cable of a change first, if the other end may still keep that cable up, and
// remove it: the change is back to the cable before, or that cable is just gone here. It returns the zero
// Time if every answer proves that the other end has the cable to stay.
func (m *Mesh) proof(was Using, back bool) time.Time {
	age := m.Snapshot.Now.Sub(was.Since)
	gone := was.Before == nil && age >= keptFor && age < keptFor+skew
	switch {
	case gone, back && age >= keptFor-skew-decidedLate:
		return m.Snapshot.Now.Add(decidedLate)
	case back:
		return m.Snapshot.Now.Add(decided)
	}
	return time.Time{}
}

// probeName returns the name of the probe of one of a pair's cables.
func probeName(peer, device string) string { return peer + " over " + device }

// cablings returns the cables that the gateway holds: for each peer the one that policy
// decides on and, while that is not known to work or has only just taken over, the one
// before it. It also returns what carries the traffic from now on, and since when pairs wait for
// their first cable.
//
// The old cable is given up at once if either end no longer offers its driver, or if it is
// not encrypted and the pair must be: then a user wants it gone.
//
// The first cable of a pair is idle until it answers: before that, nothing shows that the other
// cluster is behind it, and the other end may have another cable. An encrypted cable that follows
// one that was given up is not idle: it carries nothing before both ends have agreed on keys.
//
// The cable that a pair uses carries nothing while it is silent.
func (m *Mesh) cablings() (out []cable.Cable, next map[string]Using, first map[string]Turn) {
	out = slices.Grow(out, len(m.Cables.Wanted))
	next, first = make(map[string]Using, len(m.Cables.Wanted)), map[string]Turn{}
	for _, want := range m.Cables.Wanted {
		was, had := m.Snapshot.Memory.Using[want.Name]
		u := using(want)
		old, oldOK := m.revive(want.Peer, was, had)
		back := was.Before != nil && was.Before.Device == u.Device
		switch {
		case !oldOK && !(had && want.Driver.Properties().Encrypts) && !m.established(want):
			want.Idle = true
			out = append(out, want)
			var underWay *Turn
			if t, waits := m.Snapshot.Memory.First[want.Name]; waits {
				underWay = &t
			}
			first[want.Name] = *m.turn(underWay, u)
			continue
		case !oldOK || was.Device == u.Device:
			// There was no cable before, or none that could be up beside this one.
			u.Since, u.Before, u.Turn = was.Since, was.Before, m.abrupt(want, was, had)
			u.Silent = m.silent(want, was)
			want.Silent = u.Silent
		case m.proven(want) && !back:
			before := was
			before.Before, before.Turn, before.Silent = nil, nil, false
			u.Since, u.Before = m.Snapshot.Now, &before
		default:
			turn := m.turn(was.Turn, u)
			if !was.Turn.to(u) {
				turn.Proof = m.proof(was, back)
			}
			want.Idle, was.Before, was.Turn = true, nil, turn
			was.Silent = m.silent(old, was)
			old.Silent = was.Silent
			out = append(out, old, want)
			next[want.Name] = was
			continue
		}
		if u.Before != nil {
			kept, ok := m.revive(want.Peer, *u.Before, true)
			if ok && kept.Device() != want.Device() && m.Snapshot.Now.Sub(u.Since) < keptFor {
				kept.Idle = true
				out = append(out, kept)
			} else {
				u.Before = nil
			}
		}
		out = append(out, want)
		next[want.Name] = u
	}
	return out, next, first
}

// silent reports whether the cable c, which a pair uses, must carry nothing, because it has stopped
// answering: neither the other gateway nor the other end of the cable itself answers pings. The other end may
// have dropped the cable, and then nobody receives what is sent, or somebody else does. An encrypted
// cable is never silent: it carries nothing that others can read, and nothing at all without keys.
func (m *Mesh) silent(c cable.Cable, was Using) bool {
	itself := m.Snapshot.Health[probeName(c.Name, c.Device())].Status
	switch {
	case c.Driver.Properties().Encrypts || was.Device != c.Device():
		return false
	case was.Silent:
		return itself != submarinerv1.Connected
	}
	return m.fails(c) && itself == submarinerv1.ConnectionError
}

// fails reports whether the gateway to which a cable leads does not answer pings any more.
func (m *Mesh) fails(c cable.Cable) bool {
	return m.Snapshot.Health[c.Name].Status == submarinerv1.ConnectionError
}

// revive returns the cable that was in use, if it is still possible.
func (m *Mesh) revive(p cable.Peer, u Using, had bool) (cable.Cable, bool) {
	if !had {
		return cable.Cable{}, false
	}
	d := drivers.Find(u.Driver)
	if d == nil || !m.Offer.offers(d.Name()) || !p.Offers(d.Name()) || p.ForbidsDriver(d) {
		return cable.Cable{}, false
	}
	p.Config, p.Shared, p.Policy, p.Rule = u.Config, u.Shared, u.Policy, u.Rule
	if d.Refuses(m.Offer.Local, p) != nil {
		return cable.Cable{}, false
	}
	c := cable.Cable{Peer: p, Driver: d}
	if m.Accepted.claims.Connect(c) != nil {
		return cable.Cable{}, false // another gateway of the cluster has what only one can have
	}
	return c, c.Device() == u.Device // otherwise its settings are no longer known
}

// established reports whether a pair may use a cable although it has none in use: the
// cable answers pings, so the other end has it, too; or other gateways of the two clusters
// used the same cable last, it answered, and they are gone: without them there is no other way.
func (m *Mesh) established(c cable.Cable) bool {
	if was := m.Snapshot.Memory.Using[c.Name]; m.proven(c) || was.Device == c.Device() && !was.Silent {
		return true
	}
	if m.detour(c) {
		return false
	}
	before, ok := (&lastUsed{snapshot: m.Snapshot}).by(c.Gateway)
	u := using(c)
	return ok && !before.Silent && before.Driver == u.Driver && before.Device == u.Device && maps.Equal(before.Shared, u.Shared)
}

// proven reports whether a cable answers pings.
func (m *Mesh) proven(c cable.Cable) bool {
	return m.Snapshot.Health[probeName(c.Name, c.Device())].Status == submarinerv1.Connected
}

// next returns the number of the cable that a pair is changing to from c; -1 if it stays.
func (p Plan) next(c cable.Cable) int {
	if p.Using[c.Name].Before != nil {
		return -1 // the idle cable is the one before c
	}
	return slices.IndexFunc(p.cables, func(other cable.Cable) bool { return other.Idle && other.Name == c.Name })
}
