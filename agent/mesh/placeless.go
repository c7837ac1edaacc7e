package mesh

import (
	"slices"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cable"
)

// This file is about pairs of gateways whose cable has no successor: the policy decides on a driver
// that connects to a limited number of gateways of a cluster, no driver stands in for it, and other
// pairs have the places. It connects the two clusters all the same. So the cables of all pairs stay
// in use until the new cable works, as if they were one: see adr/0010. Like every old cable, they
// are given up at once if either end no longer offers their driver, or if the pair must be
// encrypted.
//
// The two ends of a pair do not leave its cable at the same time: one of them may see it by its own
// cables, and the other one by the report of a sibling. So the cable stays up for a while.

// outlast adds the cable that a pair uses, given the one that policy decides on, which has no
// place.
func (d *director) outlast(c cable.Cable) {
	was, had := d.Snapshot.Memory.Using[c.Name]
	old, ok := d.revive(c.Peer, was, had)
	switch {
	case !ok || limited(old.Driver):
		d.keepLeaving(c.Peer)
	case d.outlasted(old, c):
		d.leave(old, was)
	default:
		was.Before = nil
		was.Change = nil
		was.Silent = d.Snapshot.Health.Silent(old, was)
		old.Silent = was.Silent
		d.out.Held = append(d.out.Held, old)
		d.out.Using[c.Name] = was
	}
}

// outlasted reports whether a pair leaves its cable, and the traffic to cables between other
// gateways of the two clusters. c is the cable that policy decides on: it has no place here or, as
// far as this end can tell, at the other end. The others work if this gateway or a sibling, whose
// report is not outdated, uses one of the same driver.
func (d *director) outlasted(old, c cable.Cable) bool {
	if !limited(c.Driver) || limited(old.Driver) || d.Snapshot.Health.Proven(c) {
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

// limited reports whether a driver connects to a limited number of gateways of a cluster.
func limited(d cable.Driver) bool { return d.Properties().MaxGateways > 0 }

// leave takes the traffic from a cable, which stays up for a while.
func (d *director) leave(old cable.Cable, was role.Using) {
	was.Since = d.Snapshot.Now
	was.Before = nil
	was.Change = nil
	was.Silent = false
	d.out.Leaving[old.Name] = was
	old.Idle = true
	d.out.Held = append(d.out.Held, old)
}

// keepLeaving adds the cable to a peer that was left, while it stays up.
func (d *director) keepLeaving(p cable.Peer) {
	left, ok := d.Snapshot.Memory.Leaving[p.Name]
	old, possible := d.revive(p, left, ok)
	if possible && d.Snapshot.Now.Sub(left.Since) < oldCableGrace {
		d.out.Leaving[p.Name] = left
		old.Idle = true
		d.out.Held = append(d.out.Held, old)
	}
}

// Leaves reports whether c is a cable that was left, and stays up for a while.
func (t Traffic) Leaves(c cable.Cable) bool {
	return t.Leaving[c.Name].Device == c.Device()
}
