package dataplane

import (
	"errors"
	"maps"
	"slices"
)

// Held returns the part of a target's State that Ahead compares, after a Sync of want that returned
// err. It is nil if it is not known: Sync has not observed what its last steps led to.
//
// After a *DriftError, Held has the next hops and groups that are as wanted, so that Ahead changes
// nothing that failed or depends on a failure. What leads to groups is as Sync observed it, wanted
// or not: a route that could not be removed or replaced still leads to its group, which must not
// change then.
func Held(want State, err error) State {
	var d *DriftError
	switch {
	case err == nil:
		return want.leading()
	case errors.As(err, &d):
		return d.leading
	}
	return nil
}

// sound removes the next hops and groups that are not as wanted.
func (d *DriftError) sound(have, want State) State {
	maps.DeleteFunc(have, func(k Key, _ Object) bool {
		return (k.Kind == KindNexthop || isGroup(k)) && (want[k] == nil || d.Affected[k] != nil)
	})
	return have
}

// leading returns the part of a State that Ahead compares: next hops, groups of them, and what
// leads to the groups.
func (s State) leading() State {
	out := maps.Clone(s)
	maps.DeleteFunc(out, func(k Key, o Object) bool {
		return k.Kind != KindNexthop && k.Kind != KindGroup && !slices.ContainsFunc(o.Needs(), isGroup)
	})
	return out
}

func isGroup(k Key) bool { return k.Kind == KindGroup }

// Ahead returns the steps from held to want that can be taken before a Sync observes the target:
// they move packets away from a gateway that does not answer, within 1 to 4 ms. Sync would do so 10
// to 25 ms later, as it reads the kernel first, and replaces the table of Returns before any group.
// held is the result of Held after the last Sync. A step may fail: the Sync that follows has the
// same result in any case.
//
// They are changes of groups in place, to next hops that exist and stay as they are. What leads to
// such a group stays with it: otherwise it would lead elsewhere meanwhile (see danglingReferences).
func Ahead(held, want State) (ops []Op) {
	turned := State{}
	for k, h := range held {
		if w := want[k]; isGroup(k) && w != nil && !h.Equal(w) && (Op{Old: h, New: w}).sameType() &&
			kept(held, want, w.Needs()) {
			turned[k] = w
		}
	}
	if len(turned) == 0 {
		return nil
	}
	for k, h := range held {
		for _, g := range h.Needs() {
			if turned[g] != nil && (want[k] == nil || !slices.Contains(want[k].Needs(), g)) {
				delete(turned, g)
			}
		}
	}
	for _, o := range turned.Sorted() {
		ops = append(ops, Op{Old: held[o.Key()], New: o})
	}
	return ops
}

// kept reports whether held has all of some objects, and want leaves them as they are.
func kept(held, want State, keys []Key) bool {
	return !slices.ContainsFunc(keys, func(k Key) bool {
		return held[k] == nil || want[k] == nil || !held[k].Equal(want[k])
	})
}
