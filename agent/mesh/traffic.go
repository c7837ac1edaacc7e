package mesh

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
	"subctl/cable/drivers"
)

// Traffic is how packets to other clusters leave a gateway: the cables that it holds, and which of
// them carry something.
type Traffic struct {
	// Installed has for each peer the cable that policy decides on and, while that is not known to
	// work or has only just taken over, the one before it.
	Installed []cable.Cable
	// Using has the cables that carry the traffic to remote gateways once the node holds
	// the plan, by cable name.
	Using map[string]role.Using
	// First are the changes from no cable to the first cable of a pair, by cable name.
	First map[string]role.CableChange
	// Retiring has the cables whose traffic the cables of other gateways have taken over, by cable
	// name; Since is when. They stay up for a while, for packets that the other end still sends.
	Retiring map[string]role.Using
	// Blackholed are Cables.Blackholed, and the networks of cables that carry nothing until they
	// answer.
	Blackholed []netip.Prefix
	// Siblings are the other gateways of this cluster that have a working cable to a cluster, by
	// the ID of that cluster.
	Siblings map[string][]cable.Node
	// Detours are the networks that this gateway reaches through its Siblings, as it has no cable
	// to their gateways: see detours.
	Detours []cable.Reached

	// Keyless reports whether a cable carries nothing because its two ends have not agreed on keys.
	Keyless bool

	several map[string]bool // the clusters to which there may be several ways
	again   time.Duration   // see Plan.Again
}

// director decides which cables carry the traffic.
type director struct {
	*Mesh
	lastUsed lastUsed
	places   cable.Places
	out      Traffic
}

// directTraffic returns the traffic of a gateway.
func directTraffic(m *Mesh) Traffic {
	wanted := m.Cables.Wanted
	d := director{Mesh: m, lastUsed: lastUsed{snapshot: m.Snapshot}, places: m.Cables.places(), out: Traffic{
		Installed:  make([]cable.Cable, 0, len(wanted)),
		Using:      make(map[string]role.Using, len(wanted)),
		First:      map[string]role.CableChange{},
		Retiring:   map[string]role.Using{},
		Blackholed: slices.Clone(m.Cables.Blackholed),
		several:    withAlternatives(m.Membership, m.Cables, m.Snapshot.Memory.Using),
	}}
	d.out.Siblings, d.out.Detours = d.siblings(), d.detours()
	for _, want := range wanted {
		d.add(want)
	}
	for _, c := range m.Cables.NoSlot {
		d.keepWithoutSlot(c)
	}
	d.markDown()
	for _, c := range d.out.Installed {
		if _, used := d.out.Using[c.Name]; !used || c.Silent {
			d.out.Blackholed = append(d.out.Blackholed, c.Subnets...) // its packets are dropped until it answers
		}
	}
	return d.out
}

// add adds the cables of one pair, and what carries its traffic from now on, or since when it waits
// for its first cable.
// want is the cable that policy decides on.
//
// The old cable is given up at once if either end no longer offers its driver, or if it is
// not encrypted and the pair must be: then a user wants it gone.
//
// The first cable of a pair is idle until it answers: before that, nothing shows that the other
// cluster is behind it, and the other end may have another cable. An encrypted cable that follows
// one that was given up is not idle: it carries nothing before both ends have agreed on keys.
//
// A cable that the pair left to those of other gateways, and returns to, is like its first one: the
// other end may be about to remove it.
//
// The cable that a pair uses carries nothing while it is silent.
func (d *director) add(want cable.Cable) {
	now := d.Snapshot.Now
	health := d.Snapshot.Health
	out := &d.out
	was, had := d.Snapshot.Memory.Using[want.Name]
	u := asUsing(want)
	old, oldOK := d.stillPossible(want.Peer, was, had)
	if oldOK && d.mayRetire(old, want) {
		d.retire(old, was)
		had = false
		oldOK = false
	}
	left := d.Snapshot.Memory.Retiring[want.Name]
	returns := left.Device == u.Device
	if !returns {
		d.keepRetiring(want.Peer)
	}
	back := was.Before != nil && was.Before.Device == u.Device
	switch {
	case !oldOK && !(had && want.Driver.Properties().Encrypts) && (returns || !d.mayUseFirst(want)):
		want.Idle = true
		out.Installed = append(out.Installed, want)
		var underWay *role.CableChange
		if t, waits := d.Snapshot.Memory.First[want.Name]; waits {
			underWay = &t
		}
		first := resume(underWay, u, now)
		if returns {
			first.ProbeAfter = probeAfter(left, true, now)
		}
		out.First[want.Name] = *first
		return
	case !oldOK || was.Device == u.Device:
		// There was no cable before, or none that could be up beside this one.
		u.Since = was.Since
		u.Before = was.Before
		u.Change = d.unplannedChange(want, was, had)
		u.Silent = health.Silent(want, was)
		want.Silent = u.Silent
	case health.Proven(want) && !back:
		before := was
		before.Before = nil
		before.Change = nil
		before.Silent = false
		u.Since = now
		u.Before = &before
	default:
		turn := resume(was.Change, u, now)
		if !was.Change.LeadsTo(u) {
			turn.ProbeAfter = probeAfter(was, back, now)
		}
		want.Idle = true
		was.Before = nil
		was.Change = turn
		was.Silent = health.Silent(old, was)
		old.Silent = was.Silent
		out.Installed = append(out.Installed, old, want)
		out.Using[want.Name] = was
		return
	}
	if u.Before != nil {
		kept, ok := d.stillPossible(want.Peer, *u.Before, true)
		if ok && kept.Device() != want.Device() && now.Sub(u.Since) < oldCableGrace {
			kept.Idle = true
			out.Installed = append(out.Installed, kept)
		} else {
			u.Before = nil
		}
	}
	out.Installed = append(out.Installed, want)
	out.Using[want.Name] = u
}

// unplannedChange returns the change to a cable that carries the traffic already, because the cable
// before it could not stay; nil once it has answered, or if there was no cable before.
func (d *director) unplannedChange(want cable.Cable, was role.Using, had bool) *role.CableChange {
	u := asUsing(want)
	silent := was.Change.LeadsTo(u) && d.Snapshot.Health[want.Name].Status != submarinerv1.Connected
	if had && was.Device != u.Device || silent {
		return resume(was.Change, u, d.Snapshot.Now)
	}
	return nil
}

// stillPossible returns the cable that was in use, if it is still possible.
func (d *director) stillPossible(p cable.Peer, u role.Using, had bool) (cable.Cable, bool) {
	if !had {
		return cable.Cable{}, false
	}
	driver := drivers.Find(u.Driver)
	if driver == nil || !d.Offer.offers(driver.Name()) || !p.Offers(driver.Name()) || p.ForbidsDriver(driver) {
		return cable.Cable{}, false
	}
	p.Config = u.Config
	p.Shared = u.Shared
	p.Policy = u.Policy
	p.Rule = u.Rule
	if driver.Refuses(d.Offer.Local, p) != nil {
		return cable.Cable{}, false
	}
	c := cable.Cable{Peer: p, Driver: driver}
	if d.places.Take(c) != nil {
		return cable.Cable{}, false // another gateway of the cluster has what only one can have
	}
	return c, c.Device() == u.Device // otherwise its settings are no longer known
}

// mayUseFirst reports whether a pair may use a cable although it has none in use: the
// cable answers pings, so the other end has it, too; or other gateways of the two clusters
// used the same cable last, it answered, and they are gone: without them there is no other way.
func (d *director) mayUseFirst(c cable.Cable) bool {
	if was := d.Snapshot.Memory.Using[c.Name]; d.Snapshot.Health.Proven(c) || was.Device == c.Device() && !was.Silent {
		return true
	}
	if d.hasDetour(c) {
		return false
	}
	before, ok := d.lastUsed.by(c.Gateway)
	u := asUsing(c)
	return ok && !before.Silent && before.Driver == u.Driver && before.Device == u.Device &&
		maps.Equal(before.Shared, u.Shared)
}

// ChangeOf returns the change of a pair from its cable c, or to its first cable c; nil if there is
// none.
func (t Traffic) ChangeOf(c cable.Cable) *role.CableChange {
	if u, used := t.Using[c.Name]; used {
		return u.Change
	}
	if first, waits := t.First[c.Name]; waits {
		return &first
	}
	return nil
}

// Next returns the number of the cable that a pair is changing to from c; -1 if it stays.
func (t Traffic) Next(c cable.Cable) int {
	if t.Using[c.Name].Before != nil {
		return -1 // the idle cable is the one before c
	}
	return slices.IndexFunc(t.Installed,
		func(other cable.Cable) bool { return other.Idle && other.Name == c.Name && !t.IsRetiring(other) })
}

// oldCableGrace is the time for which the old cable of a pair stays up after the new one has taken
// over. The other end has seen the new cable work at the same time as this end, as a ping and
// its answer need both directions, and changes its cable within this time.
const oldCableGrace = 10 * time.Second

// peerDecisionUsual is the time within which both ends usually know a decision. A pair that changes
// back to the cable that is still up pings it only then.
//
// Until the other end knows the decision, it may remove that cable, because oldCableGrace is over
// there: it changed up to maxChangeSkew earlier or later than this end. So if oldCableGrace may be
// over within peerDecisionMax, the pings wait for peerDecisionMax.
const (
	peerDecisionUsual = time.Second
	peerDecisionMax   = 3 * time.Second
	maxChangeSkew     = 2 * time.Second
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
	gone := u.Before == nil && age >= oldCableGrace && age < oldCableGrace+maxChangeSkew
	switch {
	case gone, back && age >= oldCableGrace-maxChangeSkew-peerDecisionMax:
		return now.Add(peerDecisionMax)
	case back:
		return now.Add(peerDecisionUsual)
	}
	return time.Time{}
}

// asUsing returns how a cable is made.
func asUsing(c cable.Cable) role.Using {
	return role.Using{
		Cluster:   c.Cluster,
		Driver:    c.Driver.Name(),
		Device:    c.Device(),
		Config:    c.Config,
		Shared:    c.Shared,
		Policy:    c.Policy,
		Rule:      c.Rule,
		PublicKey: c.PublicKey,
	}
}

// lastUsed finds what carries, or last carried, the traffic to other gateways.
type lastUsed struct {
	snapshot role.Snapshot
	of       map[string]role.Using // by cluster; nil until it is needed
}

// by returns what carries the traffic to a gateway. If the gateway is new, or this one is, it
// returns what carries, or last carried, the traffic between other gateways of the two clusters; it
// is silent if the cable to one of them is. What this gateway has reported does not count: it is in
// Memory.Using, or in Memory.Former.
func (l *lastUsed) by(g cable.Gateway) (role.Using, bool) {
	using := l.snapshot.Memory.Using
	if u, ok := using[g.Name]; ok {
		return u, true
	}
	if l.of == nil {
		l.of = map[string]role.Using{}
		add := func(using map[string]role.Using) {
			for _, name := range slices.Sorted(maps.Keys(using)) {
				u := using[name]
				u.Silent = u.Silent || l.of[u.Cluster].Silent
				l.of[u.Cluster] = u
			}
		}
		for _, report := range role.List[*submarinerv1.Gateway](l.snapshot) {
			if report.Name != l.snapshot.Node {
				add(usingIn(report, l.snapshot.Now))
			}
		}
		add(using)
	}
	u, ok := l.of[g.Cluster]
	return u, ok
}
