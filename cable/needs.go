package cable

import (
	"slices"

	"subctl/dataplane"
)

// Broken returns why each cable of a plan is not held as planned, in the order of the
// cables: the failures of the objects that the cable depends on, without duplicates. It
// also returns the other failures of wanted objects, on which no cable in particular
// depends: all cables do. s, cables and links are the input and the results of Plan.
func Broken(s dataplane.State, cables []Cable, links []Link, d *dataplane.DriftError) (broken [][]*dataplane.Failure, others []*dataplane.Failure) {
	affected := func(keys []dataplane.Key) (fs []*dataplane.Failure) {
		for _, k := range keys {
			for _, f := range d.Affected[k] {
				if !ofAll(f.Key) && !slices.Contains(fs, f) {
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
		if s[f.Key] != nil && !own[f] {
			others = append(others, f)
		}
	}
	return broken, others
}

// needs returns the keys of the objects that a cable depends on: its driver's objects, the filter
// of its device, the rule for what arrives on it and, if it carries traffic, the routes of its networks.
func (c Cable) needs(l Link) []dataplane.Key {
	var keys []dataplane.Key
	for _, o := range l.Needs {
		keys = append(keys, o.Key())
	}
	d := cableDevice{device: l.Device}
	keys = append(keys, dataplane.Chain{Table: "filter", Name: d.name()}.Key(), d.arrival().Key())
	if !c.Carries() {
		return keys
	}
	for _, n := range c.Subnets {
		keys = append(keys, dataplane.Route{Table: dataplane.CableTable, Dst: n}.Key(), dataplane.Blackhole{Table: dataplane.CableTable, Dst: n}.Key())
	}
	return keys
}
