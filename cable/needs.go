package cable

import (
	"slices"

	"subctl/dataplane"
)

// Broken returns why each cable of a plan is not held as planned, in the order of the cables: the
// failures of the objects that the cable depends on, without duplicates. It also returns the
// failures of objects that only detours depend on, without which no cable is broken; and the other
// failures of wanted objects, on which no cable in particular depends: all cables do. s, cables and
// links are the input and the results of Plan.
func Broken(
	s dataplane.State,
	cables []Cable,
	links []Link,
	d *dataplane.DriftError,
) (broken [][]*dataplane.Failure, detours, others []*dataplane.Failure) {
	affected := func(keys []dataplane.Key) (fs []*dataplane.Failure) {
		for _, k := range keys {
			for _, f := range d.Affected[k] {
				if !neededByAll(f.Key) && !slices.Contains(fs, f) {
					fs = append(fs, f)
				}
			}
		}
		return fs
	}
	own := map[*dataplane.Failure]bool{}
	for i, c := range cables {
		fs := affected(c.needs(links[i]))
		for _, f := range fs {
			own[f] = true
		}
		broken = append(broken, fs)
	}
	for _, f := range d.Failures {
		switch o := s[f.Key]; {
		case o == nil || own[f]:
		case standsBy(o):
			detours = append(detours, f)
		default:
			others = append(others, f)
		}
	}
	return broken, detours, others
}

// standsBy reports whether an object carries packets only when a cable does not: a detour, or a
// next hop to another gateway of this cluster.
func standsBy(o dataplane.Object) bool {
	switch o := o.(type) {
	case dataplane.Detour:
		return true
	case dataplane.Nexthop:
		return o.ID>>24 == dataplane.SiblingNexthopID
	}
	return false
}

// needs returns the keys of the objects that a cable depends on: its driver's objects, the rule
// for what arrives on its device and, if it carries traffic, the routes of its
// networks.
func (c Cable) needs(l Link) []dataplane.Key {
	var keys []dataplane.Key
	for _, o := range l.Needs {
		keys = append(keys, o.Key())
	}
	d := cableDevice{device: l.Device}
	keys = append(keys, d.arrival().Key())
	if !c.Carries() {
		return keys
	}
	for _, n := range c.Subnets {
		keys = append(keys, dataplane.Route{Table: dataplane.CableTable, Dst: n}.Key(),
			dataplane.Blackhole{Table: dataplane.CableTable, Dst: n}.Key())
	}
	return keys
}
