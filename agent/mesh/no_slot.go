package mesh

import (
	"slices"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
)

// A pair of gateways has no slot if its policy decides on a driver that connects to a limited
// number of gateways of a cluster, no driver stands in for it, and other pairs have the slots. The
// new cables of these pairs connect the two clusters all the same. So the old cables of all pairs
// stay in use until the new cables work: see adr/0010. Like every old cable, they are removed at
// once if either end no longer offers their driver, or if the pair must be encrypted.
//
// The two ends of a pair do not retire its cable at the same time: one end may detect the new
// cables by its own cables, the other one by the report of a sibling. So a retired cable stays up
// for a while.

// keepWithoutSlot adds the current cable of a pair, given the cable that policy decides on, which
// has no slot.
func (d *director) keepWithoutSlot(c cable.Cable) {
	was, had := d.Snapshot.Memory.Using[c.Name]
	old, ok := d.stillPossible(c.Peer, was, had)
	switch {
	case !ok || isLimited(old.Driver):
		d.keepRetiring(c.Peer)
	case d.mayRetire(old, c):
		d.retire(old, was)
	default:
		was.Before = nil
		was.Change = nil
		was.Silent = d.Snapshot.Health.Silent(old, was)
		old.Silent = was.Silent
		d.out.Installed = append(d.out.Installed, old)
		d.out.Using[c.Name] = was
	}
}

// mayRetire reports whether a pair may retire its cable, because cables between other gateways of
// the two clusters work. c is the cable that policy decides on, which has no slot at one of the two
// ends. The other cables work if this gateway or a sibling, whose report is not outdated, uses one
// with the same driver.
func (d *director) mayRetire(old, c cable.Cable) bool {
	if !isLimited(c.Driver) || isLimited(old.Driver) || d.Snapshot.Health.Proven(c) {
		return false
	}
	if slices.ContainsFunc(d.Cables.Wanted, func(w cable.Cable) bool {
		used := d.Snapshot.Memory.Using[w.Name]
		return w.Cluster == c.Cluster && w.Name != c.Name && w.Driver.Name() == c.Driver.Name() &&
			used.Device == w.Device() &&
			!d.Snapshot.Health.Down(w)
	}) {
		return true
	}
	for _, n := range d.out.Siblings[c.Cluster] {
		g := role.Find[*submarinerv1.Gateway](d.Snapshot, n.Name)
		if g == nil || d.Snapshot.Outdated(g.Name) {
			continue
		}
		for _, conn := range g.Status.Connections {
			if conn.Endpoint.ClusterID == c.Cluster && conn.Driver == c.Driver.Name() &&
				conn.Status == submarinerv1.Connected {
				return true
			}
		}
	}
	return false
}

// isLimited reports whether a driver connects to a limited number of gateways of a cluster.
func isLimited(d cable.Driver) bool { return d.Properties().MaxGateways > 0 }

// retire removes the traffic from a cable. The cable stays up for a while.
func (d *director) retire(old cable.Cable, was role.Using) {
	was.Since = d.Snapshot.Now
	was.Before = nil
	was.Change = nil
	was.Silent = false
	d.out.Retiring[old.Name] = was
	old.Idle = true
	d.out.Installed = append(d.out.Installed, old)
}

// keepRetiring adds the retired cable to a peer, until oldCableGrace has passed.
func (d *director) keepRetiring(p cable.Peer) {
	retired, ok := d.Snapshot.Memory.Retiring[p.Name]
	old, possible := d.stillPossible(p, retired, ok)
	if possible && d.Snapshot.Now.Sub(retired.Since) < oldCableGrace {
		d.out.Retiring[p.Name] = retired
		old.Idle = true
		d.out.Installed = append(d.out.Installed, old)
	}
}

// IsRetiring reports whether c is a retired cable that is still up.
func (t Traffic) IsRetiring(c cable.Cable) bool {
	return t.Retiring[c.Name].Device == c.Device()
}
