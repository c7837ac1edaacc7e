package dataplane_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"subctl/dataplane"
	"subctl/dataplane/dataplanetest"

	"github.com/stretchr/testify/require"
)

// dependents returns the keys of an object and of everything that needs it, directly or not;
// and of the next hops that are in the network of an address, which the kernel refuses
// without it, but keeps when it is removed.
func dependents(s dataplane.State, k dataplane.Key) map[dataplane.Key]bool {
	all := map[dataplane.Key]bool{k: true}
	for more := true; more; {
		more = false
		for key, o := range s {
			hop, _ := o.(dataplane.Nexthop)
			via, _ := s[k].(dataplane.Addr)
			if !all[key] &&
				(hop.Via.IsValid() && hop.Dev == via.Dev ||
					slices.ContainsFunc(o.Needs(), func(n dataplane.Key) bool { return all[n] })) {
				all[key] = true
				more = true
			}
		}
	}
	return all
}

// Whatever object the kernel refuses: it and what depends on it fail, for that reason, and
// everything else is there.
func TestSyncContainsFailures(t *testing.T) {
	for seed := range uint64(20) {
		want := dataplanetest.RandomState(seed)
		for k := range want {
			why := errors.New("not this one")
			f := dataplanetest.Fake{Refuse: refusing(k, why)}
			_, err := dataplane.Sync(context.Background(), &f, want)
			var d *dataplane.DriftError
			require.ErrorAs(t, err, &d, "seed %d: %v", seed, k)
			require.ErrorIs(t, err, dataplane.ErrDrift)
			require.ErrorIs(t, err, why)
			require.Equal(t, k, d.Failures[0].Key)
			require.True(t, k.Kind == dataplane.KindAddr || len(d.Failures) == 1, "one cause: %v", err)
			failed := dependents(want, k)
			require.Len(t, d.Affected, len(failed))
			got, err := f.Observe(context.Background())
			require.NoError(t, err)
			for key, o := range want {
				require.Equal(t, failed[key], d.Affected[key] != nil, "%v, and %v is refused", key, k)
				if !failed[key] {
					require.True(t, got[key] != nil && got[key].Equal(o), "%v is not there, and only %v is refused",
						key, k)
				}
			}
		}
	}
}

func refusing(k dataplane.Key, why error) func(dataplane.Object) error {
	return func(o dataplane.Object) error {
		if o.Key() == k {
			return why
		}
		return nil
	}
}

// stubborn is a target that does not remove one object.
type stubborn struct {
	*dataplanetest.Fake
	keeps dataplane.Key
}

func (s stubborn) Apply(ctx context.Context, op dataplane.Op) error {
	if op.New == nil && op.Old.Key() == s.keeps {
		return errors.New("in use")
	}
	return s.Fake.Apply(ctx, op)
}

// An object that cannot be removed is a failure that affects no wanted object.
func TestSyncLeftovers(t *testing.T) {
	f := &dataplanetest.Fake{}
	_, err := dataplane.Sync(context.Background(), f, all(t))
	require.NoError(t, err)
	want := all(t)
	delete(want, rule.Key())
	_, err = dataplane.Sync(context.Background(), stubborn{f, rule.Key()}, want)
	var d *dataplane.DriftError
	require.ErrorAs(t, err, &d)
	require.Empty(t, d.Affected)
	require.EqualError(t, d.Failures[0], "in use")
	require.Equal(t, rule.Key(), d.Failures[0].Key)
}

// counted counts the attempts to put each object.
type counted struct {
	*dataplanetest.Fake
	puts map[dataplane.Key]int
}

func (c counted) Apply(ctx context.Context, op dataplane.Op) error {
	if op.New != nil {
		c.puts[op.New.Key()]++
	}
	return c.Fake.Apply(ctx, op)
}

// What depends on an object that cannot be put is not tried; and Sync does not insist where
// nothing changes between two attempts.
func TestSyncGivesUp(t *testing.T) {
	c := counted{&dataplanetest.Fake{Refuse: refusing(device.Key(), fmt.Errorf("slow"))}, map[dataplane.Key]int{}}
	_, err := dataplane.Sync(context.Background(), c, all(t))
	require.ErrorContains(t, err, "slow")
	require.Equal(t, map[dataplane.Key]int{device.Key(): 2, remote.Key(): 1, chain.Key(): 1, rule.Key(): 1}, c.puts)
	clear(c.puts)
	_, err = dataplane.Sync(context.Background(), c, all(t))
	require.ErrorContains(t, err, "slow")
	require.Equal(t, []dataplane.Key{device.Key()}, slices.Collect(maps.Keys(c.puts)))
	require.Equal(t, 1, c.puts[device.Key()])
}
