package dataplane

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// Op is one step of a plan: it puts New, in place of Old if there is an Old, or removes
// Old if New is nil.
type Op struct{ Old, New Object }

// changer is an Object that can be put in another way than by the command of its String.
type changer interface {
	// change returns the command that replaces an object by this one, or "" if it is the
	// command of String.
	change(old Object) string
}

// String returns "+ command" for an object that is put and "- command" for an object that
// is removed.
func (o Op) String() string {
	if o.New == nil {
		return "- " + o.Old.String()
	}
	if c, ok := o.New.(changer); ok && o.Old != nil {
		if s := c.change(o.Old); s != "" {
			return "+ " + s
		}
	}
	return "+ " + o.New.String()
}

// Diff returns the steps from have to want: additions first, in creation order, then removals in
// the opposite order, so that no step removes what another object still depends on. An object that
// depends on a wanted object which does not exist yet is not removed: the next Observe shows what
// has become of it.
//
// An Arrival is added before the device, but changed after the routes in its table have been added.
//
// Before all that, routes and groups are removed that would lead elsewhere meanwhile: see
// danglingReferences.
func Diff(have, want State) []Op {
	left := survivors(have, want)
	puts := State{}
	dels := State{}
	kept := 0
	for k, w := range want {
		h, ok := left[k]
		if ok {
			kept++
		}
		if !ok || !h.Equal(w) {
			puts[k] = w
		}
	}
	if kept < len(left) {
		for k, h := range left {
			if _, keep := want[k]; !keep && !awaits(h, have, want) {
				dels[k] = h
			}
		}
	}
	ops := make([]Op, 0, len(puts)+len(dels))
	remove := func(s State) {
		gone := s.Sorted()
		slices.Reverse(gone)
		for _, o := range gone {
			ops = append(ops, Op{Old: o})
		}
	}
	first := danglingReferences(left, puts, want)
	remove(first)
	for k := range first {
		if delete(dels, k); want[k] != nil {
			puts[k] = want[k]
		}
	}
	var last []Op
	for _, o := range puts.Sorted() {
		op := Op{Old: have[o.Key()], New: o}
		if first[o.Key()] != nil {
			op.Old = nil
		}
		if o.Key().Kind == KindArrival && op.Old != nil {
			last = append(last, op)
			continue
		}
		ops = append(ops, op)
	}
	ops = append(ops, last...)
	remove(dels)
	return ops
}

// danglingReferences returns the routes and groups that use a group or a next hop which changes its
// members or its gateway, and that are to use another one, or none. The ID of a group is a hash, so
// another cluster may get it. Until such a route is changed, too, it would send packets of one
// cluster to another one. What depends on such a group goes with it.
func danglingReferences(left, puts, want State) State {
	turned := map[Key]bool{}
	for k := range puts {
		if _, is := left[k]; is && (k.Kind == KindNexthop || k.Kind == KindGroup) {
			turned[k] = true
		}
	}
	out := State{}
	if len(turned) == 0 {
		return out
	}
	for _, kind := range []Kind{KindGroup, KindRoute} {
		for k, o := range left {
			if k.Kind == kind && slices.ContainsFunc(o.Needs(), func(n Key) bool {
				return out[n] != nil || turned[n] && (want[k] == nil || !slices.Contains(want[k].Needs(), n))
			}) {
				out[k] = o
			}
		}
	}
	return out
}

// awaits reports whether an object depends on a wanted object that does not exist yet.
func awaits(o Object, have, want State) bool {
	return slices.ContainsFunc(o.Needs(), func(k Key) bool {
		_, is := have[k]
		_, willBe := want[k]
		return willBe && !is
	})
}

// survivors returns what is left of have once every device or daemon that cannot be
// changed in place has been replaced: everything that depends on the old one is gone, too.
func survivors(have, want State) State {
	remade := map[Key]bool{}
	for k, w := range want {
		if k.Kind == KindLink || k.Kind == KindDaemon {
			if old, ok := have[k]; ok && !old.Equal(w) && !inPlace(old, w) {
				remade[k] = true
			}
		}
	}
	if len(remade) == 0 {
		return have
	}
	left := maps.Clone(have)
	for k := range remade {
		delete(left, k)
	}
	for _, o := range have.Sorted() { // dependencies come first, so one pass is enough
		for _, k := range o.Needs() {
			_, had := have[k]
			if _, has := left[k]; had && !has {
				delete(left, o.Key())
			}
		}
	}
	return left
}

// Target is an interface to apply a State: to a kernel, or a fake one.
type Target interface {
	// Observe returns the objects of the given kinds that we own, and no others; of all kinds if
	// none is given. It changes nothing.
	Observe(context.Context, ...Kind) (State, error)
	// Apply takes one step.
	Apply(context.Context, Op) error
}

// Checker is a Target that can tell whether it would refuse an object.
type Checker interface {
	// Check returns the error with which Apply would refuse to put the object, or nil, also if that
	// is not known. It changes nothing. The object may be nil.
	Check(context.Context, Object) error
}

// ConflictFinder is a Target that notices objects of other programs which affect ours, although
// Sync does not fail.
type ConflictFinder interface {
	// Conflicts describes them as of the last Observe, each with the remedy.
	Conflicts() []string
}

// maxPasses bounds Sync. One pass is the rule; the others repair what another program,
// or the kernel, has undone meanwhile.
const maxPasses = 3

// Sync makes t hold want, and returns the steps that it took. It observes t again after
// every pass, so success means observed, not requested; and a step that failed is no
// error if it turns out not to have been needed. A failure does not stop the steps that
// do not depend on it. If t does not hold want in the end, the error is a *DriftError.
//
// After a pass without a failure, Sync observes only the kinds of objects that its steps may have
// changed, and everything if one of these is not as wanted.
func Sync(ctx context.Context, t Target, want State) (done []Op, err error) {
	failed := map[Key]error{}
	for range maxPasses {
		_, ops, err := difference(ctx, t, want)
		if err != nil || len(ops) == 0 {
			return done, err
		}
		var taken []Op
		if taken, failed, err = pass(ctx, t, ops); err != nil {
			return append(done, taken...), err
		}
		done = append(done, taken...)
		if kinds := changes(ops); len(failed) == 0 && len(kinds) > 0 {
			if holds, err := holds(ctx, t, want, kinds); holds || err != nil {
				return done, err
			}
		}
		if len(taken) == 0 {
			break // trying again at once would have the same result
		}
	}
	have, left, err := difference(ctx, t, want)
	if err != nil || len(left) == 0 {
		return done, err
	}
	return done, drift(have, want, left, failed)
}

// changes returns the kinds of the objects that steps may change; none if that may be any kind. The
// steps are to be taken in their order, without a failure. Then the kernel removes with an object
// only unwanted objects, except where it cannot replace the object.
func changes(ops []Op) (kinds []Kind) {
	add := func(more ...Kind) {
		for _, k := range more {
			if !slices.Contains(kinds, k) {
				kinds = append(kinds, k)
			}
		}
	}
	for _, op := range ops {
		switch k := op.key().Kind; k {
		case KindSet, KindChain, KindRuleset, KindArrival, KindNeigh, KindRoute, KindRule:
			add(k)
		case KindNexthop:
			if add(k); op.Old != nil {
				add(KindGroup)
			}
		case KindGroup:
			if add(k); op.Old != nil && !op.sameType() {
				add(KindRoute)
			}
		default: // devices, for one, have addresses, peers, neighbours, next hops and routes
			return nil
		}
	}
	return kinds
}

// sameType reports whether a step replaces a Group by a Group of the same type, which keeps its
// routes. An observed Group without members has settings that no plan has.
func (o Op) sameType() bool {
	old, _ := o.Old.(Group)
	g, _ := o.New.(Group)
	return len(old.Members) > 0 && len(g.Members) > 0 && old.Buckets == g.Buckets
}

// holds reports whether t holds the objects of some kinds as wanted.
func holds(ctx context.Context, t Target, want State, kinds []Kind) (bool, error) {
	have, err := t.Observe(ctx, kinds...)
	if err != nil {
		return false, fmt.Errorf("observing dataplane: %w", err)
	}
	n := 0
	for k, w := range want {
		if !slices.Contains(kinds, k.Kind) {
			continue
		}
		if h, ok := have[k]; !ok || !h.Equal(w) {
			return false, nil
		}
		n++
	}
	return n == len(have), nil
}

// difference returns what t holds, and the steps from there to want.
func difference(ctx context.Context, t Target, want State) (have State, ops []Op, err error) {
	if have, err = t.Observe(ctx); err != nil {
		return nil, nil, fmt.Errorf("observing dataplane: %w", err)
	}
	return have, Diff(have, want), nil
}

// pass takes steps, and returns those that it took, and the failures of the others. It
// does not try to put an object that depends on one that could not be put just now: the
// program behind that one may take seconds to fail each time. The error is that of ctx.
func pass(ctx context.Context, t Target, ops []Op) (done []Op, failed map[Key]error, err error) {
	failed = map[Key]error{}
	absent := map[Key]bool{}
	for _, op := range ops {
		if err := ctx.Err(); err != nil {
			return done, failed, err
		}
		if op.New != nil && slices.ContainsFunc(op.New.Needs(), func(k Key) bool { return absent[k] }) {
			absent[op.key()] = absent[op.key()] || !op.leavesObject()
			continue
		}
		if err := t.Apply(ctx, op); err != nil {
			failed[op.key()] = err
			absent[op.key()] = op.New != nil && !op.leavesObject()
			continue
		}
		done = append(done, op)
	}
	return done, failed, nil
}

// key returns the key of the object of a step.
func (o Op) key() Key {
	if o.New != nil {
		return o.New.Key()
	}
	return o.Old.Key()
}

// leavesObject reports whether the old object is still there if the step, which puts one, fails.
func (o Op) leavesObject() bool {
	if k := o.key().Kind; k == KindLink || k == KindDaemon {
		return o.Old != nil && inPlace(o.Old, o.New)
	}
	return o.Old != nil
}
