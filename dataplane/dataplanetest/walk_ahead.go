package dataplanetest

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"subctl/dataplane"

	"github.com/stretchr/testify/require"
)

// faulty is a Target that fails all steps of some objects, chosen at random. Some of these steps
// fail after they have removed the old object.
type faulty struct {
	dataplane.Target
	r     *rand.Rand
	fails map[dataplane.Key]bool
}

// Apply implements dataplane.Target.
func (f faulty) Apply(ctx context.Context, op dataplane.Op) error {
	o := op.New
	if o == nil {
		o = op.Old
	}
	fails, known := f.fails[o.Key()]
	if !known {
		fails = f.r.IntN(8) == 0
		f.fails[o.Key()] = fails
	}
	if !fails {
		return f.Target.Apply(ctx, op)
	}
	if op.New != nil && op.Old != nil && f.r.IntN(2) == 0 {
		return errors.Join(ErrInjected, f.Target.Apply(ctx, dataplane.Op{Old: op.Old}))
	}
	return ErrInjected
}

// syncFaulty has steps from before to want fail, and requires that Ahead is right about what the
// target holds then.
func syncFaulty(t testing.TB, target dataplane.Target, r *rand.Rand, before, want dataplane.State, say func() string) {
	t.Helper()
	_, err := dataplane.Sync(t.Context(), faulty{target, r, map[dataplane.Key]bool{}}, want)
	held := dataplane.Held(want, err)
	failed := failures(t, err)
	have, err := target.Observe(t.Context())
	require.NoError(t, err)
	var ops []dataplane.Op
	for range 10 {
		next := want
		if r.IntN(2) == 0 { // some of what could not be removed is wanted again
			next = maps.Clone(before)
			maps.Copy(next, want)
		}
		next = regrouped(r, next)
		ops = dataplane.Ahead(held, next)
		rightAhead(t, have, ops, next, say)
		for _, op := range ops {
			if failed[op.New.Key()] {
				require.Fail(t, "a failed group", "%v is taken ahead: %s", op, say())
			}
		}
	}
	take(t, target, ops, say)
}

// failures returns the keys of what failed in a Sync, and of what depends on that.
func failures(t testing.TB, err error) map[dataplane.Key]bool {
	t.Helper()
	out := map[dataplane.Key]bool{}
	var d *dataplane.DriftError
	if err == nil {
		return out
	}
	require.ErrorAs(t, err, &d)
	for k := range d.Affected {
		out[k] = true
	}
	for _, f := range d.Failures {
		out[f.Key] = true
	}
	return out
}

// ahead takes the steps of Ahead, which are to be right, and to succeed.
func ahead(t testing.TB, target dataplane.Target, held, want dataplane.State, say func() string) {
	t.Helper()
	ops := dataplane.Ahead(held, want)
	if len(ops) == 0 {
		return
	}
	have, err := target.Observe(t.Context())
	require.NoError(t, err)
	rightAhead(t, have, ops, want, say)
	take(t, target, ops, say)
}

func take(t testing.TB, target dataplane.Target, ops []dataplane.Op, say func() string) {
	t.Helper()
	for _, op := range ops {
		if err := target.Apply(t.Context(), op); err != nil {
			require.NoError(t, err, say())
		}
	}
}

// rightAhead requires that steps of Ahead replace what the target has, by groups of next hops that
// it has, and that they lead nothing elsewhere than want does.
func rightAhead(t testing.TB, have dataplane.State, ops []dataplane.Op, want dataplane.State, say func() string) {
	t.Helper()
	is := func(s dataplane.State, k dataplane.Key, o dataplane.Object) bool {
		return o != nil && s[k] != nil && s[k].Equal(o)
	}
	for _, op := range ops {
		k := op.New.Key()
		if !is(have, k, op.Old) || !is(want, k, op.New) {
			require.Fail(t, "another group", "%v replaces %v instead of %v: %s", op, op.Old, have[k], say())
		}
		for _, hop := range op.New.Needs() {
			if !is(have, hop, want[hop]) {
				require.Fail(t, "another next hop", "%v uses %v: %s", op, have[hop], say())
			}
		}
		for user, o := range have {
			if slices.Contains(o.Needs(), k) && (want[user] == nil || !slices.Contains(want[user].Needs(), k)) {
				require.Fail(t, "misled", "%v leads %v elsewhere: %s", op, o, say())
			}
		}
	}
}

// regrouped returns a plan in which some groups have other members, and some routes are gone or
// lead to another group.
func regrouped(r *rand.Rand, s dataplane.State) dataplane.State {
	out := dataplane.State{}
	var last uint32 // group
	for _, o := range s.Sorted() {
		switch o := o.(type) {
		case dataplane.Group:
			if last = o.ID; len(o.Members) > 1 && r.IntN(2) == 0 {
				o.Members = o.Members[:len(o.Members)-1]
			} else if r.IntN(2) == 0 {
				o.Members = slices.Clone(o.Members)
				o.Members[0].Weight = 3 // as no random plan has
			}
			out[o.Key()] = o
		case dataplane.Route:
			switch {
			case r.IntN(8) == 0:
			case r.IntN(8) == 0:
				o.Group = last
				fallthrough
			default:
				out[o.Key()] = o
			}
		default:
			out[o.Key()] = o
		}
	}
	return out
}
